"""The log: lines for people or JSON for programs, and what of a job's work is worth a line.

Every part of Redrive logs through ``logging.getLogger("redrive...")``. What differs from time to
time may go beside the message, so that programs need not take sentences apart::

    logger.info("topic is not there yet", extra={"facts": {"topic": "ORDERS.DLQ"}})

``facts`` are shown in both forms; ``details`` only in JSON, for lines whose message says it all.
"""

from redrive.logs.lines import configure_logging, log_findings
from redrive.logs.observer import LogObserver
from redrive.logs.work import FailureKind, Work, counted

__all__ = ["FailureKind", "LogObserver", "Work", "configure_logging", "counted", "log_findings"]
