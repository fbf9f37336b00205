"""From a settings document to the configuration of a job, with all errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from redrive.checkpoints.instances import AUTO, Share
from redrive.configuration import (
    Conflict,
    DataLoss,
    EmitterChoice,
    JobConfiguration,
    LedgerConfiguration,
    RemoteFolder,
)
from redrive.configuration.transforms import TransformConfiguration
from redrive.diagnostics import Severity, has_errors
from redrive.errors import ConfigurationError, EnvironmentFault, TransientFault
from redrive.masking import Mask
from redrive.messages.json_patch import JsonPatch, read_json
from redrive.messages.schemes import OwnScheme, PlaceError, Scheme
from redrive.messages.schemes.known import SCHEMES
from redrive.printable import counted
from redrive.settings.connection import read_clusters, read_connection, read_registry
from redrive.settings.document import Document, Option
from redrive.settings.environment import unknown_variables, with_environment
from redrive.settings.findings import Section
from redrive.settings.handlers import HandlersReader
from redrive.settings.rules import RulesSource
from redrive.settings.schemes import read_schemes
from redrive.settings.topology import TopologySettings, read_topology
from redrive.settings.values import FIELDS, LogFormat, LogLevel, LogSettings, Settings
from redrive.topology.put import QueueLimits

DEFAULT_DIRECTORY: Final = ".redrive"
"""Default parent of applications' folders, next to the settings file."""

_STORE: Final = ("endpoint", "region", "allow_http")
"""Keys of [ledger] for an object store, and their names in the library."""
_STORES: Final = ("s3", "s3a", "abfs", "abfss", "gs", "hdfs")
_STORES_TEXT: Final = f"a folder, or a URL that begins with one of {', '.join(_STORES)}"
_ALMOST_URL: Final = re.compile(
    rf"(?:{'|'.join(_STORES)})(?::(?!//)|//)|[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE
)
"""A URL of an object store that lacks a colon or a slash."""
_SIGN_IN: Final = "credentials come from the environment or from the files of the store's own tools"

_TRANSFORM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,48}")

_ANSWER: Final = 5.0
"""Seconds that the cluster has to list its topics."""

_CONVERSIONS: Final[Mapping[str, Callable[[str], object]]] = {
    "conflict": Conflict,
    "data_loss": DataLoss,
    "emitter": EmitterChoice,
    "format": LogFormat,
    "level": LogLevel,
}
"""Types of fields that are written as text; other values keep their type."""


_WITHOUT_TOPIC: Final = (
    *("transforms", "job", "ledger", "observe", "supervision", "log", "queues", "schema_registry"),
)
"""Sections that do not say how the records of a topic are read."""


def read_settings(
    path: Path,
    *,
    options: Sequence[Option] = (),
    environ: Mapping[str, str] = os.environ,
    asks: bool = True,
) -> Settings:
    """Read a settings file and the rules tables it names.

    Args:
        path: The file.
        options: Options of ``redrive run`` that override it.
        environ: Environment variables, for ``${NAME}`` in values, and for settings.
        asks: Whether to ask the cluster for the topics of subscriptions, if there are any. If it
            does not answer, their handlers are missing.

    Raises:
        ConfigurationError: There is an error; every finding is attached.
    """
    settings = settings_of(_document(path, options, environ), environ=environ)
    return _with_topics(settings) if asks else settings


def read_settings_for_lookup(path: Path, *, options: Sequence[Option] = ()) -> Settings:
    """The settings for a command that asks about a job and decides no messages.

    Errors in rules tables are accepted, to find an earlier table when the current one is
    broken: tables that ignore every message then replace them. Otherwise as ``read_settings``.
    """
    try:
        return read_settings(path, options=options)
    except ConfigurationError as error:
        document = _document(path, options, os.environ)
        try:
            settings = settings_of(document, without_tables=True)
        except ConfigurationError:
            raise error from None
        return _with_topics(settings)


def read_settings_for_topic(path: Path) -> tuple[Settings, str]:
    """The settings for a command that reads records of a topic, and handles none.

    Errors elsewhere than in what connects to the cluster, reads dead letters and masks them are
    accepted: functions that cannot be imported, rules tables, the ledger.

    Returns:
        The settings, and a sentence about the errors; empty if there are none.

    Raises:
        ConfigurationError: There is an error in what is needed; every finding is attached.
    """
    try:
        return read_settings(path, asks=False), ""
    except ConfigurationError as error:
        document = _document(path, (), os.environ)
        for key in _WITHOUT_TOPIC:
            document = document.without(key)
        try:
            settings = settings_of(document, without_tables=True)
        except ConfigurationError:
            raise error from None
        first = next(it.message for it in error.diagnostics if it.severity is Severity.ERROR)
        return settings, f"{path} has errors that do not matter here, such as: {first}"


