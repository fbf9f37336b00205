"""Breakers: the retries of a rule wait while its target, or the group that reads it, is down.

A breaker watches the puts by one RETRY rule on one target for one consumer group. It opens when the
last ones all failed: refused by the target or, where a round is put and processing, returned as
dead letters. While it is open its messages wait and no attempt is counted.

If refusals opened a breaker, every slice tries its first message, which only checks known facts
about the topic. If returns opened it, a probe is put now and then, whose round does not count
either. Success is silent, so a probe that does not return in time closes the breaker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from redrive.engine.attempts import failed_group, original_names
from redrive.engine.decision import Decision, Keep, Park, Put, Wait
from redrive.messages import DeadLetterProfile
from redrive.messages.reasons import Reason
from redrive.rules import Action, RetryTo, Rule

PROBE: Final = "a probe, which does not count"
"""Prefix of the detail of a probe's outcome."""
_OF_THE_TARGET: Final = frozenset({
    Reason.NOT_AUTHORIZED, Reason.PUT_INHIBITED, Reason.Q_FULL, Reason.UNKNOWN_OBJECT_NAME,
    Reason.UNKNOWN_OBJECT_Q_MGR, Reason.UNKNOWN_REMOTE_Q_MGR, Reason.RESOURCE_PROBLEM,
    Reason.CLUSTER_PUT_INHIBITED, Reason.NO_DESTINATIONS_AVAILABLE,
})  # fmt: skip
"""Reasons that concern the target; all others may be those of a single message."""
_NEARLY_ALL: Final = 0.9
"""Share of the last rounds that must return before a breaker opens."""
_SHORTEST_SETTLING: Final = 1000
"""Minimum milliseconds for a probe to return."""
_LONGEST_SETTLING: Final = 4
"""Maximum intervals of probes for one to return."""
_FORGOTTEN: Final = 3_600_000
"""Milliseconds without a message after which an open breaker closes, as none waits."""
_MOST_ROUNDS: Final = 200
"""Batches whose rounds a breaker keeps."""
_MOST_BREAKERS: Final = 1_000
"""Maximum breakers: messages may name any number of targets."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The breakers of one handler."""

    failures: int
    """Failures without a success after which a breaker opens."""
    probe_interval: float = 30.0
    """Seconds from a failed probe to the next one."""


class BreakerKey(NamedTuple):
    """Identifies a breaker."""

    handler: str
    rule_line: int
    target: str
    """The original queue of the messages."""
    group: str
    """The consumer group that failed; empty if it is unknown."""


class OpenBreaker(NamedTuple):
    """An open breaker, as a slice sees it."""

    since: int
    """Milliseconds since 1970."""
    why: str
    is_tried: bool
    """Whether each slice tries a message, because refusals opened the breaker."""
    may_probe: bool = False
    """Whether a probe is due."""

    @property
    def detail(self) -> str:
        """The detail in the outcome of a waiting message."""
        since = datetime.fromtimestamp(self.since / 1000, UTC)
        return f"breaker open since {since:%Y-%m-%d %H:%M:%S} UTC: {self.why}"


NO_BREAKERS: Final[Mapping[BreakerKey, OpenBreaker]] = {}


@dataclass(slots=True)
class BreakerCounts:
    """Counts of the messages of one breaker in some slices."""

    puts: int = 0
    refused: int = 0
    """Puts that the target refused."""
    why: str = ""
    """The last refusal."""
    held: int = 0
    """Messages that wait."""
    returned: Counter[int] = field(default_factory=Counter)
    """Returned rounds, by the time of their put in milliseconds."""

    def add(self, other: BreakerCounts) -> None:
        """Adds the counts of another slice or process."""
        self.puts += other.puts
        self.refused += other.refused
        self.held += other.held
        self.why = other.why or self.why
        self.returned.update(other.returned)


def breaker_of(handler: str, rule: Rule | None, profile: DeadLetterProfile) -> BreakerKey | None:
    """The breaker that watches the puts of a profile by a rule; None if it has none."""
    if rule is None or rule.action is not Action.RETRY:
        return None
    names, group = original_names(profile), failed_group(profile)
    if not names.queue or (rule.to is RetryTo.GROUP and not group):
        return None  # the message is at fault, not a target
    return BreakerKey(handler, rule.line, str(names), group)


def is_refused(decision: Decision) -> bool:
    """Whether an attempt failed for a reason that concerns its target."""
    is_failed = isinstance(decision, (Park, Keep)) and not isinstance(decision, Wait)
    return is_failed and decision.attempt > 0 and decision.reason in _OF_THE_TARGET


