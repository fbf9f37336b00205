"""What an operator does with a job and its queues, without a command line.

Whatever asks a cluster here raises ``TransientFault`` if it gives no answer in time, and
``EnvironmentFault`` if it can't be reached, or if there is a ledger that can't be read; docstrings
name further errors only.
"""

__all__ = [
    "browse", "channel", "definitions", "depths", "durations", "dynamic_queues", "file_watch",
    "first_table", "handler_states", "handlers", "identify", "network", "process", "put",
    "put_trace", "record_view", "replay", "restart", "retention", "rights", "rule_targets",
    "rules_file", "schema_registry", "states", "supervision", "tables", "topics", "undelivered"
]  # fmt: skip
