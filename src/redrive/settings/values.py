"""What settings come to, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from redrive.configuration import JobConfiguration, RegistryAccess
from redrive.diagnostics import Diagnostic
from redrive.masking import NO_MASK, Mask
from redrive.topology.files import Topology
from redrive.topology.put import QueueLimits

__all__ = ["LogFormat", "LogLevel", "LogSettings", "Settings"]


class LogFormat(StrEnum):
    """How a line of the log is written."""

    TEXT = "text"
    """For people."""
    JSON = "json"
    """One JSON object a line."""


class LogLevel(StrEnum):
    """The least severe lines that are written."""

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
    """What the log is not to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings without errors."""

    name: str
    """The file they are from, or the command line."""
    job: JobConfiguration
    topology: Topology | None = None
    """The definitions of queue managers; None for the kind ``kafka``."""
    log: LogSettings = field(default_factory=LogSettings)
    mask: Mask = NO_MASK
    """What no command is to show of a message."""
    registry: RegistryAccess | None = None
    """The schema registry by which bodies are shown; None if there is none."""
    warnings: tuple[Diagnostic, ...] = ()
    """What is legal but probably not meant, in the settings and in the rules tables."""

    def describe(self) -> dict[str, Any]:
        """The settings as JSON takes them, defaults filled in, secrets left out."""
        job = self.job
        return {
            "settings": self.name,
            "application": job.application,
            "instance": str(job.share),
            "on_conflict": job.conflict.value,
            "directory": str(job.directory),
            "kafka": {
                "bootstrap_servers": job.connection.bootstrap_servers,
                "security_protocol": job.connection.security_protocol,
                "sasl_mechanism": job.connection.sasl_mechanism,
                "sasl_username": job.connection.sasl_username,
                "ssl_ca_file": job.connection.ssl_ca_file,
            },
            "handlers": [
                {
                    "name": handler.identity.name,
                    "queue": handler.identity.queue,
                    "queue_manager": handler.identity.queue_manager,
                    "rules": handler.rules_name,
                }
                for handler in job.handlers
            ],
            "queues": {queue: _limits(limits) for queue, limits in job.limits.items()},
            "queue_managers": job.queue_managers,
            "schemes": [one.name for one in job.schemes],
            "topology": [text.name for text in job.topology],
            "on_undeliverable": job.on_undeliverable.value,
            "job": {
                "hop_limit": job.hop_limit,
                "emitter": job.emitter.value,
                "max_records_per_batch": job.max_records_per_batch,
                "driver_batch_limit": job.driver_batch_limit,
                "slice_records": job.slice_records,
                "slice_bytes": job.slice_bytes,
                "slice_seconds": job.slice_seconds,
                "reevaluation_rate": job.reevaluation_rate,
                "starting_offsets": job.starting_offsets,
                "on_data_loss": job.data_loss.value,
                "polling_delay": job.polling_delay,
                "cores": job.cores,
                "master": job.master,
                "driver_memory": job.driver_memory,
                "spark_ui": job.spark_ui,
                "spark_properties": sorted(job.spark_properties),
                "enrichment": job.enrichment,
            },
            "supervision": {"stalled_after": job.stalled_after, "exit_after": job.exit_after},
            "observe": {"listen": job.listen, "retention_alarm": job.retention_alarm},
            "ledger": {
                "enabled": job.ledger.enabled,
                "path": str(job.ledger.path),
                "interval": job.ledger.interval,
            },
            "log": {
                "format": self.log.format.value,
                "level": self.log.level.value,
                "file": str(self.log.file or ""),
            },
        }


def _limits(limits: QueueLimits) -> Mapping[str, Any]:
    return {
        "put": "enabled" if limits.put_enabled else "disabled",
        "max_message_length": limits.max_message_length,
        "max_depth": limits.max_depth,
        "consumer_group": limits.consumer_group,
    }
