"""The smallest configurations of a job, of which a test says what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.samples import identity_of

from redrive.configuration import HandlerConfiguration, JobConfiguration, LedgerConfiguration
from redrive.kafka.connection import Connection


def handled(topic: str, rules: str = "", **names: str) -> HandlerConfiguration:
    """A handler of a topic; names are those of its identity."""
    names = {"queue": topic, "retry_topic": "retry", "remaining_topic": "remaining", **names}
    identity = identity_of(topic, **names)
    return HandlerConfiguration(identity=identity, rules=rules, rules_name=f"{identity.name}.rul")


def job_of(
    *handlers: HandlerConfiguration,
    directory: Path = Path("job"),
    bootstrap_servers: str = "localhost:1",
    **more: Any,
) -> JobConfiguration:
    """The job ``shop`` with these handlers, on a broker that nobody knows."""
    named: dict[str, Any] = {"application": "shop", **more}
    return JobConfiguration(
        connection=Connection(bootstrap_servers=bootstrap_servers),
        handlers=handlers,
        directory=directory,
        ledger=LedgerConfiguration(path=directory / "ledger"),
        **named,
    )
