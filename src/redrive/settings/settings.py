"""From a settings document to the configuration of a job, with all errors."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from redrive.checkpoints.instances import AUTO, Share
from redrive.configuration import (
    JobConfiguration,
    LedgerConfiguration,
    LedgerFolder,
    RegistryAccess,
    RemoteFolder,
    TransformConfiguration,
)
from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    RedriveError,
    TransientFault,
    UsageError,
)
from redrive.forms import keys_of
from redrive.kafka.connection import KafkaTable
from redrive.masking import NO_MASK, Mask
from redrive.messages.dead_letters import NO_VALID_SCHEME
from redrive.messages.json_patch import JsonPatch, read_json
from redrive.messages.schemes import SCHEME_NAMES, OwnScheme, PartPlace, PlaceError, Scheme
from redrive.messages.schemes.known import SCHEMES
from redrive.messages.schemes.own import payload_reader
from redrive.messages.schemes.reading import BARE
from redrive.messages.schemes.scheme import SchemePart
from redrive.settings.connection import read_clusters, read_connection, read_registry
from redrive.settings.document import Document, Option, unknown_variables, with_environment
from redrive.settings.findings import Section
from redrive.settings.handlers import HandlersReader, TopologySettings, read_topology
from redrive.settings.rules import RulesSource
from redrive.settings_file import (
    FORM,
    ApplicationTable,
    JobTable,
    LedgerSettings,
    LogTable,
    MaskTable,
    ObserveTable,
    QueueTable,
    RetryTable,
    SchemeEntry,
    SettingsFile,
    StartTable,
    SupervisionTable,
    TransformTable,
)
from redrive.topology.files import named_sources
from redrive.topology.layout import Topology
from redrive.topology.put import QueueLimits

_OF_SECRETS: Final = (
    "password", "password_file", "client_secret", "client_secret_file",
)  # fmt: skip
"""Ends of keys with secrets, or with the files that have them."""
SettingsSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A settings file, or what TOML would give for it; relative paths in a mapping are relative to the
working directory."""


@dataclass(frozen=True, kw_only=True)
class LogSettings(LogTable):
    """The log; ``file`` is absolute, empty for standard error."""

    mask: Mask = NO_MASK


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


DEFAULT_FILE: Final = Path("redrive.toml")
"""The default settings file, in the working directory."""
DEFAULT_DIRECTORY: Final = ".redrive"
"""Default parent of applications' folders, next to the settings file."""

_STORE: Final = ("endpoint", "region", "allow_http")
"""Keys of [ledger] for an object store, by their names in the library too."""
_STORES: Final = ("s3", "s3a", "abfs", "abfss", "gs", "hdfs")
_STORES_TEXT: Final = f"a folder, or a URL that begins with one of {', '.join(_STORES)}"
_ALMOST_URL: Final = re.compile(
    rf"(?:{'|'.join(_STORES)})(?::(?!//)|//)|[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE
)
"""A URL of an object store that lacks a colon or a slash."""
_SIGN_IN: Final = "credentials come from the environment or from the files of the store's own tools"

_SCHEME_NAME: Final = re.compile(r"[A-Za-z0-9.-]+")
_TAKEN: Final = frozenset({*SCHEME_NAMES, NO_VALID_SCHEME, BARE.name})
_NO_PARTS: Final = frozenset({"recognise", "assume", "payload", "drops_headers"})
_PLACE_OF_RECORD: Final = frozenset({"origin.topic", "origin.partition", "origin.offset"})

_TRANSFORM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,48}")

_ANSWER: Final = 5.0
"""Seconds that the cluster has to list its topics."""

_WITHOUT_TOPIC: Final = (
    *("transforms", "job", "ledger", "observe", "supervision", "log", "queues", "schema_registry"),
)
"""Sections that do not say how the records of a topic are read."""


def read_settings(
    path: SettingsSource,
    *,
    options: Sequence[Option] = (),
    environ: Mapping[str, str] = os.environ,
    asks: bool = True,
) -> Settings:
    """Read a settings file and the rules tables it names.

    Args:
        path: The file, or its content.
        options: Options of ``redrive run`` that override it.
        environ: Environment variables, for ``${NAME}`` in values, and for settings.
        asks: Whether to ask the cluster for the topics of subscriptions, if there are any. If it
            does not answer, their handlers are missing.

    Raises:
        ConfigurationError: There is an error; every finding is attached.
    """
    settings = settings_of(_document(path, options, environ), environ=environ)
    return _with_topics(settings) if asks else settings


