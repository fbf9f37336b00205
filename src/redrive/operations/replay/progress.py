"""Accepted plans and their progress, from their entries, committed offsets and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, Span, cancelled_entry, read_replays
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.states import read_decisions, write_states

_MARKERS: Final = 8
"""Maximum offsets at the end of a lane that may all be transaction markers."""


def read_accepted(job: JobConfiguration, cluster: Cluster) -> dict[str, Replay]:
    """Every accepted replay by the id of its plan; for part of a job, its own."""
    replays = read_replays(read_decisions(job, cluster))
    if job.only_handlers is None:
        return replays
    topics = {handler.identity.replay_topic for handler in job.handlers}
    return {
        plan: replay
        for plan, replay in replays.items()
        if replay.spans and {lane.topic for lane in replay.spans} <= topics
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStatus:
    """The status of a replay at one moment."""

    replay: Replay
    waiting: int
    """Upper bound of instructions not carried out; offsets also count transaction markers."""
    results: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return (self.replay.is_complete or bool(self.replay.cancelled_by)) and not self.waiting

    @property
    def state(self) -> str:
        """Its state, in a word or two."""
        if self.replay.cancelled_by:
            return "cancelled" if not self.waiting else "being cancelled"
        if not self.replay.is_complete:
            return "partly accepted"
        return "done" if not self.waiting else "running"

    @property
    def gone(self) -> int:
        """Messages of the plan that did not remain, or were not parked, when it was applied."""
        replay = self.replay
        return replay.planned - replay.instructed - replay.placed if replay.is_complete else 0

    def left_out(self) -> Iterator[str]:
        """How many messages of the plan got no instruction, and why."""
        replay = self.replay
        if replay.placed:
            yield f"{replay.placed} already {'brought back' if replay.is_undo else 'placed'}"
        if self.gone:
            why = "were not parked" if replay.to.is_about_parked else "did not remain"
            why = "were not on their dead-letter topic" if replay.is_undo else why
            yield f"{self.gone} {why} any more when it was applied"

    def document(self) -> dict[str, object]:
        """The status as a JSON object."""
        replay = self.replay
        return {
            "plan": replay.plan,
            "state": self.state,
            "to": replay.to.value,
            "queue": replay.queue,
            "queue_manager": replay.queue_manager,
            "rate": replay.rate,
            "operator": replay.operator,
            "because": replay.purpose,
            "accepted": replay.accepted,
            "planned": replay.planned,
            "instructed": replay.instructed,
            "placed": replay.placed,
            "gone": self.gone,
            "waiting": self.waiting,
            "cancelled_by": replay.cancelled_by,
            "results": dict(self.results),
        }


def statuses(
    job: JobConfiguration,
    cluster: Cluster,
    *,
    plan: str = "",
    results: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
) -> Sequence[ReplayStatus]:
    """The status of replays, the last accepted first; of one plan if its id is given.

    ``results`` finds the number of messages by result for each plan. It is called after the
    positions are read: a transaction commits both, so a completed replay has all its results.
    """
    accepted = read_accepted(job, cluster)
    chosen = [replay for replay in accepted.values() if plan in {"", replay.plan}]
    lanes = sorted({lane for replay in chosen for lane in replay.spans})
    written, stable = cluster.ends(lanes, committed_only=False), cluster.ends(lanes)
    committed = cluster.committed(job.application, lanes)
    waiting = {
        replay.plan: sum(
            _waiting(cluster, lane, span, committed[lane] or 0, (stable[lane], written[lane]))
            for lane, span in replay.spans.items()
        )
        for replay in chosen
    }
    counts = results()
    return [
        ReplayStatus(
            replay=replay, waiting=waiting[replay.plan], results=counts.get(replay.plan, {})
        )
        for replay in sorted(chosen, key=lambda replay: replay.accepted, reverse=True)
    ]


def _waiting(
    cluster: Cluster, lane: TopicPartition, span: Span, committed: int, ends: tuple[int, int]
) -> int:
    stable, written = ends
    start = max(span.first, committed)
    end = stable if span.end is None else min(written, span.end)
    if end - start > _MARKERS or end > stable:  # a commit returns before readers see it
        return max(0, end - start)
    if start >= end:
        return 0
    return end - start if any(cluster.read({lane: start}, {lane: end})) else 0


def find_replay(job: JobConfiguration, cluster: Cluster, plan: str) -> Replay:
    """The accepted replay of a plan; raises ``UsageError`` if there is none."""
    accepted = read_accepted(job, cluster)
    if plan not in accepted:
        raise UsageError(
            f"no replay {plan} was accepted", hint="`redrive replay list` shows accepted replays"
        )
    return accepted[plan]


def cancel(
    job: JobConfiguration, cluster: Cluster, plan: str, operator: str, purpose: str = ""
) -> None:
    """Cancel the rest of a replay, unless it was cancelled before.

    Raises:
        UsageError: No such replay was accepted.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    if not find_replay(job, cluster, plan).cancelled_by:
        canceller = f"{operator} ({purpose})" if purpose else operator
        write_states(job, [cancelled_entry(plan, canceller)])
