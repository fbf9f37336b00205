"""IBM MQ: queue managers defined by MQSC, and the resolution of the names of puts.

``read_mqsc`` reads scripts, ``MqNetwork`` connects queue managers, and ``open_queue`` resolves
names at one of them. docs/resolution.md describes the procedure with examples.
"""

__all__ = [
    "checks", "network", "objects", "queue_manager", "reader", "resolution", "resolver",
    "results", "script"
]  # fmt: skip
