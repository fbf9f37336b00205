"""The log: lines for people or JSON for programs, and the events of a job.

All of Redrive logs through ``logging.getLogger("redrive...")``. Values may accompany the
message, so that programs need not parse sentences::

    logger.info("topic is not there yet", extra={"facts": {"topic": "ORDERS.DLQ"}})

``facts`` are shown in both forms; ``details`` only in JSON, when the message contains them.
"""

from redrive.logs.lines import configure_logging, log_all_output, log_findings
from redrive.logs.observer import LogObserver

__all__ = ["LogObserver", "configure_logging", "log_all_output", "log_findings"]