def default_file() -> Path:
    """``redrive.toml``; where there is none, what the only job here without a file has kept.

    Raises:
        UsageError: There is none, and several jobs were started without one.
    """
    if DEFAULT_FILE.exists():
        return DEFAULT_FILE
    kept = sorted(Path(DEFAULT_DIRECTORY).glob(f"*/{DEFAULT_FILE}"))
    if len(kept) > 1:
        raise UsageError(
            f"there is no {DEFAULT_FILE} here, and {len(kept)} jobs were started without one",
            hint=f"name one of them: -c {', or -c '.join(map(str, kept))}",
        )
    return kept[0] if kept else DEFAULT_FILE


def read_settings_for_lookup(path: Path, *, options: Sequence[Option] = ()) -> Settings:
    """The settings for a command that asks about a job and decides no messages.

    Errors in rules tables are accepted, to find an earlier table when the current one is
    broken: tables that ignore every message then replace them. Otherwise as ``read_settings``.
    """
    try:
        return read_settings(path, options=options)
    except ConfigurationError as error:
        return _with_topics(_without_tables(_document(path, options, os.environ), error))


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
        settings = _without_tables(document, error)
        first = next(
            diagnostic.message
            for diagnostic in error.diagnostics
            if diagnostic.severity is Severity.ERROR
        )
        return settings, f"{path} has errors that do not matter here, such as: {first}"


def _without_tables(document: Document, error: ConfigurationError) -> Settings:
    """The settings without rules tables; raises the error of those with them if that fails."""
    try:
        return settings_of(document, without_tables=True)
    except ConfigurationError:
        raise error from None


def _with_topics(settings: Settings) -> Settings:
    """The settings with a handler for each topic of subscriptions, if the cluster answers."""
    if not settings.job.subscriptions:
        return settings
    from redrive.kafka.cluster import Cluster  # noqa: PLC0415 - only subscriptions need a client

    with (
        suppress(EnvironmentFault, TransientFault),
        Cluster.open(settings.job.connection, timeout=_ANSWER) as cluster,
    ):
        return replace(settings, job=settings.job.with_topics(cluster.topics()))
    return settings


def _document(
    path: SettingsSource, options: Sequence[Option], environ: Mapping[str, str]
) -> Document:
    written = Document.of(path) if isinstance(path, Mapping) else Document.from_file(Path(path))
    document = with_environment(written, environ)
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
    root = Section.whole(document, environ, FORM)
    settings = _settings(root, rules, without_tables=without_tables)
    root.findings.extend(unknown_variables(document, environ))
    warnings = root.findings.checked(
        "the settings or in rules tables they name",
        "fix all errors; redrive check shows them again",
    )
    return replace(settings, warnings=warnings)


def topology_of(document: Document) -> TopologySettings:
    """The queue managers of a document; their errors are left to ``settings_of``."""
    root = Section.whole(document, {}, FORM)
    return read_topology(root.inner(root.value.topology, "topology"))


def _settings(
    root: Section[SettingsFile], rules: RulesSource | None, *, without_tables: bool
) -> Settings:
    """The settings; not to be used if there are errors among the findings."""
    file = root.value
    application = root.inner(file.application, "application")
    name = file.application.name
    topology = read_topology(root.inner(file.topology, "topology"))
    reader = HandlersReader(root, topology, rules=rules, without_tables=without_tables)
    root.inner(file.job, "job").function(
        "enrichment", hint="the folder of the package has to be on PYTHONPATH"
    )
    handlers, subscriptions = reader.read()
    beside = root.findings.document.directory / DEFAULT_DIRECTORY / name
    directory = (application.file("directory") or beside).absolute()
    configuration = JobConfiguration(
        **{key: getattr(file.application, key) for key in keys_of(StartTable)},
        **vars(file.job),
        **vars(file.retry),
        **vars(file.supervision),
        **vars(file.observe),
        application=name,
        connection=read_connection(root.inner(file.kafka, "kafka"), name),
        clusters=read_clusters(root, (handler.identity for handler in handlers)),
        handlers=handlers,
        subscriptions=subscriptions,
        directory=directory,
        share=_share(application),
        rebalances=file.application.instance == AUTO,
        queue_managers=topology.queue_managers and tuple(filter(None, topology.queue_managers)),
        limits=_limits(root, topology),
        topology=topology.texts,
        on_undeliverable=topology.on_undeliverable,
        schemes=_schemes(root),
        transforms=tuple(
            _transform(root.inner(table, "transforms", name), name)
            for name, table in file.transforms.items()
        ),
        ledger=_ledger(root.inner(file.ledger, "ledger"), directory),
    )
    mask = _mask(root.inner(file.mask, "mask"), configuration.schemes)
    log = root.inner(file.log, "log").file("file")
    return Settings(
        name=root.findings.document.name,
        job=configuration,
        topology=topology.definitions,
        log=LogSettings(
            **{**vars(file.log), "file": str(log.absolute()) if log else ""}, mask=mask
        ),
        mask=mask,
        registry=read_registry(root.inner(file.schema_registry, "schema_registry")),
    )


