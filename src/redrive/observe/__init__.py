"""What Prometheus and other monitoring can read of a running job.

Everything here observes the job, and asks the broker and the ledger in its own thread: a page shows
what is known when it is read, and never waits.
"""

__all__ = ["observation"]
