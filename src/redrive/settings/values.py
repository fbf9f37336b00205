"""Settings as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Final

from redrive.configuration import JobConfiguration, RegistryAccess, RemoteFolder
from redrive.diagnostics import Diagnostic
from redrive.masking import NO_MASK, Mask
from redrive.settings.findings import SCHEMA
from redrive.topology.layout import Topology

FIELDS: Final = {"on_conflict": "conflict", "on_data_loss": "data_loss", "put": "put_enabled"}
"""Fields with other names than their settings."""
_SECRETS: Final = frozenset({"sasl_password", "ssl_key_password", "oauth_client_secret"})
_MISSING: Final = object()
"""Marks a setting that is not a field: the path of a secret, or only used while reading."""


class LogFormat(StrEnum):
    """The format of a log line."""

    TEXT = "text"
    """For people."""
    JSON = "json"
    """One JSON object a line."""


class LogLevel(StrEnum):
    """The lowest level of written lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log."""

    format: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO
    file: Path | None = None
    """None for standard error."""
    mask: Mask = NO_MASK
    """What to hide in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings without errors."""

    name: str
    """Their file, or the command line."""
    job: JobConfiguration
    topology: Topology | None = None
    """The definitions of queue managers; None for the kind ``kafka``."""
    log: LogSettings = field(default_factory=LogSettings)
    mask: Mask = NO_MASK
    """What commands must not show of a message."""
    registry: RegistryAccess | None = None
    """The schema registry by which bodies are shown; None if there is none."""
    warnings: tuple[Diagnostic, ...] = ()
    """Warnings about the settings and the rules tables."""

    def describe(self) -> dict[str, Any]:
        """The settings for JSON, defaults filled in, secrets left out."""
        job = self.job
        handlers = [
            {
                "name": handler.identity.name,
                "queue": handler.identity.queue,
                "queue_manager": handler.identity.queue_manager,
                "rules": handler.rules_name,
                "breaker": handler.breaker.failures if handler.breaker else 0,
                "held_keys": handler.held_keys,
                "timestamp": handler.timestamps.value,
                "on_data_loss": job.data_loss_on(handler.identity.topic).value,
            }
            for handler in job.handlers
        ]
        return {
            "settings": self.name,
            "application": job.application,
            "instance": job.instance,
            "on_conflict": job.conflict.value,
            "directory": str(job.directory),
            "kafka": _described("kafka", job.connection),
            "clusters": {name: _described("clusters", one) for name, one in job.clusters.items()},
            "handlers": handlers,
            "queues": {queue: _described("queues", one) for queue, one in job.limits.items()},
            "queue_managers": job.queue_managers,
            "schemes": [one.name for one in job.schemes],
            "transforms": [one.name for one in job.transforms],
            "topology": [text.name for text in job.topology],
            "on_undeliverable": job.on_undeliverable.value,
            **{name: _described(name, job) for name in ("job", "retry", "supervision", "observe")},
            "ledger": _described("ledger", job.ledger),
            "log": _described("log", self.log),
        }


def _described(section: str, values: object) -> dict[str, Any]:
    described = {}
    for key in SCHEMA.definition["$defs"][section]["properties"]:
        value = getattr(values, FIELDS.get(key, key), _MISSING)
        if value is not _MISSING and key not in _SECRETS:
            described[key] = _plain(key, value)
    return described


def _plain(key: str, value: Any) -> Any:  # noqa: ANN401 - what JSON takes
    match value:
        case Path() | RemoteFolder() | Enum():
            return str(value)
        case Mapping():
            return sorted(value)  # a value may be secret
    if key == "put":
        return "enabled" if value else "disabled"
    return "" if value is None and key == "file" else value
