"""Caches: equal messages are decided once, and the put of the most common kind is prepared.

Nearly all fresh dead letters of a lane have the same header names in the same order, and few
distinct profiles. ``PreparedPut`` computes once what they share; each record then costs one list,
one slice and one line of JSON. All other messages are decided one by one. Both paths must write the
same records, which a test checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.engine.decision import Put
from redrive.engine.message import NO_ATTEMPTS, seed_of
from redrive.engine.put_descriptor import LEFT_TO_QUEUE, defaults_of
from redrive.messages import own_headers as own
from redrive.messages import remove_header, without_stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.engine.commands import Replay
    from redrive.engine.context import SliceContext
    from redrive.engine.decision import Decision, Keep, Suspend, Wait
    from redrive.engine.message import Attempts, Message
    from redrive.engine.rules_decider import RulesDecider
    from redrive.messages import DeadLetterProfile, Headers
    from redrive.topology.put import Refusal

__all__ = ["HEADROOM", "DecisionCache", "PreparedPut", "put_bounds"]

HEADROOM: Final = 16 * 1024
"""Bytes reserved for headers when a body is compared with a topic's limit."""
_PROBE: Final = bytes(4096)
"""A value longer than any dead-letter header, to see how much of it is removed."""
_UNLIKELY: Final = b"\xff"
"""A header value that no field of a message descriptor has, so that every edit shows."""


class DecisionCache:
    """Decisions of rules tables under the facts of one moment, shared by equal messages."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        # Decisions keep their profiles alive, so the id in a key stays unique.
        self._profiles: dict[int, DeadLetterProfile] = {}
        self._decisions: dict[tuple[int, int, Attempts, int, int, str], Decision] = {}
        self._waiting: dict[int, Wait] = {}
        self._suspended: dict[tuple[int, Attempts, str], Suspend] = {}
        self._flooded: dict[tuple[int, int, Attempts, str], Keep] = {}
        self._probes: dict[tuple[int, Attempts, str], Put] = {}
        self._refused: dict[tuple[int, int, str], Decision] = {}
        self._prepared: dict[tuple[int, tuple[str, ...]], dict[int, PreparedPut | None]] = {}

    def decide(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        attempts: Attempts,
        message: Message,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision for one message; its identity chooses among equal instances.

        Args:
            decider: Makes it.
            profile: Its profile.
            attempts: Its failed attempts.
            message: The message.
            replay: What a person decided about it.
        """
        hops = message.hops
        plan = "" if replay is None else replay.plan
        decision = self._decisions.get((id(decider), id(profile), attempts, hops, 0, plan))
        if decision is None:
            decision = self.of_profile(decider, profile, attempts, hops=hops, replay=replay)
        if isinstance(decision, Put) and decision.destination.is_choice:
            seed = seed_of(message.identity)
            decision = self.of_profile(
                decider, profile, attempts, hops=hops, seed=seed, replay=replay
            )
        return decision

    def of_profile(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        attempts: Attempts,
        *,
        hops: int,
        seed: int = 0,
        replay: Replay | None = None,
    ) -> Decision:
        """The decision for a profile; arguments as for ``RulesDecider.decide_profile``."""
        plan = "" if replay is None else replay.plan
        key = (id(decider), id(profile), attempts, hops, seed, plan)
        decision = self._decisions.get(key)
        if decision is None:
            self._profiles[id(profile)] = profile
            decision = decider.decide_profile(
                profile, attempts, hops=hops, seed=seed, replay=replay
            )
            self._decisions[key] = decision
        return decision

    def on_refusal(self, decider: RulesDecider, decision: Put, refusal: Refusal) -> Decision:
        """The decision after a failed put; the decision to put came from here."""
        key = (id(decision), refusal.reason, refusal.detail)
        following = self._refused.get(key)
        if following is None:
            following = self._refused[key] = decider.on_refusal(decision, refusal)
        return following

    def waiting(self, decider: RulesDecider, decision: Put) -> Wait:
        """The decision to wait with a put; the decision to put came from here."""
        waiting = self._waiting.get(id(decision))
        if waiting is None:
            waiting = self._waiting[id(decision)] = decider.waiting(decision)
        return waiting

    def suspended(
        self, decider: RulesDecider, decision: Decision, attempts: Attempts, why: str
    ) -> Suspend:
        """The decision to wait for an open breaker; the other decision came from here."""
        key = (id(decision), attempts, why)
        suspended = self._suspended.get(key)
        if suspended is None:
            suspended = self._suspended[key] = decider.suspended(decision, attempts, why)
        return suspended

    def probe(self, decider: RulesDecider, decision: Put, attempts: Attempts, why: str) -> Put:
        """A probe of an open breaker; arguments as for ``suspended``."""
        key = (id(decision), attempts, why)
        probe = self._probes.get(key)
        if probe is None:
            probe = self._probes[key] = decider.probe(decision, attempts, why)
        return probe

    def flooded(
        self, decider: RulesDecider, profile: DeadLetterProfile, attempts: Attempts, why: str
    ) -> Keep:
        """The decision to keep a dead letter of a flood."""
        key = (id(decider), id(profile), attempts, why)
        kept = self._flooded.get(key)
        if kept is None:
            self._profiles[id(profile)] = profile
            kept = self._flooded[key] = decider.flooded(profile, attempts, why)
        return kept

    def prepared(
        self, decider: RulesDecider, layout: tuple[str, ...]
    ) -> dict[int, PreparedPut | None]:
        """Results of ``prepare`` for one layout of fresh dead letters, by profile id."""
        return self._prepared.setdefault((id(decider), layout), {})

    def prepare(
        self,
        decider: RulesDecider,
        profile: DeadLetterProfile,
        layout: tuple[str, ...],
        facts: SliceContext,
    ) -> PreparedPut | None:
        """The prepared put of a profile's fresh dead letters; None if each needs its own decision.

        Args:
            decider: Decides them.
            profile: Their profile.
            layout: Their header names, in order.
            facts: What is known of the cluster.
        """
        decision = self.of_profile(decider, profile, NO_ATTEMPTS, hops=0)
        if not isinstance(decision, Put) or decider.open_breaker(decision, facts):
            return None
        bounds = put_bounds(decision, facts)
        return None if bounds is None else PreparedPut(decision, layout, bounds, facts)


