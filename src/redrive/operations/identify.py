"""The kinds of dead letters on a topic, from a sample, and a starter rules table for them.

Only what is known to pass is put again: a rule that retries what nobody knows would put a whole
backlog at once, to every consumer of its topics. What is on no list remains, and a comment says how
to decide.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import resources
from itertools import islice
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK, Mask
from redrive.messages import (
    NO_VALID_SCHEME,
    DeadLetterView,
    Headers,
    SchemeTable,
    TopicPartition,
    decode_dead_letter,
    read_view,
    reason_name,
    remove_header,
)
from redrive.messages.schemes.own import NUMBERS, TIMES, json_document
from redrive.messages.schemes.reading import BARE
from redrive.messages.schemes.scheme import NO_SCHEME, decimal, time
from redrive.operations.record_view import existing_topic, masked_sentence, masked_view
from redrive.operations.schema_registry import schema_of
from redrive.printable import counted
from redrive.rules import GROUP_TOPIC, group_topic

_DISTINCT: Final = 1_000
"""Maximum distinct names of one kind: there may be any number in records."""
_REST: Final = "(others)"
_LONGEST_DRAFT: Final = 40
"""Characters of a topic in the name of a draft."""
_MEMBER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNQUOTABLE: Final = re.compile(r"""['"\\\x00-\x1f]| as """)
_LONGEST_NAME: Final = 249
"""Characters of a name that are kept, as many as a topic name may have."""
_RULES: Final = 30
"""Maximum classes or reasons with their own rule."""
_NAMED: Final = 3
"""Maximum topics of a class in a comment."""
_WIDTH: Final = 70
"""Characters of a line; 72 fit everywhere."""
_REASONS: Final = range(1_000_000_000)
"""What REASON accepts."""
_OF_MQ: Final = frozenset({"mqdlh", "redrive"})
"""Schemes of dead letters whose put failed, rather than their processing."""
_DEAD_NAME: Final = "(?:dlq|dlt|dead[._-]?letters?|errors?|failed)"
_STEM: Final = re.compile(rf"(.+?)[._-]?{_DEAD_NAME}|{_DEAD_NAME}[._-](.+)", re.IGNORECASE)
"""Names of dead-letter topics, and of what failed."""
_CLASS: Final = re.compile(r"(?:.*([.$]))?([A-Za-z0-9_]{1,48})")
"""What is before the simple name of a class, and the name."""


@dataclass(frozen=True, slots=True)
class Case:
    """A topic and a reason, by which rules of IBM's language can distinguish."""

    topic: str
    """The topic that the message failed on, DESTQ; empty if unknown."""
    reason: int


@dataclass(slots=True)
class SchemeFound:
    """A scheme found in a sample."""

    name: str
    """``NO_VALID_SCHEME`` for messages that are not dead letters."""
    count: int = 0
    example: str = ""
    """``topic:partition:offset`` of one of its messages."""
    view: DeadLetterView | None = None
    problem: str = ""
    """Why the example is not a dead letter."""
    topics: Counter[str] = field(default_factory=Counter)
    """Topics that messages failed on."""
    errors: Counter[str] = field(default_factory=Counter)
    """Root classes of exceptions."""
    groups: Counter[str] = field(default_factory=Counter)
    """Consumer groups and connectors."""
    unreadable: Counter[str] = field(default_factory=Counter)
    draft: str = ""
    """Settings that would describe messages of no scheme, if they look like dead letters."""
    schema: int | None = None
    """The id of the schema of the example's body, if it begins like one of a registry."""


@dataclass(slots=True)
class Identification:
    """What a sample of a topic shows."""

    topic: str
    count: int = 0
    unnamed: int = 0
    """Those that do not name the topic where they failed."""
    schemes: dict[str, SchemeFound] = field(default_factory=dict)
    cases: dict[Case, Counter[str]] = field(default_factory=dict)
    """How often each exception was seen in each case."""

    def by_share(self) -> list[SchemeFound]:
        """The schemes, the most frequent first."""
        return sorted(self.schemes.values(), key=lambda scheme: (-scheme.count, scheme.name))


def sample(
    cluster: Cluster, topic: str, count: int
) -> tuple[Iterator[StoredRecord], Collection[TopicPartition]]:
    """The newest records of a topic, from all of its partitions.

    There may be fewer than ``count``, as transaction markers take offsets.

    Returns:
        The records, and the partitions without a leader, which are left out.

    Raises:
        EnvironmentFault: The topic does not exist.
    """
    existing_topic(cluster, topic)
    lanes, silent = cluster.led([topic])
    extents = cluster.extents(lanes)
    each = -(-count // max(1, len(extents)))
    starts = {lane: max(extent.first, extent.end - each) for lane, extent in extents.items()}
    return cluster.read(starts, {lane: extent.end for lane, extent in extents.items()}), silent


def identified(
    topic: str,
    records: Iterable[StoredRecord],
    schemes: SchemeTable,
    mask: Mask = NO_MASK,
    topics: Collection[str] = (),
) -> Identification:
    """The kinds of some records of a topic, beside all topics; no content makes this raise.

    ``cases`` have unmasked names, which a table needs.
    """
    identification, schemes = Identification(topic), schemes.at(topic)
    for record in records:
        identification.count += 1
        _count(identification, record, schemes, mask, topics)
    return identification


def _count(
    identification: Identification,
    record: StoredRecord,
    schemes: SchemeTable,
    mask: Mask,
    topics: Collection[str],
) -> None:
    profile = decode_dead_letter(record.value, record.headers, key=record.key, schemes=schemes)
    scheme = identification.schemes.setdefault(profile.scheme, SchemeFound(profile.scheme))
    scheme.count += 1
    identification.unnamed += profile.view.origin.topic is None
    if not scheme.example:
        scheme.example = record.place
        view = read_view(record.key, record.value, record.headers, schemes=schemes)
        scheme.view = masked_view(view, profile, mask)
        scheme.schema = schema_of(remove_header(profile, record.value, record.headers)[0])
        scheme.problem = masked_sentence(profile.problem, record.headers, mask)
    if profile.scheme == NO_VALID_SCHEME:
        _add(scheme.errors, profile.problem.partition(":")[0] or "no header of a known scheme")
        if not scheme.draft and scheme.count <= _DRAFTS:
            scheme.draft = drafted_scheme(
                identification.topic, record.value, record.headers, topics
            )
        return
    example = scheme.view or NO_SCHEME
    if scheme.count == 1 and example.error_class is example.error_message is None:
        # The names of some programs are those of others too, which say more.
        draft = drafted_scheme(identification.topic, None, record.headers, topics)
        scheme.draft = draft if "error." in draft else ""
    view = masked_view(profile.view, profile, mask) if mask else profile.view
    for counter, name in (
        (scheme.topics, view.origin.topic),
        (scheme.errors, view.error_root_class),
        (scheme.groups, view.connector or view.group),
    ):
        if name:
            _add(counter, name)
    reading = schemes.reading([name for name, _ in record.headers])
    for sentence in reading.unreadable(record.key, record.value, record.headers):
        _add(scheme.unreadable, sentence.partition(":")[0])
    case = Case(str(profile.fields["DESTQ"]), int(profile.fields["REASON"]))
    if case in identification.cases or len(identification.cases) < _DISTINCT:
        _add(identification.cases.setdefault(case, Counter()), profile.view.error_root_class or "")


class _Field(NamedTuple):
    """A header, or a member of a JSON value, that may say something about a failure."""

    place: str
    """As settings name it."""
    name: str
    """In lower case, with the names of the members around it, words separated by ``_``."""
    raw: bytes


class _Clue(NamedTuple):
    """What a field looks like that has a part."""

    part: str
    name: re.Pattern[str]
    raw: re.Pattern[bytes]


def _clues(*rows: tuple[str, str, bytes]) -> tuple[_Clue, ...]:
    return tuple(
        _Clue(part, re.compile(name), re.compile(raw, re.DOTALL)) for part, name, raw in rows
    )


_ERROR: Final = "(error|exception|exc|err|fault|failure|cause)"
_ORIGIN: Final = "(original|origin|source|src|failed|kafka)"
_TIME: Final = "(timestamp|time|ts|date)(_ms)?"
_ANY: Final = rb".+"
_TOPIC: Final = rb"[A-Za-z0-9._-]{1,249}"
_CLASS_NAME: Final = rb"[\w$]+((\.|::)[\w$]+)*|[\w$]+\.[\w.$]+: .*|[\w$]*(Exception|Error): .*"
_CLEAR: Final = _clues(
    ("error.root_class", r".*(root|inner|cause)_?.*(class|type|fqcn)", _ANY),
    ("error.class", rf"(.*_)?{_ERROR}_?(class|type|name|code|fqcn)(_name)?", _ANY),
    ("error.class", r".*(error|exception)_?(class|type|name|code)", _ANY),
    ("error.class", rf"(.*_)?{_ERROR}", _CLASS_NAME),
    ("error.message", rf"(.*_)?{_ERROR}_?(message|msg|reason|text|description)", _ANY),
    ("error.message", r".*(error|exception)_?(info_)?(message|data)", _ANY),
    ("error.message", rf"(.*_)?{_ERROR}", rb".*\s.*"),
    ("error.stack", r".*(stack(_?trace)?|trace_?back|back_?trace)", _ANY),
    ("origin.topic", rf"(.*_)?{_ORIGIN}_?topic(_name)?", _TOPIC),
    ("origin.topic", r"(.*_)?(topic(_name)?|failed_q(ueue)?)", _TOPIC),
    ("origin.partition", r".*partition(_id)?|(.*_)?part", _ANY),
    ("origin.offset", r".*offset|(.*_)?off", _ANY),
    (
        "failed_at",
        rf"(.*_)?({_ERROR}|failed|dead_?lettered|dlq|exhausted|processing)_?{_TIME}",
        _ANY,
    ),
    ("failed_at", r"(.*_)?(failed|dead_?lettered|exhausted)_?(at|on)(_utc)?", _ANY),
    ("origin.timestamp", rf"(.*_)?({_ORIGIN}|sent)_?(topic_)?(publish_)?{_TIME}", _ANY),
    ("group", r"(.*_)?(consumer_?)?group(_?id)?|.*subscription", _ANY),
    ("attempts", r".*(retry|delivery|receive|invoke|attempt)_?(attempt|count|number)", _ANY),
    ("attempts", r"(.*_)?(attempts?|retries|retry|tries|try)", _ANY),
)
"""What programs name each part, the clearest first."""
_VAGUE: Final = _clues(
    ("error.class", ".*", rb"[\w.$:]*(Exception|Error|Timeout|[Ff]ailure)(: .*)?"),
    ("error.message", r"(.*_)?(reason|details?)", _ANY),
    ("failed_at", "timestamp", _ANY),
)
"""What means a part only beside other fields that say that something failed."""
_DEAD: Final = re.compile(r".*(dead_?letter|dlq|poison|corrupt_?record).*")
"""Names that no healthy message has."""
_EVIDENCE: Final = frozenset(
    {"error.class", "error.message", "error.stack", "origin.topic", "attempts", "failed_at"}
)
"""Two of these make a JSON value an envelope: one alone may be a message's own."""
_LEAST_TIME: Final = 10**12
"""Milliseconds since 1970: anything less is no time of a failure."""
_PAYLOADS: Final = (
    *("payload", "original_payload", "request_payload", "original_message", "raw_record", "record"),
    *("body", "value", "data", "event", "original", "corrupt_record", "message"),
)
"""Names of members with the message itself, the clearest first."""
_CLOUD_EVENT: Final = "specversion"
"""A member of each CloudEvent, which is the message as a whole."""
_DEPTH: Final = 3
_MEMBERS: Final = 200
_DRAFTS: Final = 100
"""Messages of no scheme that are looked at until one gives a draft."""


def drafted_scheme(
    topic: str, value: bytes | None, headers: Headers, topics: Collection[str] = ()
) -> str:
    """A table ``[schemes.NAME]`` for a message of no scheme, from the names that it has.

    Args:
        topic: The dead-letter topic.
        value: The value of the message.
        headers: Its headers.
        topics: Topics of the cluster; a field that names one may be the origin.

    Returns:
        TOML; empty if nothing in the message looks like an error with its origin.
    """
    beside = [
        _Field(name, _words(name), raw)
        for name, raw in headers
        if raw and not name.startswith(("redrive.", "$")) and " as " not in name
    ]
    settings = _places(beside, topics)
    if not settings:
        document = json_document(value or b"")
        members = _payload_members(document)
        payload = _named_payload(members)
        inside = [
            member
            for member in islice(_members(document, "$", ""), _MEMBERS)
            if not payload or not f"{member.place}.".startswith((f"{payload}.", f"{payload}["))
        ]
        settings = _places([*inside, *beside], topics)
        if payload.endswith("corrupt_record"):
            settings = {"recognise": payload, **settings}
        elif len(settings.keys() & _EVIDENCE) < 2:  # noqa: PLR2004 - see there
            return ""
        payload = payload or _only_object(members, settings.values())
        if payload and settings["recognise"].startswith("$"):
            settings["payload"] = payload + _encoding(members[payload])
    name = re.sub(r"[^A-Za-z0-9-]", "-", topic).strip("-")[:_LONGEST_DRAFT] or "mine"
    lines = (f"{key} = {_quoted(place)}" for key, place in settings.items())
    return "\n".join([f"[schemes.own-{name}]", *lines])


def _places(fields: Sequence[_Field], topics: Collection[str]) -> dict[str, str]:
    """The place of each part, and of what recognises the scheme; empty if nothing does."""
    known = {topic.encode() for topic in topics}
    places: dict[str, str] = {}
    _add_places(places, _CLEAR, fields)
    dead = next((field for field in fields if _DEAD.fullmatch(field.name)), None)
    leading = places.get("error.class") or places.get("error.message")
    if not leading and "origin.offset" in places:
        leading = places.get("origin.topic")
    _add_places(places, _VAGUE, fields)
    if dead is not None and not leading and dead.place not in places.values():
        places.setdefault("error.message", dead.place)
    leading = leading or (dead.place if dead else places.get("error.class"))
    if not leading:
        return {}
    if places.get("error.class", "").endswith(" as class"):
        places.setdefault("error.message", places["error.class"].removesuffix(" as class"))
    by_name = (field.place for field in fields if field.raw in known)
    if topic := next(by_name, ""):
        places.setdefault("origin.topic", topic)
    return {"recognise": leading.removesuffix(" as class"), **places}


def _add_places(places: dict[str, str], clues: Iterable[_Clue], fields: Sequence[_Field]) -> None:
    for part, name, raw in clues:
        named = (
            _place(part, candidate)
            for candidate in fields
            if candidate.place not in places.values()
            and name.fullmatch(candidate.name)
            and raw.fullmatch(candidate.raw)
        )
        if part not in places and (place := next(filter(None, named), "")):
            places[part] = place


def _words(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_").removesuffix("_string_value")


def _members(value: object, path: str, name: str, depth: int = 0) -> Iterator[_Field]:
    """The leaves of a JSON value; of a list the first text."""
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            if not _UNQUOTABLE.search(key):
                yield from _members(inner, _path(path, key), f"{name}_{key}", depth + 1)
    elif isinstance(value, list) and value and isinstance(value[0], str):
        yield from _members(value[0], f"{path}[0]", name, depth)
    elif name and isinstance(value, str | int | float) and value != "":
        raw = value.encode() if isinstance(value, str) else orjson.dumps(value)
        yield _Field(path, _words(name), raw)


def _path(path: str, key: str) -> str:
    return f"{path}.{key}" if _MEMBER.fullmatch(key) else f"{path}['{key}']"


def _payload_members(document: object) -> dict[str, object]:
    """The members of an envelope by their paths, one of which may be the message itself."""
    if not isinstance(document, dict) or _CLOUD_EVENT in document:
        return {}
    return {
        _path("$", key): inner for key, inner in document.items() if not _UNQUOTABLE.search(key)
    }


def _named_payload(members: Mapping[str, object]) -> str:
    """The path of a member that is the message itself, by its name; empty if there is none."""
    paths = {_words(path): path for path in members}
    path = next((paths[name] for name in _PAYLOADS if name in paths), "")
    is_text = path == "$.message" and not str(members[path]).startswith(("{", "["))
    return "" if is_text else path


def _only_object(members: Mapping[str, object], places: Collection[str]) -> str:
    """The path of the only object that has none of the places; empty if there are more."""
    objects = [
        path
        for path, inner in members.items()
        if isinstance(inner, dict) and not any(place.startswith(f"{path}.") for place in places)
    ]
    return objects[0] if len(objects) == 1 else ""


def _encoding(payload: object) -> str:
    """How a payload is encoded: " as base64", or empty."""
    try:
        start = b64decode(payload, validate=True)[:1] if isinstance(payload, str) else b""
    except ValueError:
        return ""
    return " as base64" if start and start in b'{["<\0' else ""


def _place(part: str, field: _Field) -> str:
    """The place of a part with its encoding; empty if the bytes are none of it."""
    if part == "error.class" and b": " in field.raw:
        return f"{field.place} as class"
    if part in TIMES:
        moment = time(field.raw)
        return field.place if isinstance(moment, int) and moment >= _LEAST_TIME else ""
    if part not in NUMBERS or decimal(field.raw) is not None:
        return field.place
    binary = {4: "int32be", 8: "int64be"}.get(len(field.raw))
    return f"{field.place} as {binary}" if binary and not field.place.startswith("$") else ""


def _add(counter: Counter[str], name: str) -> None:
    name = name[:_LONGEST_NAME]
    counter[name if name in counter or len(counter) < _DISTINCT else _REST] += 1


class Outlook(Enum):
    """Whether a failure passes by itself."""

    PASSES = "passes"
    STAYS = "stays"
    UNKNOWN = "unknown"


def _names_of_exceptions() -> Iterator[frozenset[str]]:
    text = resources.files("redrive.operations").joinpath("exceptions.txt").read_text("ascii")
    for section in re.sub(r"(?m)^#.*\n", "", text).strip().split("\n\n"):
        yield frozenset(section.split()[1:])


PASSING, STAYING = _names_of_exceptions()
"""Names of exceptions that pass, and of those that fail again."""

_PASSING_REASONS: Final = frozenset(
    {"MQRC_Q_FULL", "MQRC_PUT_INHIBITED", "MQRC_Q_MGR_NOT_AVAILABLE", "MQRC_NOT_AUTHORIZED"}
)
_STAYING_REASONS: Final = frozenset({"MQRC_FORMAT_ERROR", "MQRC_MSG_TOO_BIG_FOR_Q"})
_STAYS: Final = "It would fail again: it remains until someone looks at it."
_ROUNDS: Final = (
    "It may pass: up to 5 rounds, 30, 60, 120, 240 and 480 seconds after each failure (up to a"
    " fifth less), then it remains."
)
_ATTEMPTS: Final = "It may pass: up to 30 attempts, 60 seconds apart, then it remains."
_UNDECIDED: Final = "No list says whether it passes: it remains. If trying again helps, write:"
_KEEP: Final = "ACTION(IGNORE)"


def stem_of(topic: str) -> str:
    """What a dead-letter topic is for, by its name: ``orders`` of ``orders.dlq``."""
    stem = _STEM.fullmatch(topic)
    return topic if stem is None else stem[1] or stem[2]


def first_settings(
    application: str,
    servers: str,
    rules: Mapping[str, Path],
    origins: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Settings of a job, with a handler for each topic and its file of rules.

    ``origins`` are lines about the origin of dead letters, by topic.
    """
    handlers = "".join(
        f"\n[[handlers]]\nqueue = {_quoted(topic)}\nrules = {_quoted(str(file))}\n"
        + origins.get(topic, "")
        for topic, file in rules.items()
    )
    return (
        f"[application]\nname = {_quoted(application)}\n\n"
        f"[kafka]\nbootstrap_servers = {_quoted(servers)}\n{handlers}"
    )


def commented_drafts(identification: Identification) -> str:
    """The drafts of schemes for what was found, each with a comment; empty if there are none."""
    return "".join(
        f"\n# Guessed from {scheme.example}; redrive identify {scheme.example} shows what it makes"
        f" of it.\n{scheme.draft}\n"
        for scheme in identification.by_share()
        if scheme.draft
    )


def commented_origin(identification: Identification, topics: Collection[str]) -> str:
    """The origin of messages that name none, guessed from existing topics; empty for no guess."""
    origin = stem_of(identification.topic)
    if not identification.unnamed or origin == identification.topic or origin not in topics:
        return ""
    return (
        f"# Guessed from the name of the queue: {counted(identification.unnamed, 'message')}"
        f" without a topic.\norigin_topic = {_quoted(origin)}\n"
    )


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def outlook_of(
    error: str, passing: Collection[str] = PASSING, staying: Collection[str] = STAYING
) -> Outlook:
    """Whether failures with an exception pass, by the name of its class, or its simple name."""
    match = _CLASS.fullmatch(error)
    known = {*passing, *staying}
    name = error if error in known or match is None else match[2]
    if name not in known:
        return Outlook.UNKNOWN
    return Outlook.PASSES if name in passing else Outlook.STAYS


def first_table(identification: Identification) -> str:
    """A rules table without errors for what was found; comments say why each rule is there.

    Every rule either retries or keeps; nothing is discarded.
    """
    return "\n".join(_lines(identification)) + "\n"


def _lines(identification: Identification) -> Iterator[str]:
    yield from _comment(
        f"Starter table for {identification.topic}, from {identification.count} of its messages:"
    )
    for scheme in identification.by_share():
        share = round(100 * scheme.count / max(1, identification.count))
        yield from _comment(f"{share} % {scheme.name}, such as {scheme.example}")
    yield ""
    names = {scheme.name for scheme in identification.by_share()}
    if names & _OF_MQ and not names - _OF_MQ - {"none"}:
        yield from _mq_rules(identification)
    else:
        yield from _kafka_rules(identification)
    yield ""
    yield from _comment("All others remain: nobody knows whether they pass.")
    yield _KEEP
    if "none" in names:
        yield ""
        yield from _comment(
            "No rule applies to messages of no scheme: they remain until [schemes.NAME] in the"
            " settings describes them. redrive identify drafts it."
        )
    yield from _about_groups(identification)


def _mq_rules(identification: Identification) -> Iterator[str]:
    """Rules for dead letters whose put failed: an attempt is a put."""
    yield "* The first attempt is at once, each further one a minute later."
    yield "RETRYINT(60) WAIT(YES)"
    queues: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for case, errors in identification.cases.items():
        if case.reason in _REASONS:
            queues[case.reason][case.topic] += errors.total()
    for reason in sorted(queues, key=lambda reason: -queues[reason].total())[:_RULES]:
        name = reason_name(reason)
        pattern = f"REASON({name if name.startswith('MQRC_') else reason})"
        outlook = outlook_of(name, _PASSING_REASONS, _STAYING_REASONS)
        retry = (f"{pattern} ACTION(RETRY) RETRY(30)",)
        yield from _rule(_about(name, queues[reason]), outlook, pattern, retry, _ATTEMPTS)


def _kafka_rules(identification: Identification) -> Iterator[str]:
    """Rules for dead letters whose processing failed: an attempt is put and processing."""
    yield "* A round is put and processing. Its delay counts from the failure, or"
    yield "* from when the job first sees it if the message does not say when."
    yield "DIALECT(KAFKA) RETRYINT(60) WAIT(YES)"
    classes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case, errors in identification.cases.items():
        for name, count in errors.items():
            classes[name][case.topic] += count
    # Classes of one simple name share a rule, so that a message has the rounds of one only.
    patterns: dict[str, tuple[str, Counter[str]]] = {}
    # What is known by its whole name comes first: another rule may match its simple name.
    for name in sorted(classes, key=lambda name: (name not in STAYING, -classes[name].total())):
        patterns.setdefault(_pattern(name), (name, Counter()))[1].update(classes[name])
    unnamed = f"SCHEME({BARE.name})" if BARE.name in identification.schemes else "ERRMSG(...)"
    for pattern, (name, topics) in islice(patterns.items(), _RULES):
        about = _about(name or "no class is named", topics)
        retry = (f"TOPIC(?*) {pattern or unnamed} +", "ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)")
        yield from _rule(about, outlook_of(name), pattern, retry, _ROUNDS)


def _rule(
    about: str, outlook: Outlook, pattern: str, retry: Iterable[str], passes: str
) -> Iterator[str]:
    """The rule for some messages, or the comment with the rule that would retry them."""
    yield ""
    if outlook is Outlook.PASSES:
        yield from (*_comment(f"{about} {passes}"), *retry)
    elif outlook is Outlook.STAYS:
        yield from (*_comment(f"{about} {_STAYS}"), f"{pattern} {_KEEP}")
    else:
        yield from (*_comment(f"{about} {_UNDECIDED}"), *(f"*   {line}" for line in retry))


def _pattern(error: str) -> str:
    """The pattern of a class; empty if there is none that fits into a line."""
    name = _CLASS.fullmatch(error)
    if name is None:
        return ""
    is_whole = not name[1] or error in STAYING
    return f"ROOTCLASS('{error}')" if is_whole else f"ROOTCLASS('*{name[1]}{name[2]}')"


def _about(name: str, topics: Counter[str]) -> str:
    """How many messages failed in one way, and on which topics."""
    named = [topic for topic, _ in topics.most_common(_NAMED) if topic]
    more = ", ..." if len(topics) > _NAMED else ""
    where = f" of {', '.join(named)}{more}" if named else ""
    return f"{counted(topics.total(), 'message')}{where}: {name}."


def _about_groups(identification: Identification) -> Iterator[str]:
    """The comment that offers TO(GROUP), if dead letters name a group.

    No rule uses it, because nobody would read the group's topic until the group subscribes to it.
    """
    views = (scheme.view for scheme in identification.by_share() if scheme.view is not None)
    view = next((view for view in views if view.consumer_group and view.origin.topic), None)
    if view is not None:
        group = view.consumer_group
        name = group_topic(GROUP_TOPIC, topic=view.origin.topic or "", group=group)
        yield ""
        yield from _comment(
            "Every consumer of the topic sees a round. To send it only to the group that failed,"
            f" have that group read a topic such as {name} too, and write"
            " ACTION(RETRY) TO(GROUP)."
        )


def _comment(text: str) -> list[str]:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    lines = wrap(printable, _WIDTH - 2) or [""]
    return [f"* {line}" for line in lines]
