"""Settings: from ``redrive.toml`` and options to the configuration of a job.

read_settings(path)       -> Settings, or a ConfigurationError with every finding
read_settings_for_lookup(path) -> Settings, even if rules tables are broken
read_settings_for_topic(path)  -> Settings, even if only what a topic needs is right
default_file()            -> where the settings are if a command names no file
settings_of(document)     -> the same for options without a file
topology_of(document)     -> its queue managers
with_environment(document, environ) -> the document with settings from variables
WatchedFiles.of(path, options) -> the content of all files of the settings
"""

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