class SliceBreakers:
    """The breakers in one slice, and what it does with their messages."""

    def __init__(self, opened: Mapping[BreakerKey, OpenBreaker], now: int) -> None:
        """Take the open breakers, and the time of the attempts in milliseconds."""
        self._known = opened
        self._now = now
        self._opened_here: dict[BreakerKey, OpenBreaker] = {}
        self._refusals: dict[BreakerKey, int] = {}
        """Refusals that opened the breakers of ``_opened_here``."""
        self._refused: Counter[BreakerKey] = Counter()
        self._why: dict[BreakerKey, str] = {}
        self._held: Counter[BreakerKey] = Counter()
        self._returned: dict[BreakerKey, Counter[int]] = {}
        self.probed: set[BreakerKey] = set()
        """Breakers whose probe the slice took."""

    def begin(self) -> None:
        """Drop the decisions, but keep the breakers found open."""
        self._refused.clear()
        self._why.clear()
        self._held.clear()
        self._returned.clear()
        self.probed.clear()

    def __bool__(self) -> bool:
        return bool(self._known or self._opened_here)

    def of(self, key: BreakerKey) -> OpenBreaker | None:
        """A breaker if it is open."""
        return self._known.get(key) or self._opened_here.get(key)

    def admits(self, key: BreakerKey, breaker: OpenBreaker) -> bool:
        """Whether to try the next message of an open breaker; this takes a due probe."""
        if breaker.is_tried:
            is_admitted = key not in self._refused
        else:
            is_admitted = breaker.may_probe and key not in self.probed
            self.probed |= {key} if is_admitted else set()
        self._held[key] += not is_admitted
        return is_admitted

    def refuse(self, key: BreakerKey, why: str) -> None:
        """Notes that the target refused a put."""
        self._refused[key] += 1
        self._why[key] = why

    def note_return(self, key: BreakerKey, put_at: int) -> None:
        """Note a returned round, which was put at a time in milliseconds."""
        self._returned.setdefault(key, Counter())[put_at] += 1

    def opens(self, failures: Mapping[str, int], decisions: Counter[Decision]) -> bool:
        """Whether the refusals of this slice alone open a breaker: decide the slice again then.

        So no message of a large slice uses up an attempt. ``failures`` is the number that opens a
        breaker, by handler.
        """
        failing = [
            key
            for key, count in self._refused.items()
            if self.of(key) is None and count >= failures.get(key.handler, count + 1)
        ]
        placed = set(_puts(decisions)) if failing else set()
        for key in failing:
            if key not in placed:
                why = _refusals(self._refused[key], self._why[key])
                self._opened_here[key] = OpenBreaker(self._now, why, is_tried=True)
                self._refusals[key] = self._refused[key]
        return not placed.issuperset(failing)

    def counts(
        self, handlers: Mapping[str, int], decisions: Counter[Decision]
    ) -> dict[BreakerKey, BreakerCounts]:
        """What the slice did, by breaker; arguments as for ``opens``."""
        counts: dict[BreakerKey, BreakerCounts] = {}
        if not handlers:
            return counts
        for key, count in _puts(decisions).items():
            if key.handler in handlers:
                counts[key] = BreakerCounts(puts=count)
        for key, count in self._refused.items():
            breaker = counts.setdefault(key, BreakerCounts())
            breaker.refused, breaker.why = max(count, self._refusals.get(key, 0)), self._why[key]
        for key, count in self._held.items():
            counts.setdefault(key, BreakerCounts()).held = count
        for key, returned in self._returned.items():
            counts.setdefault(key, BreakerCounts()).returned = Counter(returned)
        return counts


def _puts(decisions: Counter[Decision]) -> Counter[BreakerKey]:
    puts: Counter[BreakerKey] = Counter()
    for decision, count in decisions.items():
        if isinstance(decision, Put) and decision.replay is None:
            key = breaker_of(decision.handler, decision.rule, decision.profile)
            if key is not None:
                puts[key] += count
    return puts


