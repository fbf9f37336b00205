"""The smallest configurations and settings of a job, of which a test says what it is about."""

from __future__ import annotations

from collections.abc import Mapping
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


def write_settings(
    folder: Path,
    *queues: str,
    handlers: Mapping[str, str] | None = None,
    rules: str = "ACTION(RETRY)\n",
    application: str = "shop",
    directory: Path | None = None,
    servers: str = "localhost:1",
    more: str = "",
) -> Path:
    """Writes ``redrive.toml``, with a handler for each queue, and the table of each handler.

    A handler and its table have the name of the queue without ``.dlq``.

    Args:
        folder: Where to write.
        queues: The dead-letter queues.
        handlers: Queues of handlers with other names, by these.
        rules: The table of all handlers.
        application: The name of the application.
        directory: The folder of the job.
        servers: The brokers; nobody listens at the default.
        more: Further lines of the settings.

    Returns:
        The file of the settings.
    """
    text = f'[application]\nname = "{application}"\n'
    text += f'directory = "{directory}"\n' if directory else ""
    text += f'[kafka]\nbootstrap_servers = "{servers}"\n'
    named = {queue.removesuffix(".dlq"): queue for queue in queues} | dict(handlers or {})
    for name, queue in named.items():
        text += f'[[handlers]]\nname = "{name}"\nqueue = "{queue}"\nrules = "{name}.rul"\n'
        (folder / f"{name}.rul").write_text(rules)
    path = folder / "redrive.toml"
    path.write_text(text + more)
    return path


def job_of(
    *handlers: HandlerConfiguration,
    directory: Path = Path("job"),
    bootstrap_servers: str = "localhost:1",
    **more: Any,
) -> JobConfiguration:
    """The job ``shop`` with these handlers, on a broker that nobody knows; what is given wins."""
    named: dict[str, Any] = {
        "application": "shop",
        "connection": Connection(bootstrap_servers=bootstrap_servers),
        "ledger": LedgerConfiguration(path=directory / "ledger"),
    }
    return JobConfiguration(handlers=handlers, directory=directory, **{**named, **more})
