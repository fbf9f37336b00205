"""The names of all settings: one table of what ``redrive.toml`` may hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["KEYS", "tables_with"]

KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "": (
            "application",
            "kafka",
            "handlers",
            "queues",
            "topology",
            "job",
            "supervision",
            "ledger",
            "log",
        ),
        "application": ("name", "instance", "on_conflict", "directory"),
        "kafka": (
            "bootstrap_servers",
            "security_protocol",
            "sasl_mechanism",
            "sasl_username",
            "sasl_password",
            "sasl_password_file",
            "ssl_ca_file",
        ),
        "handlers": ("queue", "queue_manager", "rules", "name"),
        "queues": ("put", "max_message_length", "max_depth", "consumer_group"),
        "topology": ("kind", "files", "queue_managers", "dead_letter_queue"),
        "job": (
            "hop_limit",
            "emitter",
            "max_records_per_batch",
            "driver_batch_limit",
            "slice_records",
            "slice_bytes",
            "slice_seconds",
            "starting_offsets",
            "on_data_loss",
            "polling_delay",
            "cores",
            "master",
            "driver_memory",
            "spark_ui",
            "spark_properties",
            "enrichment",
            "allow_context_authority",
            "lenient_rules",
        ),
        "supervision": ("stalled_after", "exit_after"),
        "ledger": ("enabled", "path", "interval"),
        "log": ("format", "level", "file"),
    }
)
"""Keys by table; those of the whole document under the empty name."""

_HEADERS: Final = MappingProxyType({"handlers": "[[handlers]]", "queues": '[queues."NAME"]'})


def tables_with(key: str) -> list[str]:
    """Headers of the tables that have a key of this name."""
    return [
        _HEADERS.get(table, f"[{table}]") for table, keys in KEYS.items() if table and key in keys
    ]
