"""The web console: what the commands show, as pages and as JSON for scripts.

A page is a document and a template; the document is what the command of the same name prints with
``--json``, from the same function. The console runs beside the job: it reads ledger and topics as
the commands do, and writes plans, acknowledgements and commands as they do.
"""

__all__ = ["command", "server"]
