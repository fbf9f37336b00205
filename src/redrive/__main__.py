"""``python -m redrive`` is the ``redrive`` command."""

from __future__ import annotations

import logging
import os
import sys

from redrive.command import main
from redrive.kafka.deadline import abandoned_calls


def start() -> None:
    """Run the command line in its own process.

    Raises:
        SystemExit: The command has ended, with its exit code.
    """
    try:
        main(prog_name="redrive")
    except SystemExit as end:
        if abandoned_calls() and isinstance(end.code, int):
            # An abandoned client still runs; the libraries' own clean-up at the end of a
            # process would remove what it uses, and crash the process.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


if __name__ == "__main__":
    start()
