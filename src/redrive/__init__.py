"""Redrive: a continuous dead-letter handler and message router on Kafka topics.

For a Spark of your own::

    spark = redrive.session("redrive.toml")
    print(redrive.run_once(spark, "redrive.toml"))
"""

from importlib import import_module

__version__ = "0.1.0"
__all__ = [
    "Job", "RulesTable", "Summary", "dead_letters", "ledger", "read_table", "run_once", "session",
    "start"
]  # fmt: skip

_FRAMES = ("RulesTable", "dead_letters", "read_table")
"""The names in ``frames``; all others are in ``library``."""


def __getattr__(name: str) -> object:
    """A public name, whose module is imported when it is first used: ``import redrive`` is fast."""
    if name in __all__:
        module = "frames" if name in _FRAMES else "library"
        # By a name that is put together: both import modules that ask for the version.
        return getattr(import_module(f"{__name__}.{module}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
