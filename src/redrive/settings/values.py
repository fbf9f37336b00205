"""Settings as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from redrive.configuration import JobConfiguration, RegistryAccess, RemoteFolder
from redrive.diagnostics import Diagnostic
from redrive.forms import keys_of
from redrive.kafka.connection import KafkaTable
from redrive.masking import NO_MASK, Mask
from redrive.settings_file import (
    JobTable,
    LedgerSettings,
    LogFormat,
    LogLevel,
    LogTable,
    ObserveTable,
    QueueTable,
    RetryTable,
    SupervisionTable,
)
from redrive.topology.layout import Topology

__all__ = ["LogFormat", "LogLevel", "LogSettings", "Settings"]

_OF_SECRETS: Final = (
    "password", "password_file", "client_secret", "client_secret_file",
)  # fmt: skip
"""Ends of keys with secrets, or with the files that have them."""


@dataclass(frozen=True, kw_only=True)
class LogSettings(LogTable):
    """The log; ``file`` is absolute, empty for standard error."""

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
                "timestamp": handler.timestamp.value,
                "on_data_loss": job.data_loss_on(handler.identity.topic).value,
            }
            for handler in job.handlers
        ]
        return {
            "settings": self.name,
            "application": job.application,
            "instance": job.instance,
            "on_conflict": job.on_conflict.value,
            "directory": str(job.directory),
            "kafka": _described(KafkaTable, job.connection),
            "clusters": {
                name: _described(KafkaTable, cluster) for name, cluster in job.clusters.items()
            },
            "handlers": handlers,
            "queues": {
                queue: _described(QueueTable, limits)
                | {"put": "enabled" if limits.put_enabled else "disabled"}
                for queue, limits in job.limits.items()
            },
            "queue_managers": job.queue_managers,
            "schemes": [scheme.name for scheme in job.schemes],
            "transforms": [transform.name for transform in job.transforms],
            "topology": [text.name for text in job.topology],
            "on_undeliverable": job.on_undeliverable.value,
            "job": _described(JobTable, job),
            "retry": _described(RetryTable, job),
            "supervision": _described(SupervisionTable, job),
            "observe": _described(ObserveTable, job),
            "ledger": _described(LedgerSettings, job.ledger),
            "log": _described(LogTable, self.log),
        }


def _described(form: type, values: object) -> dict[str, Any]:
    """The keys of a table that are fields of the values too, without secrets."""
    return {
        name: _plain(getattr(values, key.attribute))
        for name, key in keys_of(form).items()
        if hasattr(values, key.attribute) and not name.endswith(_OF_SECRETS)
    }


def _plain(value: object) -> object:
    match value:
        case Path() | RemoteFolder() | Enum():
            return str(value)
        case Mapping():
            return sorted(value)  # a value may be secret
    return value
