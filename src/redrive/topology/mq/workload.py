"""Cluster workload management: which instance of a cluster queue gets a message.

Resolution specification B.10. The product remembers which channel was used last; here the last
step is drawn from an explicit seed instead, in proportion to the weights, so that a replay
decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from redrive.topology.mq.queue_manager import ClusterInstance


def draw(seed: int, *parts: str) -> int:
    """A number from 0 to 2**64 - 1 that the arguments determine, evenly distributed over seeds."""
    text = "\0".join((str(seed), *parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def choose(
    candidates: Sequence[ClusterInstance], *, seed: int, at: str, channels_used: int
) -> ClusterInstance:
    """Choose one of at least one instance.

    Tested in this order: rank of the channel, rank of the queue, not suspended, state of the
    channel, network priority, priority of the channel, priority of the queue; then at most
    ``channels_used`` (CLWLMRUC) channels stay, first in the alphabet first; weights and seed decide
    the rest.
    """
    best = max(map(_preference, candidates))
    equal = [candidate for candidate in candidates if _preference(candidate) == best]
    if len(equal) == 1:
        return equal[0]
    equal.sort(key=lambda one: (one.route.queue_manager, one.route.channel, one.route.cluster))
    equal = equal[:channels_used]
    point = draw(seed, at, equal[0].name) % sum(one.route.weight for one in equal)
    for candidate in equal:
        point -= candidate.route.weight
        if point < 0:
            return candidate
    return equal[-1]  # pragma: no cover - the weights add up to more than the point


def _preference(candidate: ClusterInstance) -> tuple[int, ...]:
    """A tuple that is greater for a candidate that is to be preferred."""
    route = candidate.route
    return (
        route.rank,
        candidate.rank,
        not route.suspended,
        -route.state,
        route.network_priority,
        route.priority,
        candidate.priority,
    )