def _share(section: Section[ApplicationTable]) -> Share:
    instance = section.value.instance
    if instance == AUTO and section.has("on_conflict"):
        why = 'with instance = "auto" a share is taken over when its instance ends'
        section.without_effect("on_conflict", f"on_conflict has no effect: {why}")
    try:
        return Share(1, 1) if instance == AUTO else Share.parse(instance)
    except ValueError:
        section.bad_value(
            "instance",
            f"invalid instance {section.written('instance')!r}",
            expected='"1/2" for the first of two instances, "2/2" for the second; or "auto"',
        )
        return Share(1, 1)


def _limits(root: Section[SettingsFile], topology: TopologySettings) -> dict[str, QueueLimits]:
    queues = root.value.queues
    if queues and topology.has_files:
        root.findings.warning(
            ("queues",),
            "WITHOUT_EFFECT",
            "[queues] has no effect with a topology from files",
            hint="PUT, MAXMSGL and MAXDEPTH of definitions apply, and consumer_group of bindings",
        )
    return {
        queue: _queue_limits(root.inner(table, "queues", queue)) for queue, table in queues.items()
    }


def _queue_limits(section: Section[QueueTable]) -> QueueLimits:
    if section.value.max_depth is not None and not section.has("consumer_group"):
        section.without_effect(
            "max_depth",
            "the queue is never full, because its consumer's offsets are unknown",
            hint="set consumer_group to the group that reads the queue",
        )
    limits = dict(vars(section.value))
    return QueueLimits(put_enabled=limits.pop("put") == "enabled", **limits)


def _transform(section: Section[TransformTable], name: str) -> TransformConfiguration:
    findings, path = section.findings, section.path
    if not _TRANSFORM_NAME.fullmatch(name):
        expected = "up to 48 letters, digits, dots, hyphens, underscores"
        findings.error_at_key(path, "BAD_VALUE", f"{name!r} is not a name", expected=expected)
    if section.has("json_patch") == section.has("python"):
        message = f"[transforms.{name}] needs either json_patch or python"
        hint = 'json_patch = "fix.json", or python = "package.module:function"'
        findings.error_at_key(path, "MISSING", message, hint=hint)
    return TransformConfiguration(name, _patch(section), section.function("python"))


def _patch(section: Section[TransformTable]) -> bytes:
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


def _schemes(root: Section[SettingsFile]) -> tuple[OwnScheme, ...]:
    schemes = tuple(
        _scheme(root.inner(table, "schemes", name), name)
        for name, table in root.value.schemes.items()
    )
    assumed = [scheme.name for scheme in schemes if scheme.is_assumed]
    for name in assumed[1:]:
        message = f"{assumed[0]} already recognises every message of no other scheme"
        root.findings.error(("schemes", name, "assume"), "DUPLICATE", message)
    return schemes


def _scheme(section: Section[SchemeEntry], name: str) -> OwnScheme:
    entry = section.value
    if name in _TAKEN or not _SCHEME_NAME.fullmatch(name):
        message = f"{name!r} is the name of a known scheme" if name in _TAKEN else f"{name!r}"
        section.findings.error_at_key(
            section.path, "BAD_VALUE", message, expected="a name of letters, digits, dots, hyphens"
        )
    if section.has("recognise") == section.has("assume"):
        message = f"[schemes.{name}] needs either recognise or assume"
        hint = "recognise names a header, or a path in the value, of every such dead letter"
        section.findings.error_at_key(section.path, "MISSING", message, hint=hint)
    _check_place(section, "recognise", entry.recognise, PartPlace.parse)
    _check_place(section, "payload", entry.payload, payload_reader)
    parts = dict(_parts(entry, section.findings.document.data["schemes"][name]))
    if entry.drops_headers and not parts.keys() >= _PLACE_OF_RECORD:
        section.error(
            "drops_headers",
            "MISSING",
            "the failed record must be found, and origin does not say where it is",
            expected="origin with topic, partition and offset",
        )
    for part, place in parts.items():
        _check_place(section, part, place, partial(_read_part, part))
    return OwnScheme(
        name=name,
        recognise=entry.recognise,
        is_assumed=entry.assume is not None,
        payload=entry.payload,
        parts=parts,
        drops_headers=entry.drops_headers,
    )


