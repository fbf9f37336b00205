"""The kinds of dead letters on a topic, from a sample, and a starter rules table for them.

Only what is known to pass is put again: a rule that retries what nobody knows would put a whole
backlog at once, to every consumer of its topics. What is on no list remains, and a comment says how
to decide.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from textwrap import wrap
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
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.schemes.reading import BARE
from redrive.messages.schemes.scheme import decimal, time
from redrive.operations.record_view import existing_topic, masked_sentence, masked_view
from redrive.printable import counted
from redrive.rules import GROUP_TOPIC, group_topic

_DISTINCT: Final = 1_000
"""Maximum distinct names of one kind: there may be any number in records."""
_REST: Final = "(others)"
_LONGEST_DRAFT: Final = 40
"""Characters of a topic in the name of a draft."""
_MEMBER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    """Fields that cannot be read."""
    draft: str = ""
    """Settings that would describe messages of no scheme, if they look like dead letters."""


@dataclass(slots=True)
class Identification:
    """What a sample of a topic shows."""

    topic: str
    count: int = 0
    """Messages in the sample."""
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
    topic: str, records: Iterable[StoredRecord], schemes: SchemeTable, mask: Mask = NO_MASK
) -> Identification:
    """The kinds of some records of a topic; no content makes this raise.

    ``cases`` have unmasked names, which a table needs.
    """
    identification, schemes = Identification(topic), schemes.at(topic)
    for record in records:
        identification.count += 1
        _count(identification, record, schemes, mask)
    return identification


def _count(
    identification: Identification, record: StoredRecord, schemes: SchemeTable, mask: Mask
) -> None:
    profile = decode_dead_letter(record.value, record.headers, key=record.key, schemes=schemes)
    scheme = identification.schemes.setdefault(profile.scheme, SchemeFound(profile.scheme))
    scheme.count += 1
    identification.unnamed += profile.view.origin.topic is None
    if not scheme.example:
        scheme.example = own.identity(*record.lane, record.offset)
        view = read_view(record.key, record.value, record.headers, schemes=schemes)
        scheme.view = masked_view(view, profile, mask)
        scheme.problem = masked_sentence(profile.problem, record.headers, mask)
    if profile.scheme == NO_VALID_SCHEME:
        _add(scheme.errors, profile.problem.partition(":")[0] or "no header of a known scheme")
        scheme.draft = scheme.draft or drafted_scheme(
            identification.topic, record.value, record.headers
        )
        return
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
    """Lower case, words separated by ``_``."""
    raw: bytes
    is_header: bool


_DRAFTED: Final[Mapping[str, re.Pattern[str]]] = {
    part: re.compile(pattern)
    for part, pattern in (
        ("error.class", r"(error|exception)(_?(class|type|name|fqcn)(_name)?)?"),
        (
            "error.message",
            r"(error|exception|failure)_?(message|msg|reason|text|description)|reason",
        ),
        ("error.stack", r".*(stack_?trace|traceback|stack)"),
        ("origin.topic", r"((original|origin|source|failed|src|from)_?)?topic(_name)?"),
        ("origin.partition", r"((original|origin|source|failed|src|from)_?)?partition(_id)?"),
        ("origin.offset", r"((original|origin|source|failed|src|from)_?)?offset"),
        ("origin.timestamp", r"(original|origin|source|src)_?(timestamp|time)"),
        ("group", r"(consumer_?)?group(_?id)?"),
        ("attempts", r"(retry_?)?(attempts?|count|tries|retries)|delivery_count"),
        ("failed_at", r"failed_?at|(failure|error)_?(time|timestamp)|dead_?lettered_?at"),
    )
}
"""Names that programs use for each part; a prefix such as ``x_`` is left out."""
_PAYLOADS: Final = ("payload", "value", "body", "data", "original")
_DEPTH: Final = 3
_MEMBERS: Final = 200


def drafted_scheme(topic: str, value: bytes | None, headers: Headers) -> str:
    """A table ``[schemes.NAME]`` for a message of no scheme, from the names that it has.

    Returns:
        TOML; empty if nothing in the message looks like an error with its origin.
    """
    fields = [
        _Field(name, _words(name), raw, is_header=True)
        for name, raw in headers
        if raw is not None and not name.startswith(("redrive.", "$")) and " as " not in name
    ]
    document = _document(value)
    fields += islice(_members(document, "$", ""), _MEMBERS)
    places: dict[str, str] = {}
    for part, pattern in _DRAFTED.items():
        named = (candidate for candidate in fields if pattern.fullmatch(candidate.name))
        place = next(filter(None, (_place(part, candidate) for candidate in named)), "")
        if place:
            places[part] = place
    leading = next(
        (
            places[part_name]
            for part_name in ("error.class", "error.message")
            if part_name in places
        ),
        "",
    )
    if not leading and not {"origin.topic", "origin.offset"} <= places.keys():
        return ""
    recognise = (leading or places["origin.topic"]).partition(" as ")[0]
    settings = {"recognise": recognise}
    if recognise.startswith("$") and isinstance(document, dict):
        payload = next((name for name in _PAYLOADS if name in document), "")
        settings |= {"payload": f"$.{payload}"} if payload else {}
    name = re.sub(r"[^A-Za-z0-9-]", "-", topic).strip("-")[:_LONGEST_DRAFT] or "mine"
    lines = (
        f"{key} = {orjson.dumps(place).decode()}" for key, place in (settings | places).items()
    )
    return "\n".join([f"[schemes.own-{name}]", *lines])


def _words(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).removeprefix("x_").strip("_")


def _document(value: bytes | None) -> object:
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None


def _members(value: object, path: str, name: str, depth: int = 0) -> Iterator[_Field]:
    """The leaves of a JSON value, by their own name and by that with the member around it."""
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            if _MEMBER.fullmatch(key):
                yield from _members(inner, f"{path}.{key}", f"{name}_{key}", depth + 1)
    elif name and isinstance(value, str | int | float):
        raw = value.encode() if isinstance(value, str) else orjson.dumps(value)
        members = name.split("_")
        for last in (2, 1):
            yield _Field(path, _words("_".join(members[-last:])), raw, is_header=False)


def _place(part: str, candidate: _Field) -> str:
    """The place of a part with its encoding; empty if the bytes are none of it."""
    if part in {"error.class", "group", "error.message", "error.stack", "origin.topic"}:
        is_sentence = part == "error.class" and b":" in candidate.raw
        return f"{candidate.place} as class" if is_sentence else candidate.place
    read = time if part in {"failed_at", "origin.timestamp"} else decimal
    if read(candidate.raw) is not None:
        return candidate.place
    binary = {4: "int32be", 8: "int64be"}.get(len(candidate.raw)) if candidate.is_header else None
    return f"{candidate.place} as {binary}" if binary else ""


def _add(counter: Counter[str], name: str) -> None:
    name = name[:_LONGEST_NAME]
    counter[name if name in counter or len(counter) < _DISTINCT else _REST] += 1


class Outlook(Enum):
    """Whether a failure passes by itself."""

    PASSES = "passes"
    STAYS = "stays"
    UNKNOWN = "unknown"


_PASSING_NAMES: Final = (
    # Network and time-outs in Java
    "SocketTimeoutException ConnectException NoRouteToHostException UnknownHostException"
    " SocketException HttpTimeoutException HttpConnectTimeoutException ConnectTimeoutException"
    " ReadTimeoutException WriteTimeoutException TimeoutException ClosedChannelException"
    " ConnectionClosedException NoHttpResponseException HttpHostConnectException"
    " ResourceAccessException RetryableException RetriableException DisconnectException"
    " NetworkException NotLeaderOrFollowerException CoordinatorNotAvailableException"
    " CoordinatorLoadInProgressException NotEnoughReplicasException"
    # Data bases and locks in Java
    " SQLTransientException SQLTransientConnectionException SQLTimeoutException"
    " SQLRecoverableException CannotGetJdbcConnectionException QueryTimeoutException"
    " TransientDataAccessResourceException DeadlockLoserDataAccessException"
    " CannotAcquireLockException PessimisticLockingFailureException"
    " OptimisticLockingFailureException ObjectOptimisticLockingFailureException"
    " OptimisticLockException PessimisticLockException LockTimeoutException"
    " LockAcquisitionException MongoTimeoutException MongoSocketReadTimeoutException"
    # Quota and guards in Java
    " ThrottlingQuotaExceededException ProvisionedThroughputExceededException"
    " TooManyRequestsException ThrottlingException ServiceUnavailableException ServiceUnavailable"
    " RejectedExecutionException CallNotPermittedException BulkheadFullException"
    " RequestNotPermitted"
    # Python
    " TimeoutError ConnectionError ConnectionRefusedError ConnectionResetError"
    " ConnectionAbortedError BrokenPipeError timeout gaierror ReadTimeout ConnectTimeout"
    " ConnectTimeoutError ReadTimeoutError ConnectionTimeout ServerDisconnectedError"
    " EndpointConnectionError KafkaTimeoutError OperationalError SerializationFailure"
    " DeadlockDetected LockNotAvailable TooManyRequests"
    # .NET, besides what Java has under the same name
    " HttpRequestException DbUpdateConcurrencyException BrokerUnreachableException"
    " TimeoutRejectedException BrokenCircuitException"
    # Go
    " OpError DNSError DeadlineExceeded deadlineExceededError ErrDeadlineExceeded"
    # Node
    " ECONNREFUSED ECONNRESET ETIMEDOUT ESOCKETTIMEDOUT EAI_AGAIN EPIPE ENOTFOUND EHOSTUNREACH"
    " HeadersTimeoutError BodyTimeoutError MongoNetworkError MongoNetworkTimeoutError"
    " SequelizeConnectionError SequelizeTimeoutError"
)
PASSING: Final = frozenset(_PASSING_NAMES.split())
"""Simple names of exceptions that pass: network, time-outs, locks, quota."""

_STAYING_NAMES: Final = (
    # Java
    "DeserializationException SerializationException RecordDeserializationException DataException"
    " JsonParseException JsonMappingException JsonProcessingException MismatchedInputException"
    " InvalidFormatException UnrecognizedPropertyException MessageConversionException"
    " MethodArgumentNotValidException ConstraintViolationException ValidationException"
    " IllegalArgumentException NumberFormatException DateTimeParseException NullPointerException"
    " ClassCastException ArrayIndexOutOfBoundsException IndexOutOfBoundsException"
    " StringIndexOutOfBoundsException ArithmeticException UnsupportedOperationException"
    " DataIntegrityViolationException DuplicateKeyException BadSqlGrammarException"
    " SQLIntegrityConstraintViolationException SQLSyntaxErrorException SQLDataException"
    " RecordTooLargeException AvroTypeException AvroRuntimeException SchemaParseException"
    " InvalidProtocolBufferException NoSuchMethodError NoClassDefFoundError"
    # Python
    " ValueError KeyError TypeError AttributeError IndexError NameError ZeroDivisionError"
    " UnicodeDecodeError JSONDecodeError ValidationError DecodeError IntegrityError DataError"
    " AssertionError NotImplementedError ProgrammingError"
    # .NET
    " NullReferenceException ArgumentException ArgumentNullException ArgumentOutOfRangeException"
    " FormatException JsonException JsonSerializationException JsonReaderException"
    " InvalidCastException KeyNotFoundException OverflowException IndexOutOfRangeException"
    " DivideByZeroException NotSupportedException"
    # Go
    " SyntaxError UnmarshalTypeError InvalidUnmarshalError NumError boundsError plainError"
    # Node
    " RangeError ReferenceError ZodError"
)
STAYING: Final = frozenset(_STAYING_NAMES.split())
"""Simple names of exceptions that fail again: deserialisation, validation, mistakes of programs."""

_PASSING_REASONS: Final = frozenset(
    filter(
        None,
        map(
            constant_value,
            (
                "MQRC_Q_FULL",
                "MQRC_PUT_INHIBITED",
                "MQRC_Q_MGR_NOT_AVAILABLE",
                "MQRC_NOT_AUTHORIZED",
            ),
        ),
    )
)
_STAYING_REASONS: Final = frozenset(
    filter(None, map(constant_value, ("MQRC_FORMAT_ERROR", "MQRC_MSG_TOO_BIG_FOR_Q")))
)
_STAYS: Final = "It would fail again: it remains until someone looks at it."
_ROUNDS: Final = (
    "It may pass: up to 5 rounds, 30, 60, 120, 240 and 480 seconds after each failure (up to a"
    " fifth less), then it remains."
)
_RETRY_ROUNDS: Final = "ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)"
_ATTEMPTS: Final = "It may pass: up to 30 attempts, 60 seconds apart, then it remains."
_RETRY_ATTEMPTS: Final = "ACTION(RETRY) RETRY(30)"
_KEEP: Final = "ACTION(IGNORE)"


def outlook_of(error: str) -> Outlook:
    """Whether failures with an exception pass, by the simple name of its class."""
    simple = _CLASS.fullmatch(error)
    if simple is not None and simple[2] in PASSING:
        return Outlook.PASSES
    is_known = simple is not None and simple[2] in STAYING
    return Outlook.STAYS if is_known else Outlook.UNKNOWN


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
    messages: Counter[int] = Counter()
    queues: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for case, errors in identification.cases.items():
        if case.reason in _REASONS:
            messages[case.reason] += errors.total()
            queues[case.reason][case.topic] += errors.total()
    for reason, count in messages.most_common(_RULES):
        name = reason_name(reason)
        yield ""
        about = f"{counted(count, 'message')}{_of(queues[reason])}: {name}."
        pattern = f"REASON({name if name.startswith('MQRC_') else reason})"
        if reason in _PASSING_REASONS:
            yield from _comment(f"{about} {_ATTEMPTS}")
            yield f"{pattern} {_RETRY_ATTEMPTS}"
        elif reason in _STAYING_REASONS:
            yield from _comment(f"{about} {_STAYS}")
            yield f"{pattern} {_KEEP}"
        else:
            yield from _undecided(about, f"{pattern} {_RETRY_ATTEMPTS}")


def _kafka_rules(identification: Identification) -> Iterator[str]:
    """Rules for dead letters whose processing failed: an attempt is put and processing."""
    yield "* A round is put and processing. Its delay counts from the failure, or"
    yield "* from when the job first sees it if the message does not say when."
    yield "DIALECT(KAFKA) RETRYINT(60) WAIT(YES)"
    messages: Counter[str] = Counter()
    topics: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case, errors in identification.cases.items():
        for name, count in errors.items():
            messages[name] += count
            topics[name][case.topic] += count
    # Classes of one simple name share a rule, so that a message has the rounds of one only.
    patterns: dict[str, list[str]] = {}
    for name, _ in messages.most_common():
        patterns.setdefault(_pattern(name), []).append(name)
    for pattern, names in list(patterns.items())[:_RULES]:
        count = sum(messages[name] for name in names)
        where: Counter[str] = sum((topics[name] for name in names), Counter())
        yield ""
        about = f"{counted(count, 'message')}{_of(where)}: {names[0] or 'no class is named'}."
        outlook = outlook_of(names[0]) if pattern else Outlook.UNKNOWN
        if outlook is Outlook.PASSES:
            yield from _comment(f"{about} {_ROUNDS}")
            yield f"TOPIC(?*) {pattern} +"
            yield _RETRY_ROUNDS
        elif outlook is Outlook.STAYS:
            yield from _comment(f"{about} {_STAYS}")
            yield f"{pattern} {_KEEP}"
        else:
            is_bare = BARE.name in identification.schemes
            unnamed = f"SCHEME({BARE.name})" if is_bare else "ERRMSG(...)"
            yield from _undecided(about, f"TOPIC(?*) {pattern or unnamed} +", _RETRY_ROUNDS)


def _undecided(about: str, *rule: str) -> Iterator[str]:
    """The comment about messages that no list knows, with the rule that would retry them."""
    yield from _comment(
        f"{about} No list says whether it passes: it remains. If trying again helps, write:"
    )
    yield from (f"*   {line}" for line in rule)


def _pattern(error: str) -> str:
    """The pattern of a class; empty if there is none that fits into a line."""
    name = _CLASS.fullmatch(error)
    if name is None:
        return ""
    return f"ROOTCLASS('*{name[1]}{name[2]}')" if name[1] else f"ROOTCLASS('{name[2]}')"


def _of(topics: Counter[str]) -> str:
    names = [name for name, _ in topics.most_common(_NAMED) if name]
    more = ", ..." if len(topics) > _NAMED else ""
    return f" of {', '.join(names)}{more}" if names else ""


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
