"""From a settings document to the configuration of a job: every error at once."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from redrive.checkpoints.instances import Share
from redrive.configuration import (
    Conflict,
    DataLoss,
    EmitterChoice,
    JobConfiguration,
    LedgerConfiguration,
)
from redrive.diagnostics import Diagnostic, Severity, has_errors
from redrive.errors import ConfigurationError
from redrive.settings.connection import read_connection
from redrive.settings.document import Document, Option
from redrive.settings.handlers import NAME_FORM, NAME_PATTERN, HandlersReader
from redrive.settings.reader import Findings, Table
from redrive.settings.rules import RulesSource
from redrive.settings.topology import TopologySettings, read_topology
from redrive.settings.values import LogFormat, LogLevel, LogSettings, Settings
from redrive.topology.put import QueueLimits

__all__ = ["check_settings", "read_settings", "settings_of"]

DEFAULT_DIRECTORY: Final = ".redrive"
"""Beside the settings file: where the folders of applications are, if no other is named."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    option.name: option.default for option in fields(JobConfiguration)
}
_LARGEST_BODY: Final = 104_857_600
"""Bytes: the largest MAXMSGL there is."""
_LARGEST_NUMBER: Final = 999_999_999
_ENRICHMENT: Final = '"package.module:function", from DataFrame to DataFrame'