def _refusals(count: int, why: str) -> str:
    return f"{count} puts in a row were refused: {why}"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A breaker that is not closed, for views."""

    handler: str
    rule_line: int
    target: str
    group: str
    state: str
    """``open`` or ``half-open``."""
    since: float
    """Seconds since 1970."""
    why: str

    @property
    def key(self) -> BreakerKey:
        """What it watches."""
        return BreakerKey(self.handler, self.rule_line, self.target, self.group)

    @property
    def sentence(self) -> str:
        """One line about it, without its time."""
        group = f" for group {self.group}" if self.group else ""
        place = f"the rule at line {self.rule_line} of {self.handler} to {self.target}{group}"
        return f"breaker {self.state}: retries by {place} wait, {self.why}"


@dataclass(slots=True)
class _Breaker:
    """The state of one breaker."""

    settings: BreakerSettings
    open: OpenBreaker | None = None
    refused: int = 0
    """Refusals since the last put that succeeded."""
    rounds: dict[int, list[int]] = field(default_factory=dict)
    """By the time of the put: rounds put, and rounds returned."""
    longest: int = 0
    """The longest time in milliseconds until a round returned."""
    probe: int = 0
    """Time of the put of the probe under way; 0 for none."""
    next_probe: int = 0
    last_message: int = 0
    """When a batch last had a message of it, in milliseconds."""

    def learn(self, counts: BreakerCounts, now: int) -> None:
        """Apply what one batch did; times are in milliseconds."""
        self.last_message = now
        self._count(counts, now)
        if self.open is None:
            self._open_if_failing(counts.why, now)
        elif self.open.is_tried:
            if counts.puts:
                self._close()
        else:
            if counts.puts:
                self.probe = now
            if self.probe in counts.returned:
                self.probe, self.next_probe = 0, now + self._interval

    def is_over(self, now: int) -> bool:
        """Whether a probe has not returned in time, or no message waits any more."""
        if self.open is not None and now - self.last_message > _FORGOTTEN:
            return True
        allowed = min(max(2 * self.longest, _SHORTEST_SETTLING), _LONGEST_SETTLING * self._interval)
        return bool(self.probe) and now - self.probe >= allowed

    def view(self, now: int) -> OpenBreaker | None:
        """The open breaker for slices; closes it if it is over."""
        if self.is_over(now):
            self._close()
        if self.open is None or self.open.is_tried:
            return self.open
        return self.open._replace(may_probe=not self.probe and now >= self.next_probe)

    def begin_run(self, now: int) -> None:
        """Continue in another run, whose clock may have been set, at a time in milliseconds.

        A probe may have come back unseen while no run read dead letters, so another one is due.
        """
        self.probe, self.next_probe = 0, now
        self.last_message = min(self.last_message, now)

    @property
    def _interval(self) -> int:
        return int(self.settings.probe_interval * 1000)

    def _count(self, counts: BreakerCounts, now: int) -> None:
        if counts.puts:
            self.refused = 0
            self.rounds.setdefault(now, [0, 0])[0] += counts.puts
            while len(self.rounds) > _MOST_ROUNDS:
                del self.rounds[next(iter(self.rounds))]
        else:
            self.refused += counts.refused
        for put_at, count in counts.returned.items():
            known = self.rounds.get(put_at)  # else of an earlier run or another instance
            if known is not None:
                known[1] = min(known[0], known[1] + count)
                self.longest = max(self.longest, now - put_at)

    def _open_if_failing(self, why: str, now: int) -> None:
        if self.refused >= self.settings.failures:
            self.open = OpenBreaker(now, _refusals(self.refused, why), is_tried=True)
            return
        put, returned = self._last_rounds()
        if returned >= self.settings.failures and returned >= _NEARLY_ALL * put:
            text = f"{returned} of the last {put} rounds came back"
            self.open = OpenBreaker(now, text, is_tried=False)
            self.next_probe = now + self._interval

    def _last_rounds(self) -> tuple[int, int]:
        """The last conclusive rounds, and how many returned.

        Rounds put after the last returned one may still be in progress.
        """
        put = returned = 0
        for there, back in reversed(self.rounds.values()):
            if back or returned:
                put, returned = put + there, returned + back
            if returned >= self.settings.failures:
                break
        return put, returned

    def _close(self) -> None:
        self.open, self.probe, self.refused, self.longest = None, 0, 0, 0
        self.rounds.clear()


class Breakers:
    """The breakers of a job, in the memory of its driver; all are closed when it starts."""

    def __init__(self, settings: Mapping[str, BreakerSettings]) -> None:
        """Take the settings by handler; a handler without any has no breakers."""
        self._settings = settings
        self._breakers: dict[BreakerKey, _Breaker] = {}

    def begin_run(self, settings: Mapping[str, BreakerSettings], now: int) -> None:
        """Continue in another run of the query.

        Args:
            settings: The current ones; breakers with other settings are closed.
            now: Time by the clock of the run, in milliseconds.
        """
        self._settings = settings
        self._breakers = {
            key: breaker
            for key, breaker in self._breakers.items()
            if breaker.settings == settings.get(key.handler)
        }
        for breaker in self._breakers.values():
            breaker.begin_run(now)

    def opened(self, now: int) -> Mapping[BreakerKey, OpenBreaker]:
        """The open breakers, for the slices of a batch at a time in milliseconds."""
        if not self._breakers:
            return NO_BREAKERS
        views = ((key, breaker.view(now)) for key, breaker in self._breakers.items())
        return {key: opened for key, opened in views if opened is not None}

    def learn(self, counts: Mapping[BreakerKey, BreakerCounts], now: int) -> None:
        """Apply what a batch did at a time in milliseconds."""
        for key, count in counts.items():
            if key in self._breakers or self._has_room():
                settings = self._settings[key.handler]
                self._breakers.setdefault(key, _Breaker(settings)).learn(count, now)

    def states(self, now: int) -> Iterator[BreakerState]:
        """The breakers that are not closed at a time in milliseconds; any thread may ask."""
        for key, breaker in list(self._breakers.items()):
            if breaker.open is not None and not breaker.is_over(now):
                state = "half-open" if breaker.probe else "open"
                yield BreakerState(*key, state, breaker.open.since / 1000, breaker.open.why)

    def _has_room(self) -> bool:
        """Whether another breaker can be kept; closed ones are dropped."""
        if len(self._breakers) < _MOST_BREAKERS:
            return True
        self._breakers = {key: breaker for key, breaker in self._breakers.items() if breaker.open}
        return len(self._breakers) < _MOST_BREAKERS
