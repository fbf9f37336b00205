"""Control data and rules as values, with defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from redrive.rules.backoff import Backoff
from redrive.rules.keywords import Dialect
from redrive.rules.patterns import NumberPattern, Pattern, StringPattern

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


@dataclass(frozen=True, slots=True)
class WaitControl:
    """What to do when there is nothing left to process (WAIT)."""

    value: str | int = "YES"
    """``YES``, ``NO``, or seconds."""

    @property
    def seconds(self) -> int | None:
        """Seconds to wait for new work before ending; None for no limit. WAIT(0) is WAIT(NO)."""
        if isinstance(self.value, int):
            return self.value
        return None if self.value == "YES" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The control data of a table."""

    input_queue: str = ""
    """The dead-letter queue; empty for that of the queue manager."""
    input_queue_manager: str = ""
    """The queue manager; empty for the default one."""
    written_interval: int = DEFAULT_RETRY_INTERVAL
    """RETRYINT as written, in seconds; 0 is legal there."""
    wait: WaitControl = field(default_factory=WaitControl)
    dialect: Dialect = Dialect.IBM
    is_ordered: bool = False
    """ORDER(KEY): whether messages of one key are placed in order of arrival."""

    @property
    def retry_interval(self) -> int:
        """Seconds between attempts. RETRYINT(0) counts as 1 second."""
        return max(1, self.written_interval)

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
            "WAIT": self.wait.value,
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


def _plain(pattern: Pattern) -> object:
    if isinstance(pattern, NumberPattern) and pattern.value is None:
        return "*"
    return pattern.text if isinstance(pattern, StringPattern) else pattern.meaning