def _parts(
    table: object, written: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """The places of a table that are set, by the names of the parts, in the order of the file."""
    form: Any = type(table)
    keys = keys_of(form)
    for name in filter(keys.__contains__, written):
        value = getattr(table, keys[name].attribute)
        if keys[name].is_table and isinstance(written[name], Mapping):
            yield from _parts(value, written[name], f"{name}.")
        elif isinstance(value, str) and value and name not in _NO_PARTS:
            yield f"{prefix}{name}", value


def _read_part(part: str, words: str) -> SchemePart:
    return PartPlace.parse(words).part(part)


def _check_place(
    section: Section[SchemeEntry], part: str, place: str, read: Callable[[str], Any]
) -> None:
    try:
        if place:
            read(place)
    except PlaceError as error:
        section.findings.error(
            (*section.path, *part.split(".")), "BAD_VALUE", str(error), expected=error.expected
        )


def _ledger(section: Section[LedgerSettings], directory: Path) -> LedgerConfiguration:
    table = section.value
    folder: LedgerFolder = (section.file("path") or directory / "ledger").absolute()
    if _ALMOST_URL.match(table.path):
        section.bad_value(
            "path", f"{section.written('path')!r} is not a folder or URL", expected=_STORES_TEXT
        )
    if "://" in table.path:
        _check_store(section)
        options = {key: str(getattr(table, key)) for key in _STORE if section.has(key)}
        if "allow_http" in options:
            options["allow_http"] = options["allow_http"].lower()
        folder = RemoteFolder(
            url=table.path.rstrip("/"),
            beside=directory.absolute() / "ledger-projection",
            options=options,
        )
    else:
        _warn_of_store_keys(section, "the ledger is in a folder of this machine")
    return LedgerConfiguration(enabled=table.enabled, interval=table.interval, path=folder)


def _check_store(section: Section[LedgerSettings]) -> None:
    scheme, _, rest = section.value.path.partition("://")
    if scheme not in _STORES:
        section.bad_value("path", f"{scheme} is not an object store", expected=_STORES_TEXT)
    elif not rest or (rest.startswith("/") and scheme != "hdfs"):
        message = f"{section.written('path')!r} names no bucket"
        section.bad_value("path", message, expected=f"{scheme}://BUCKET/FOLDER")
    elif "?" in rest or ("@" in rest and not scheme.startswith("abfs")):
        section.error_at_key("path", "BAD_VALUE", "path of [ledger] has credentials", hint=_SIGN_IN)
    if not scheme.startswith("s3"):
        _warn_of_store_keys(section, f"only s3 has it, not {scheme}")


def _warn_of_store_keys(section: Section[LedgerSettings], why: str) -> None:
    for key in _STORE:
        if section.has(key):
            section.without_effect(key, f"{key} of [ledger] has no effect: {why}")


def _valid(schemes: Iterable[OwnScheme]) -> Iterator[Scheme]:
    """The schemes without an invalid place, which is a finding of its own section."""
    for scheme in schemes:
        with suppress(PlaceError):
            yield scheme.scheme()


def _mask(section: Section[MaskTable], schemes: Iterable[OwnScheme]) -> Mask:
    for pattern in section.value.patterns:
        if problem := Mask.problem_with(pattern):
            section.bad_value(
                "patterns",
                f"invalid pattern {pattern!r}: {problem}",
                expected="regular expressions of RE2 that match some text",
            )
    mask = Mask(**vars(section.value))
    silent = {
        scheme.name
        for scheme in (*SCHEMES, *_valid(schemes))
        for part in scheme.parts.get("error.message", ())
        if mask.hides(part.header)
    }
    return replace(mask, silent_schemes=tuple(sorted(silent)))


_MISSING = b"missing"


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The settings file and the files it names: rules tables, definitions and patches."""

    path: Path | None
    """The settings file; None if there are only options."""
    options: Sequence[Option]
    environ: Mapping[str, str]

    @classmethod
    def of(cls, path: Path | None, options: Sequence[Option]) -> WatchedFiles:
        """The files of a job with this environment."""
        return cls(path, options, os.environ)

    def digest(self) -> bytes:
        """A digest of the content of all files."""
        digest = hashlib.blake2b(digest_size=16)
        for path in self._files():
            try:
                content = hashlib.blake2b(path.read_bytes()).digest()
            except OSError:
                content = _MISSING
            digest.update(b"%b %b;" % (os.fsencode(path), content))
        return digest.digest()

    def _files(self) -> Iterator[Path]:
        document = Document.empty()
        if self.path is not None:
            yield self.path
            # A broken file names nothing, and is the one that has to change.
            with suppress(RedriveError):
                document = Document.from_file(self.path)
        document = with_environment(document, self.environ)
        yield from _named(document.with_options("redrive run", self.options), self.environ)


def _named(document: Document, environ: Mapping[str, str]) -> Iterator[Path]:
    root = Section.whole(document, environ, FORM)
    named = [handler.file("rules") for handler in root.inners(root.value.handlers, "handlers")]
    for name, table in root.value.transforms.items():
        named.append(root.inner(table, "transforms", name).file("json_patch"))
    yield from filter(None, named)
    for index, written in enumerate(root.value.topology.files):
        path_of = partial(document.path_of, ("topology", "files", index))
        yield from (source.path for source in named_sources(written, path_of).sources)