class _StartingOffsets(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class _Switch(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"


def read_settings(
    path: Path, *, options: Sequence[Option] = (), environ: Mapping[str, str] = os.environ
) -> Settings:
    """Read a settings file and the rules tables it names.

    Args:
        path: The file.
        options: Options of ``redrive run`` that win over it.
        environ: Environment variables, for ``${NAME}`` in values.

    Raises:
        ConfigurationError: Anything is wrong; every finding is attached.
    """
    document = Document.from_file(path)
    if options:
        document = document.with_options(f"redrive run -c {path}", options)
    return settings_of(document, environ=environ)


def check_settings(
    path: Path, *, environ: Mapping[str, str] = os.environ
) -> tuple[Diagnostic, ...]:
    """Every finding about a settings file and the rules tables it names.

    Args:
        path: The file.
        environ: Environment variables, for ``${NAME}`` in values.

    Raises:
        ConfigurationError: The file can't be read at all.
    """
    try:
        return read_settings(path, environ=environ).warnings
    except ConfigurationError as error:
        if not error.diagnostics:
            raise
        return error.diagnostics


def settings_of(
    document: Document,
    *,
    environ: Mapping[str, str] = os.environ,
    rules: RulesSource | None = None,
) -> Settings:
    """The settings that a document holds.

    Args:
        document: The document.
        environ: Environment variables, for ``${NAME}`` in values.
        rules: A table that is already read, for handlers that name no file.

    Raises:
        ConfigurationError: Anything is wrong; every finding is attached.
    """
    findings = Findings(document, environ)
    settings = _settings(Table(findings, (), document.data, ""), rules)
    diagnostics = findings.in_order()
    if has_errors(diagnostics):
        count = sum(found.severity is Severity.ERROR for found in diagnostics)
        raise ConfigurationError(
            f"{count} error{'s' * (count != 1)} in the settings or in rules tables they name",
            hint="put every error right; redrive check shows them again",
            diagnostics=diagnostics,
        )
    return replace(settings, warnings=diagnostics)


def _settings(root: Table, rules: RulesSource | None) -> Settings:
    """The settings; if there are errors among the findings they are not to be used."""
    root.check_keys()
    application = root.table("application")
    name = application.pattern(
        "name",
        NAME_PATTERN,
        NAME_FORM,
        required="consumer group, transactions and topics are named after the application",
    )
    application.check_keys()
    connection = read_connection(root.table("kafka"))
    job = root.table("job")
    job.check_keys()
    topology = read_topology(root.table("topology"))
    handlers = HandlersReader(
        root,
        name,
        topology,
        lenient_rules=job.boolean("lenient_rules", default=False),
        allow_context_authority=job.boolean("allow_context_authority", default=False),
        given_rules=rules,
    )
    directory = _directory(application, name)
    configuration = JobConfiguration(
        application=name,
        connection=connection,
        handlers=handlers.read(),
        directory=directory,
        share=_share(application),
        conflict=application.choice("on_conflict", Conflict.REFUSE),
        queue_managers=topology.queue_managers,
        limits=_all_limits(root, topology),
        topology=topology.texts,
        ledger=_ledger(root.table("ledger"), directory),
        **_job(job),
        **_supervision(root.table("supervision")),
    )
    return Settings(
        name=root.findings.document.name,
        job=configuration,
        topology=topology.definitions,
        log=_log(root.table("log")),
    )


def _directory(table: Table, application: str) -> Path:
    chosen = table.file("directory")
    beside = table.findings.document.directory / DEFAULT_DIRECTORY / application
    return (chosen or beside).absolute()


def _share(table: Table) -> Share:
    text = table.text("instance", "1/1", example='"1/2": the first of two')
    try:
        return Share.parse(text)
    except ValueError:
        table.error(
            "instance",
            "BAD_VALUE",
            f"{table.data['instance']!r} is no share of the partitions",
            expected='"1/2" for the first of two instances, "2/2" for the second',
        )
        return Share(1, 1)


def _job(table: Table) -> dict[str, Any]:
    """The options of the job by the names of ``JobConfiguration``."""

    def integer(key: str, low: int, high: int = _LARGEST_NUMBER) -> int:
        return table.integer(key, _DEFAULTS[key], low, high)

    return {
        "hop_limit": integer("hop_limit", 1),
        "emitter": table.choice("emitter", EmitterChoice.AUTO),
        "max_records_per_batch": integer("max_records_per_batch", 1),
        "driver_batch_limit": integer("driver_batch_limit", 0),
        "slice_records": integer("slice_records", 1),
        "slice_bytes": integer("slice_bytes", 1),
        "slice_seconds": table.seconds("slice_seconds", _DEFAULTS["slice_seconds"], 0.1, 60),
        "starting_offsets": table.choice("starting_offsets", _StartingOffsets.EARLIEST).value,
        "data_loss": table.choice("on_data_loss", DataLoss.STOP),
        "polling_delay": table.seconds("polling_delay", _DEFAULTS["polling_delay"], 0, 60),
        "cores": integer("cores", 1, 1024),
        "master": table.text("master", example='"local[4]" or "spark://host:7077"'),
        "driver_memory": table.pattern(
            "driver_memory", "[1-9][0-9]*[mg]", "such as 512m or 2g", _DEFAULTS["driver_memory"]
        ),
        "spark_ui": table.boolean("spark_ui", default=False),
        "spark_properties": _spark_properties(table.table("spark_properties")),
        "enrichment": _enrichment(table),
    }


def _spark_properties(table: Table) -> dict[str, str]:
    for name in table.data:
        if not name.startswith("spark."):
            hint = "names of Spark's properties begin with spark., in quotes"
            table.findings.unknown(
                (*table.path, name), "BAD_NAME", f"{name!r} is no property of Spark", hint=hint
            )
    return {name: table.text(name) for name in table.data}


def _enrichment(table: Table) -> str:
    """The name of a function that can be imported."""
    name = table.text("enrichment", example=_ENRICHMENT)
    if not name:
        return ""
    module, _, function = name.partition(":")
    problem = "" if module and function.isidentifier() else f"{name!r} names no function"
    try:
        found = None if problem else getattr(importlib.import_module(module), function)
    except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
        problem = f"{name} can't be imported: {error}"
    else:
        if not problem and not callable(found):
            problem = f"{name} is no function"
    if problem:
        hint = "the folder of the package has to be on PYTHONPATH"
        table.error("enrichment", "BAD_VALUE", problem, expected=_ENRICHMENT, hint=hint)
    return name


def _supervision(table: Table) -> dict[str, Any]:
    table.check_keys()
    return {
        "stalled_after": table.seconds("stalled_after", _DEFAULTS["stalled_after"], 1, 86_400),
        "exit_after": table.seconds("exit_after", _DEFAULTS["exit_after"], 0, 86_400),
    }


def _all_limits(root: Table, topology: TopologySettings) -> dict[str, QueueLimits]:
    limits = {queue: _limits(table) for queue, table in root.named_tables("queues")}
    if limits and topology.has_files:
        root.warning(
            "queues",
            "WITHOUT_EFFECT",
            "[queues] has no effect with a topology from files",
            hint="PUT, MAXMSGL and MAXDEPTH of definitions hold, consumer_group of bindings",
        )
    return limits


def _limits(table: Table) -> QueueLimits:
    table.check_keys()
    length = table.integer("max_message_length", -1, 0, _LARGEST_BODY)
    depth = table.integer("max_depth", -1, 0, _LARGEST_NUMBER)
    group = table.text("consumer_group")
    if depth >= 0 and not table.has("consumer_group"):
        table.warning(
            "max_depth",
            "WITHOUT_EFFECT",
            "the queue is never full, because nothing says how far its consumer has come",
            hint="name the consumer group that reads the queue as consumer_group",
        )
    return QueueLimits(
        put_enabled=table.choice("put", _Switch.ENABLED) is _Switch.ENABLED,
        max_message_length=None if length < 0 else length,
        max_depth=None if depth < 0 else depth,
        consumer_group=group or None,
    )


def _ledger(table: Table, directory: Path) -> LedgerConfiguration:
    table.check_keys()
    path = table.file("path")
    return LedgerConfiguration(
        enabled=table.boolean("enabled", default=True),
        path=(path or directory / "ledger").absolute(),
        interval=table.seconds("interval", 20.0, 0.1, 86_400),
    )


def _log(table: Table) -> LogSettings:
    table.check_keys()
    path = table.file("file")
    return LogSettings(
        format=table.choice("format", LogFormat.TEXT),
        level=table.choice("level", LogLevel.INFO),
        file=path.absolute() if path else None,
    )
