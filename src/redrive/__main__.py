"""``python -m redrive`` is the ``redrive`` command."""

from __future__ import annotations

import logging
import os
import sys

from redrive.command import main
from redrive.kafka.deadline import abandoned_calls


def start() -> None:
    """Runs the command line in a process of its own.

    Raises:
        SystemExit: The command has ended; with its exit code.
    """
    try:
        main(prog_name="redrive")
    except SystemExit as end:
        if abandoned_calls() and isinstance(end.code, int):
            # A client that never came back runs on; the libraries' own clean-up at the end of a
            # process takes away what it uses, and the process would end by a crash instead.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


if __name__ == "__main__":
    start()
