"""A starter rules table, made from the messages of a topic.

Only what is known to pass is put again: a rule that retries what nobody knows would put a whole
backlog at once, to every consumer of its topics. What is on no list remains, and a comment says how
to decide.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import Enum
from textwrap import wrap
from typing import Final

from redrive.messages import reason_name
from redrive.messages.constants import constant_value
from redrive.operations.identify import Identification
from redrive.printable import counted
from redrive.rules import GROUP_TOPIC, group_topic

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
_REST: Final = "ACTION(IGNORE)"


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
    yield _REST
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
            yield f"{pattern} {_REST}"
        else:
            yield from _undecided(about, f"{pattern} {_RETRY_ATTEMPTS}")


def _kafka_rules(identification: Identification) -> Iterator[str]:
    """Rules for dead letters whose processing failed: an attempt is put and processing."""
    yield "* A round is put and processing. Its delay counts from the failure:"
    yield "* what failed long ago is due at once."
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
            yield f"{pattern} {_REST}"
        else:
            yield from _undecided(about, f"TOPIC(?*) {pattern or 'ERRMSG(...)'} +", _RETRY_ROUNDS)


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
