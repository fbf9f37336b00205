"""Settings: from ``redrive.toml`` and options to the configuration of a job."""

from redrive.settings.document import Document, Option, with_environment
from redrive.settings.rules import RulesSource
from redrive.settings.settings import (
    DEFAULT_FILE,
    LogSettings,
    Settings,
    SettingsSource,
    WatchedFiles,
    default_file,
    read_settings,
    read_settings_for_lookup,
    read_settings_for_topic,
    settings_of,
    topology_of,
)
from redrive.settings_file import LogFormat, LogLevel

__all__ = [
    "DEFAULT_FILE", "Document", "LogFormat", "LogLevel", "LogSettings", "Option", "RulesSource",
    "Settings", "SettingsSource", "WatchedFiles", "connection", "default_file", "document",
    "findings", "read_settings", "read_settings_for_lookup", "read_settings_for_topic", "rules",
    "settings_of", "topology_of", "with_environment"
]  # fmt: skip