def _with_topics(settings: Settings) -> Settings:
    """The settings with a handler for each topic of subscriptions, if the cluster answers."""
    if not settings.job.subscriptions:
        return settings
    from redrive.kafka.cluster import Cluster  # noqa: PLC0415 - only subscriptions need a client

    with (
        suppress(EnvironmentFault, TransientFault),
        Cluster.open(settings.job.connection, timeout=_ANSWER) as one,
    ):
        return replace(settings, job=settings.job.with_topics(one.topics()))
    return settings


def _document(path: Path, options: Sequence[Option], environ: Mapping[str, str]) -> Document:
    document = with_environment(Document.from_file(path), environ)
    if options:
        document = document.with_options(f"redrive run -c {path}", options)
    return document


def settings_of(
    document: Document,
    *,
    environ: Mapping[str, str] = os.environ,
    rules: RulesSource | None = None,
    without_tables: bool = False,
) -> Settings:
    """The settings of a document; environment and errors as in ``read_settings``.

    Args:
        document: The document.
        environ: Environment variables.
        rules: A table already read, for handlers without a file.
        without_tables: Whether tables that ignore every message replace those of the files.
    """
    root = Section.whole(document, environ)
    settings = _settings(root, rules, without_tables=without_tables)
    root.findings.extend(unknown_variables(document, environ))
    diagnostics = root.findings.in_order()
    if has_errors(diagnostics):
        count = sum(found.severity is Severity.ERROR for found in diagnostics)
        raise ConfigurationError(
            f"{counted(count, 'error')} in the settings or in rules tables they name",
            hint="fix all errors; redrive check shows them again",
            diagnostics=diagnostics,
        )
    return replace(settings, warnings=diagnostics)


def topology_of(document: Document) -> TopologySettings:
    """The queue managers of a document; their errors are left to ``settings_of``."""
    return read_topology(Section.whole(document, {}).section("topology"))


def _settings(root: Section, rules: RulesSource | None, *, without_tables: bool) -> Settings:
    """The settings; not to be used if there are errors among the findings."""
    application, job = root.section("application"), root.section("job")
    name = application.text("name")
    topology = read_topology(root.section("topology"))
    options = dict(job.data)
    reader = HandlersReader(
        root,
        name,
        topology,
        lenient_rules=options.pop("lenient_rules", False),
        allow_context_authority=options.pop("allow_context_authority", False),
        rules=rules,
        without_tables=without_tables,
    )
    job.function("enrichment", hint="the folder of the package has to be on PYTHONPATH")
    handlers, subscriptions = reader.read()
    beginning = {
        key: value
        for key, value in application.data.items()
        if key in {"on_conflict", "take_over", "beside"}
    }
    transforms = root.section("transforms")
    beside = root.findings.document.directory / DEFAULT_DIRECTORY / name
    directory = (application.file("directory") or beside).absolute()
    configuration = JobConfiguration(
        application=name,
        connection=replace(read_connection(root.section("kafka")), group=name),
        clusters=read_clusters(root.section("clusters"), name, (one.identity for one in handlers)),
        handlers=handlers,
        subscriptions=subscriptions,
        directory=directory,
        share=_share(application),
        rebalances=application.text("instance") == AUTO,
        queue_managers=topology.queue_managers,
        limits=_limits(root.section("queues"), topology),
        topology=topology.texts,
        on_undeliverable=topology.on_undeliverable,
        schemes=read_schemes(root.section("schemes")),
        transforms=tuple(_transform(transforms.section(name), name) for name in transforms.data),
        ledger=_ledger(root.section("ledger"), directory),
        **_converted({**options, **beginning}),
        **root.section("retry").data,
        **root.section("supervision").data,
        **root.section("observe").data,
    )
    mask = _mask(root.section("mask"), configuration.schemes)
    return Settings(
        name=root.findings.document.name,
        job=configuration,
        topology=topology.definitions,
        log=_log(root.section("log"), mask),
        mask=mask,
        registry=read_registry(root.section("schema_registry")),
    )


def _converted(values: Mapping[str, Any]) -> dict[str, Any]:
    named = {FIELDS.get(key, key): value for key, value in values.items()}
    return {
        key: _CONVERSIONS[key](value) if key in _CONVERSIONS else value
        for key, value in named.items()
    }


def _share(section: Section) -> Share:
    written = section.text("instance")
    if written == AUTO and section.has("on_conflict"):
        why = 'with instance = "auto" a share is taken over when its instance ends'
        section.without_effect("on_conflict", f"on_conflict has no effect: {why}")
    try:
        return Share.parse("1/1" if written in {"", AUTO} else written)
    except ValueError:
        section.bad_value(
            "instance",
            f"invalid instance {section.written('instance')!r}",
            expected='"1/2" for the first of two instances, "2/2" for the second; or "auto"',
        )
        return Share(1, 1)


