"""Control data and rules as values, with defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from redrive.messages.schemes import consumer_group
from redrive.rules.backoff import Backoff
from redrive.rules.keywords import NAME_LENGTH, TOPIC_LENGTH, Dialect
from redrive.rules.patterns import FieldValue, NumberPattern, Pattern, StringPattern

DEFAULT_RETRY_INTERVAL: Final = 60

_BLANK: Final = " "
""""No name" in a table: INPUTQ(' '), FWDQM(' ')."""


class Action(StrEnum):
    """What a rule does with a message."""

    DISCARD = "DISCARD"
    """Delete it."""
    IGNORE = "IGNORE"
    """Leave it where it is; later rules are not reached."""
    RETRY = "RETRY"
    """Put it to its original destination, without the dead-letter header."""
    FWD = "FWD"
    """Put it to FWDQ on FWDQM, or in DIALECT(KAFKA) to FWDT."""
    QUARANTINE = "QUARANTINE"
    """DIALECT(KAFKA): keep it under any table, until an operator places it."""

    @property
    def can_fail(self) -> bool:
        """Whether it puts the message, which can be refused."""
        return self in {Action.RETRY, Action.FWD}

    @property
    def keeps(self) -> bool:
        """Whether it leaves the message, so that later rules are not reached."""
        return self in {Action.IGNORE, Action.QUARANTINE}


class RetryTo(StrEnum):
    """Where RETRY puts a message (TO, in DIALECT(KAFKA))."""

    TOPIC = "TOPIC"
    """To its original destination, where every consumer group sees it again."""
    GROUP = "GROUP"
    """To the topic of the consumer group that failed."""


class Authority(StrEnum):
    """Whose authority the put is made with (PUTAUT)."""

    DEF = "DEF"
    """The handler's own."""
    CTX = "CTX"
    """The user identifier's in the message's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control data of a table."""

    input_queue: str = ""
    """The dead-letter queue; empty for that of the queue manager."""
    input_queue_manager: str = ""
    """The queue manager; empty for the default one."""
    written_interval: int = DEFAULT_RETRY_INTERVAL
    """RETRYINT as written, in seconds; 0 is legal there."""
    wait: str | int = "YES"
    """``YES``, ``NO``, or seconds."""
    dialect: Dialect = Dialect.IBM
    is_ordered: bool = False
    """ORDER(KEY): whether messages of one key are placed in order of arrival."""

    @property
    def retry_interval(self) -> int:
        """Seconds between attempts. RETRYINT(0) counts as 1 second."""
        return max(1, self.written_interval)

    @property
    def seconds_to_wait(self) -> int | None:
        """Seconds to wait for new work before ending; None for no limit. WAIT(0) is WAIT(NO)."""
        if isinstance(self.wait, int):
            return self.wait
        return None if self.wait == "YES" else 0

    def keywords(self) -> dict[str, str | int]:
        """The control data by keyword, defaults filled in.

        DIALECT and ORDER are included only if the table has them.
        """
        own = {} if self.dialect is Dialect.IBM else {"DIALECT": self.dialect.value}
        if self.is_ordered:
            own["ORDER"] = "KEY"
        return {
            **own,
            "INPUTQ": self.input_queue or _BLANK,
            "INPUTQM": self.input_queue_manager or _BLANK,
            "RETRYINT": self.written_interval,
            "WAIT": self.wait,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: its patterns, its action, its attempts."""

    line: int = field(default=0, compare=False)
    """First physical line of the rule, by which messages and the ledger name it."""
    patterns: Mapping[str, Pattern] = field(default_factory=dict, hash=False)
    """Pattern keyword -> pattern; a message matches if all of them do."""
    action: Action
    forward_queue: str = ""
    """FWDQ: a queue name, ``&DESTQ`` or ``&REPLYQ``; empty unless the action is FWD."""
    forward_queue_manager: str = ""
    """FWDQM: a queue manager name, ``&DESTQM`` or ``&REPLYQM``; empty for the local one."""
    forward_topic: str = ""
    """FWDT: a topic's name with inserts such as ``&TOPIC``, after ``cluster:`` if it is a topic of
    another cluster; empty unless it is given."""
    to: RetryTo = RetryTo.TOPIC
    header: bool = True
    """HEADER: whether FWD leaves the dead-letter header on the message."""
    authority: Authority = Authority.DEF
    retry: int = 1
    """RETRY: number of attempts, including the first."""
    backoff: Backoff | None = None
    """BACKOFF: how long to wait after each failed attempt; None for RETRYINT."""
    transform: str = ""
    """TRANSFORM: name in the settings of what changes the message before the put."""

    @property
    def selective(self) -> dict[str, Pattern]:
        """The patterns without those that match anything."""
        return {
            name: pattern for name, pattern in self.patterns.items() if not pattern.matches_anything
        }

    @property
    def forward_cluster(self) -> str:
        """The cluster whose topic FWDT names; empty for the job's own."""
        return self.forward_topic.rpartition(":")[0]

    def keywords(self) -> dict[str, object]:
        """The rule by keyword, defaults filled in.

        Patterns are under ``pattern``, names of constants as numbers; FWD has FWDQ and FWDQM, or
        FWDT, and HEADER. TO is included only if it is not the default.
        """
        action: dict[str, object] = {"ACTION": self.action.value}
        if self.action is Action.FWD:
            if self.forward_topic:
                action["FWDT"] = self.forward_topic
            else:
                action["FWDQ"] = self.forward_queue
                action["FWDQM"] = self.forward_queue_manager or _BLANK
            action["HEADER"] = "YES" if self.header else "NO"
        if self.to is not RetryTo.TOPIC:
            action["TO"] = self.to.value
        return {
            "line": self.line,
            "pattern": {name: _plain(pattern) for name, pattern in self.patterns.items()},
            **action,
            "PUTAUT": self.authority.value,
            "RETRY": self.retry,
            **({} if self.backoff is None else {"BACKOFF": str(self.backoff)}),
            **({"TRANSFORM": self.transform} if self.transform else {}),
        }

    def wait_before(self, tried: int, interval: int) -> int:
        """Seconds to wait for the attempt after ``tried`` attempts of this rule, without jitter.

        A BACKOFF of RETRY begins with the first attempt, since processing has already failed; that
        of FWD begins with the second, and is not shorter after another rule failed.
        """
        return interval if self.backoff is None else self.backoff.delay(self._delays(tried))

    def seconds_to(self, tried: int, interval: int) -> int:
        """Seconds from the first attempt of this rule to the one after ``tried`` attempts."""
        if self.backoff is None:
            return tried * interval
        first = self._delays(0) if self.action is Action.RETRY else 0
        return self.backoff.total(tried + first) - self.backoff.total(first)

    def _delays(self, tried: int) -> int:
        """The number of the delay, from 1, before the attempt after ``tried`` attempts."""
        return tried + 1 if self.action is Action.RETRY else max(1, tried)


def delays_of(rules: Iterable[Rule]) -> set[int]:
    """The distinct delays of the BACKOFFs of some rules, in seconds."""
    backoffs = ((rule.backoff, rule.retry) for rule in rules if rule.backoff is not None)
    return {delay for backoff, retry in backoffs for delay in backoff.distinct(retry)}


def bare(rule: Rule) -> Rule:
    """A rule without its patterns, attempts and delays."""
    return replace(rule, patterns={}, retry=1, backoff=None)


def _plain(pattern: Pattern) -> object:
    if isinstance(pattern, NumberPattern) and pattern.value is None:
        return "*"
    return pattern.text if isinstance(pattern, StringPattern) else pattern.meaning


_INSERT: Final = re.compile("&([A-Z]+)")

GROUP_TOPIC: Final = "{topic}.{group}.retry"
"""The default form of the name of a group's topic."""
_TOPIC_NAME: Final = re.compile(rf"(?!\.\.?$)[A-Za-z0-9._-]{{1,{TOPIC_LENGTH}}}")


class PutTarget(NamedTuple):
    """The names of a put."""

    queue: str
    queue_manager: str
    """Empty for the local queue manager."""


def original_target(fields: Mapping[str, FieldValue]) -> PutTarget:
    """The original destination of a message, where ``ACTION(RETRY) TO(TOPIC)`` puts it."""
    queue = _substitute("&DESTQ", fields) or str(fields.get("TOPIC", ""))
    return PutTarget(queue, _substitute("&DESTQM", fields))


def resolve_target(
    rule: Rule, fields: Mapping[str, FieldValue], form: str = GROUP_TOPIC
) -> PutTarget:
    """Where a rule puts a message.

    RETRY goes to the original destination, or with TO(GROUP) to the topic of the group, whose name
    has this form (see ``group_topic``) and is blank if the group is unknown. FWD goes to FWDQ on
    FWDQM, independently: a blank FWDQM is the local queue manager even if FWDQ is ``&DESTQ`` or
    ``&REPLYQ``. In DIALECT(KAFKA) it may go to FWDT, into which fields of the message are inserted.

    The queue is blank if the field of the message is, and then the put fails.

    Raises:
        ValueError: The rule puts nothing.
    """
    if rule.to is RetryTo.GROUP:
        topic, group = original_target(fields).queue, group_of(fields)
        return PutTarget(group_topic(form, topic=topic, group=group) if topic and group else "", "")
    if rule.action is Action.RETRY:
        return original_target(fields)
    if rule.forward_topic:
        topic = _INSERT.sub(lambda insert: str(fields.get(insert[1], "")), rule.forward_topic)
        return PutTarget(topic, "")
    if rule.action is Action.FWD:
        return PutTarget(
            _substitute(rule.forward_queue, fields),
            _substitute(rule.forward_queue_manager, fields),
        )
    raise ValueError(f"ACTION({rule.action}) puts nothing")


def known_names(rule: Rule) -> tuple[str | None, str | None]:
    """Queue and queue manager to which a rule puts, each None if it varies among messages."""
    names = rule.forward_queue, rule.forward_queue_manager
    if rule.action is Action.RETRY:
        names = "&DESTQ", "&DESTQM"
    return _known_name(rule, names[0]), _known_name(rule, names[1])


def _known_name(rule: Rule, name: str) -> str | None:
    if not name.startswith("&"):
        return name
    pattern = rule.patterns.get(name[1:])
    if isinstance(pattern, StringPattern) and pattern.is_literal:
        return pattern.normal
    return None


def inserts(rule: Rule) -> Sequence[str]:
    """The fields of a message that a rule inserts into the name of a topic."""
    return _INSERT.findall(rule.forward_topic)


def missing_insert(rule: Rule, fields: Mapping[str, FieldValue]) -> str:
    """An insert of FWDT without a value in the message, so that the put fails; empty if none."""
    return next((f"&{name}" for name in inserts(rule) if not fields.get(name)), "")


def group_of(fields: Mapping[str, FieldValue]) -> str:
    """The consumer group that failed, from the fields of a message; empty if unknown."""
    return consumer_group(str(fields.get("GROUP", "")), str(fields.get("CONNECTOR", "")))


def group_topic(form: str, *, topic: str, group: str) -> str:
    """The topic of a consumer group, to which ``ACTION(RETRY) TO(GROUP)`` puts.

    Args:
        form: The form of names, with ``{topic}`` and ``{group}``.
        topic: The topic that the group failed on. If that already is the group's topic, it is the
            answer.
        group: The consumer group.
    """
    before, after = (part.replace("{group}", group) for part in form.split("{topic}"))
    is_of_group = topic.startswith(before) and topic.endswith(after)
    is_of_group = is_of_group and len(topic) > len(before) + len(after)
    return topic if is_of_group else f"{before}{topic}{after}"


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows a topic of this name."""
    return _TOPIC_NAME.fullmatch(name) is not None


def input_queue(arguments: Sequence[str], control: Control, dead_letter_queue: str) -> str:
    """The queue to handle: argument, else INPUTQ, else the queue manager's dead-letter queue.

    Arguments are those of the command: none, the queue, or the queue and queue manager. A blank one
    stands for the queue manager's queue and overrides INPUTQ.
    """
    named = arguments[0] if arguments else control.input_queue
    longest = NAME_LENGTH if control.dialect is Dialect.IBM else TOPIC_LENGTH
    return _name(named, longest) or dead_letter_queue


def input_queue_manager(arguments: Sequence[str], control: Control, default: str = "") -> str:
    """The queue manager to use: argument, else INPUTQM, else the default one."""
    named = arguments[1] if len(arguments) > 1 else control.input_queue_manager
    return _name(named) or default


def _name(text: str, longest: int = NAME_LENGTH) -> str:
    """A name, which ends at the first blank or NUL and after 48 characters."""
    return re.split(r"[ \0]", text, maxsplit=1)[0][:longest]


def _substitute(name: str, fields: Mapping[str, FieldValue]) -> str:
    return str(fields.get(name[1:], "")) if name.startswith("&") else name