def put_bounds(put: Put, facts: SliceContext) -> tuple[int, int, int] | None:
    """Bounds within which a put surely succeeds: longest value, first and last timestamp.

    Args:
        put: The put.
        facts: What is known of the cluster.

    Returns:
        Bytes and milliseconds; None if each message needs its own check.
    """
    destination, longest = put.destination, put.destination.limits.longest
    topic = facts.facts.topic(destination.topic)
    if destination.is_choice or longest is None or topic.wants_keys or topic.silent:
        return None
    if destination.topic in facts.triggers.by_topic:
        return None
    profile = put.profile
    if put.rule is not None and put.rule.transform:
        return None
    if profile.is_wrapped or profile.view.pointer or (put.rounds and profile.drops_headers):
        return None
    earliest, latest = topic.timestamps(facts.now)
    if put.wait:
        earliest, latest = max(earliest, 1), min(latest, facts.failed_before(put.wait))
    return min(topic.max_message_bytes - HEADROOM, longest), earliest, latest


class PreparedPut:
    """Writes the fresh dead letters of one profile that one decision puts on a queue."""

    __slots__ = (
        "_added", "_edits", "_gaps", "_left", "_tail", "cut", "decision", "earliest", "latest",
        "partition", "room", "topic",
    )  # fmt: skip

    def __init__(
        self,
        put: Put,
        layout: Sequence[str],
        bounds: tuple[int, int, int],
        facts: SliceContext,
    ) -> None:
        """Prepare.

        Args:
            put: The decision.
            layout: The header names of every record, in their order.
            bounds: See ``put_bounds``.
            facts: What is known of the cluster.
        """
        self.decision = put
        self.topic = put.destination.topic
        self.partition = facts.facts.topic(self.topic).partition(put.partition)
        self.room, self.earliest, self.latest = bounds
        self.cut = 0
        self._edits: list[tuple[int, tuple[str, bytes | None]]] = []
        self._gaps: list[int] = []
        self._added: Headers = []
        self._tail: Headers = [*put.added_headers(facts.now), (own.HOPS, b"1")]
        defaults = defaults_of(put.destination)
        self._left = [
            (index, LEFT_TO_QUEUE[name], (name, defaults[name]))
            for index, name in enumerate(layout)
            if name in LEFT_TO_QUEUE
        ]
        self._prepare_edits(put.profile, layout, strip=put.strip)

    def headers(self, headers: Headers, identity: bytes) -> Headers:
        """The headers to write, from those of the dead letter."""
        written = headers.copy()
        for index, left, default in self._left:
            if written[index][1] == left:
                written[index] = default
        for index, pair in self._edits:
            raw = written[index][1]
            if raw is None or raw.rstrip(b" ") != pair[1]:  # an equal value stays as it is
                written[index] = pair
        for index in self._gaps:
            del written[index]
        written += self._added
        written.append((own.ID, identity))
        written += self._tail
        return written

    def _prepare_edits(
        self, profile: DeadLetterProfile, layout: Sequence[str], *, strip: bool
    ) -> None:
        """Derives from one message the edits for every record of this layout."""
        probe: Headers = [(name, _UNLIKELY) for name in layout]
        value: bytes | None = _PROBE
        if strip:
            value, kept = remove_header(profile, value, probe)
        else:
            kept = without_stacks(profile, probe)
        self.cut = len(_PROBE) - len(value or b"")
        position = {id(pair): index for index, pair in enumerate(probe)}
        survivors = [position.get(id(pair)) for pair in kept]
        taken = 0
        for pair, index in zip(kept, survivors, strict=True):
            if index is not None:
                self._gaps += range(taken, index)
                taken = index + 1
            elif taken < len(layout) and layout[taken] == pair[0]:
                self._edits.append((taken, pair))
                taken += 1
            else:
                self._added.append(pair)
        self._gaps += range(taken, len(layout))
        self._gaps.reverse()
