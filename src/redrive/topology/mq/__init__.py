"""IBM MQ: queue managers defined by MQSC, name resolution, and routes over several managers.

``read_mqsc`` reads scripts, ``Network`` connects queue managers, ``open_queue`` and ``put_message``
resolve names at one of them, ``follow_route`` follows a message over all of them.
docs/resolution.md describes the procedure with examples.
"""

__all__ = [
    "checks", "inserts", "network", "objects", "puts", "queue_manager",
    "reader", "resolution", "resolver", "results", "script"
]  # fmt: skip
