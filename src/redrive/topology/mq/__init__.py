"""IBM MQ: queue managers defined by MQSC, and how names are resolved (docs/resolution.md)."""

__all__ = [
    "checks", "network", "objects", "queue_manager", "reader", "resolution", "resolver",
    "results", "script"
]  # fmt: skip
