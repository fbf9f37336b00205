"""Redrive: a continuous dead-letter handler and message router on Kafka topics.

For a Spark of your own::

    spark = redrive.session("redrive.toml")
    print(redrive.run_once(spark, "redrive.toml"))
"""

from redrive.version import __version__ as __version__

__all__ = [
    "Job", "RulesTable", "Summary", "dead_letters", "ledger", "read_table", "run_once", "session",
    "start"
]  # fmt: skip


def __getattr__(name: str) -> object:
    """A public name, whose module is imported when it is first used: ``import redrive`` is fast."""
    if name in {"RulesTable", "dead_letters", "read_table"}:
        from redrive import frames as module  # noqa: PLC0415 - slow to import
    elif name in __all__:
        from redrive import library as module  # noqa: PLC0415 - as above
    else:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(module, name)