def _limits(section: Section, topology: TopologySettings) -> dict[str, QueueLimits]:
    if section.data and topology.has_files:
        section.findings.warning(
            section.path,
            "WITHOUT_EFFECT",
            "[queues] has no effect with a topology from files",
            hint="PUT, MAXMSGL and MAXDEPTH of definitions apply, and consumer_group of bindings",
        )
    return {queue: _queue_limits(section.section(queue)) for queue in section.data}


def _queue_limits(section: Section) -> QueueLimits:
    if "max_depth" in section.data and not section.has("consumer_group"):
        section.without_effect(
            "max_depth",
            "the queue is never full, because its consumer's offsets are unknown",
            hint="set consumer_group to the group that reads the queue",
        )
    limits = dict(section.data)
    return QueueLimits(put_enabled=limits.pop("put", "enabled") == "enabled", **limits)


def _transform(section: Section, name: str) -> TransformConfiguration:
    findings, path = section.findings, section.path
    if not _TRANSFORM_NAME.fullmatch(name):
        expected = "up to 48 letters, digits, dots, hyphens, underscores"
        findings.error_at_key(path, "BAD_VALUE", f"{name!r} is not a name", expected=expected)
    if section.has("json_patch") == section.has("python"):
        message = f"[transforms.{name}] needs either json_patch or python"
        hint = 'json_patch = "fix.json", or python = "package.module:function"'
        findings.error_at_key(path, "MISSING", message, hint=hint)
    return TransformConfiguration(name, _patch(section), section.function("python"))


def _patch(section: Section) -> bytes:
    path = section.file("json_patch")
    if path is None:
        return b""
    try:
        patch = path.read_bytes()
        JsonPatch.of(read_json(patch))
    except OSError as error:
        section.bad_value("json_patch", f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        problem = str(error).replace("the value", "the file", 1)
        hint = 'such as [{"op": "replace", "path": "/currency", "value": "EUR"}]'
        section.bad_value("json_patch", f"{path}: {problem}", hint=hint)
    else:
        return patch
    return b""


def _ledger(section: Section, directory: Path) -> LedgerConfiguration:
    values = {key: value for key, value in section.data.items() if key not in _STORE}
    url = section.text("path")
    if _ALMOST_URL.match(url):
        section.bad_value(
            "path", f"{section.written('path')!r} is not a folder or URL", expected=_STORES_TEXT
        )
    if "://" not in url:
        _warn_of_store_keys(section, "the ledger is in a folder of this machine")
        values["path"] = (section.file("path") or directory / "ledger").absolute()
        return LedgerConfiguration(**values)
    scheme, _, rest = url.partition("://")
    if scheme not in _STORES:
        section.bad_value("path", f"{scheme} is not an object store", expected=_STORES_TEXT)
    elif not rest or (rest.startswith("/") and scheme != "hdfs"):
        message = f"{section.written('path')!r} names no bucket"
        section.bad_value("path", message, expected=f"{scheme}://BUCKET/FOLDER")
    elif "?" in rest or ("@" in rest and not scheme.startswith("abfs")):
        section.error_at_key("path", "BAD_VALUE", "path of [ledger] has credentials", hint=_SIGN_IN)
    if not scheme.startswith("s3"):
        _warn_of_store_keys(section, f"only s3 has it, not {scheme}")
    options = {
        key: str(section.data[key]).lower() if key == "allow_http" else str(section.data[key])
        for key in _STORE
        if key in section.data
    }
    values["path"] = RemoteFolder(
        url=url.rstrip("/"), beside=directory.absolute() / "ledger-projection", options=options
    )
    return LedgerConfiguration(**values)


def _warn_of_store_keys(section: Section, why: str) -> None:
    for key in _STORE:
        if section.has(key):
            section.without_effect(key, f"{key} of [ledger] has no effect: {why}")


def _log(section: Section, mask: Mask) -> LogSettings:
    path = section.file("file")
    file = path.absolute() if path else None
    return LogSettings(**{**_converted(section.data), "file": file, "mask": mask})


def _valid(schemes: Iterable[OwnScheme]) -> Iterator[Scheme]:
    """The schemes without an invalid place, which is a finding of its own section."""
    for scheme in schemes:
        with suppress(PlaceError):
            yield scheme.scheme()


def _mask(section: Section, schemes: Iterable[OwnScheme]) -> Mask:
    patterns = tuple(section.data.get("patterns", ()))
    for pattern in patterns:
        if problem := Mask.problem_with(pattern):
            section.bad_value(
                "patterns",
                f"invalid pattern {pattern!r}: {problem}",
                expected="regular expressions of RE2 that match some text",
            )
    mask = Mask(patterns, tuple(section.data.get("headers", ())))
    silent = {
        scheme.name
        for scheme in (*SCHEMES, *_valid(schemes))
        for part in scheme.parts.get("error.message", ())
        if mask.hides(part.header)
    }
    return replace(mask, silent_schemes=tuple(sorted(silent)))
