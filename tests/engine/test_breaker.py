"""Breakers: when they open, what waits for them, and what closes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import handler_of, record, slice_of

from redrive.engine.breaker import BreakerCounts, BreakerKey, Breakers, BreakerSettings, OpenBreaker
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import SourceKind
from redrive.messages import Headers, Records
from redrive.messages import own_headers as own
from redrive.outcomes.row_messages import attempts_of
from redrive.outcomes.rows import row_of
from redrive.rules import parse
from redrive.topology.put import Destination, Refusal

KEY = BreakerKey("dlq", 2, "ORDERS", "billing")
N = 4
"""Failures that open a breaker."""
TABLE = "DIALECT(KAFKA) RETRYINT(5)\nACTION(RETRY) RETRY(3)\n"


def put(count: int = 1) -> BreakerCounts:
    return BreakerCounts(puts=count)


def refused(count: int = 1) -> BreakerCounts:
    return BreakerCounts(refused=count, why="it is gone")


def waits() -> BreakerCounts:
    return BreakerCounts(held=1)


def back(*times: int, count: int = 1) -> BreakerCounts:
    return BreakerCounts(returned=Counter({1000 * time: count for time in times}))


Step = tuple[int, BreakerCounts, str]
"""Seconds, what a batch did then, and the state of the breaker after it."""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(1, refused(3), ""), (2, refused(1), "open")], id="refused in a row"),
        pytest.param(
            [(1, refused(3), ""), (2, put(), ""), (3, refused(3), "")], id="a put is between"
        ),
        pytest.param(
            [(1, refused(4), "open"), (60, refused(), "open"), (61, put(), "")],
            id="a put closes what refusals opened",
        ),
        pytest.param(
            [(1, put(4), ""), (2, back(1, count=3), ""), (3, back(1), "open")], id="all come back"
        ),
        pytest.param(
            [(1, put(40), ""), (2, back(1, count=35), ""), (3, back(1), "open")],
            id="nine of ten come back",
        ),
        pytest.param([(1, put(40), ""), (2, back(1, count=20), "")], id="half come back"),
        pytest.param(
            [(1, put(4), ""), (2, put(50), ""), (3, back(1, count=4), "open")],
            id="what was put later may be under way",
        ),
        pytest.param(
            [(1, put(3), ""), (2, back(1, count=3), ""), (3, put(30), ""), (4, put(3), ""),
             (5, back(4, count=3), "")],
            id="silence between is success",
        ),
        pytest.param([(1, back(0, count=90), "")], id="rounds of an earlier run do not count"),
        pytest.param(
            [(1, put(4), ""), (2, back(1, count=4), "open"), (20, put(), "half-open"),
             (21, back(20), "open"), (40, put(), "half-open"), (41, BreakerCounts(), "half-open"),
             (42, BreakerCounts(), "")],
            id="a probe that does not come back in time closes it",
        ),
        pytest.param(
            [(1, refused(4), "open"), (3000, refused(), "open"), (6000, waits(), "open")],
            id="it stays open while messages wait",
        ),
        pytest.param(
            [(1, refused(4), "open"), (3602, waits(), "")],
            id="one that no message asked for an hour is closed",
        ),
    ],
)  # fmt: skip
def test_a_breaker_is_in_the_state_that_its_puts_and_returns_make(steps: Sequence[Step]) -> None:
    breakers = Breakers({"dlq": BreakerSettings(N, probe_interval=10)})
    for seconds, counts, state in steps:
        breakers.opened(1000 * seconds)
        breakers.learn({KEY: counts}, 1000 * seconds)
        assert [breaker.state for breaker in breakers.states(1000 * seconds)] == [state] * bool(
            state
        )


def test_a_probe_is_due_once_for_each_interval() -> None:
    breakers = Breakers({"dlq": BreakerSettings(N, probe_interval=10)})
    breakers.learn({KEY: put(N)}, 0)
    breakers.learn({KEY: BreakerCounts(returned=Counter({0: N}))}, 5_000)
    due = []
    for second in range(5, 60):
        if breakers.opened(1000 * second)[KEY].may_probe:
            due.append(second)
            breakers.learn({KEY: put()}, 1000 * second)
            breakers.learn({KEY: back(second)}, 1000 * second + 1)
    assert due == [15, 26, 37, 48, 59]


@pytest.mark.parametrize("now", [6_000, -60_000], ids=["later", "the clock was set back"])
def test_another_run_keeps_open_breakers_and_probes_at_once(now: int) -> None:
    settings = {"dlq": BreakerSettings(N, probe_interval=10)}
    breakers = Breakers(settings)
    breakers.learn({KEY: put(N)}, 0)
    breakers.learn({KEY: BreakerCounts(returned=Counter({0: N}))}, 1_000)
    breakers.learn({KEY: put()}, 5_000)
    breakers.begin_run(settings, now)
    assert breakers.opened(now + 30_000)[KEY].may_probe
    breakers.begin_run({"dlq": BreakerSettings(N, probe_interval=20)}, now)
    assert breakers.opened(now) == {}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=40))
def test_it_opens_only_after_so_many_failures(batches: list[tuple[int, int, int]]) -> None:
    breakers = Breakers({"dlq": BreakerSettings(N)})
    failures = 0
    for number, (puts, refusals, returns) in enumerate(batches, 1):
        returned = Counter({1000 * (number - 1): returns} if returns else {})
        failures += refusals + returns
        breakers.learn({KEY: BreakerCounts(puts, refusals, returned=returned)}, 1000 * number)
        assert failures >= N or not [*breakers.states(1000 * number)]


# -- in a slice ----------------------------------------------------------------------------------


def letters(count: int, *, rounds: own.Rounds | None = None) -> Records:
    """Dead letters of a consumer group that failed long ago."""
    headers: Headers = [
        ("kafka_dlt-original-topic", b"ORDERS"),
        ("kafka_dlt-original-partition", bytes(4)),
        ("kafka_dlt-original-offset", bytes(8)),
        ("kafka_dlt-original-consumer-group", b"billing"),
    ]
    if rounds is not None:
        headers.append((own.ROUNDS, rounds.value))
    copies = [[*headers] for _ in range(count)]
    return Records([b"k"] * count, [b"v"] * count, copies, [77] * count, [*range(count)])


@dataclass
class Target:
    """The original topic, which may be away."""

    is_away: bool = False

    def resolve(self, queue_manager: str, queue: str) -> Destination | Refusal:
        if self.is_away:
            return Refusal(2085, "there is no topic ORDERS")
        return Destination(topic=queue, queue=queue, queue_manager=queue_manager)


def decided(
    records: Records,
    target: Target,
    opened: OpenBreaker | None = None,
    **more: object,
) -> Slice:
    """A slice of records under breakers, decided."""
    handler = handler_of(TABLE, target.resolve, breaker=BreakerSettings(N))
    work = slice_of(records, handler, **more)  # type: ignore[arg-type]
    breakers = {} if opened is None else {KEY: opened}
    settings = SliceSettings(outcomes_topic="OUT", now=90_000, breakers=breakers)
    work = Slice(work._parts, work._decoder, work._facts, settings)
    work.decide()
    return work


def results(work: Slice) -> dict[str, int]:
    return {kind.result: count for kind, count in work.summary().inputs.items()}


REFUSED = OpenBreaker(80_000, "4 puts in a row were refused", is_tried=True)
RETURNED = OpenBreaker(80_000, "4 of the last 4 rounds came back", is_tried=False)


@pytest.mark.parametrize(
    ("count", "is_away", "opened", "put", "counted"),
    [
        pytest.param(3, True, None, 0, 3, id="too few refusals are attempts"),
        pytest.param(4, True, None, 0, 0, id="enough refusals open it before any counts"),
        pytest.param(9, True, REFUSED, 0, 0, id="the target is still away"),
        pytest.param(9, False, REFUSED, 9, 0, id="the target is back"),
        pytest.param(9, False, RETURNED, 0, 0, id="all wait"),
        pytest.param(9, False, RETURNED._replace(may_probe=True), 1, 0, id="one probe"),
        pytest.param(9, True, RETURNED._replace(may_probe=True), 0, 0, id="a probe is refused"),
    ],
)
def test_what_waits_for_an_open_breaker_uses_up_no_attempt(
    count: int,
    is_away: bool,  # noqa: FBT001 - a column of the table
    opened: OpenBreaker | None,
    put: int,
    counted: int,
) -> None:
    work = decided(letters(count), Target(is_away=is_away), opened)
    results_by_name = results(work)
    assert (results_by_name.get("retried", 0), results_by_name.get("parked", 0)) == (
        put,
        count - put,
    )
    copies = [output for _, output in work.outputs if output.topic == "RETRY"]
    failures = [own.read_own(copy.headers or []).failures for copy in copies]
    assert sum(failures) == counted
    times = [copy.timestamp for copy in copies]
    assert times == sorted(times)
    assert counted or not times or (min(times) >= 87_500 and times[-1] == 90_000)
    counts = work.summary().breakers.get(KEY, BreakerCounts())
    assert counts.puts == put
    assert bool(counts.refused) == is_away


def test_a_probe_counts_no_round_and_is_known_when_it_comes_back() -> None:
    probing = decided(letters(1), Target(), RETURNED._replace(may_probe=True))
    (there,) = [output for _, output in probing.outputs if output.topic == "ORDERS"]
    rounds = own.read_own(there.headers or []).rounds
    assert rounds is not None
    assert probing.summary().rounds == {("dlq", 1): 1}
    assert (rounds.by_rule, rounds.counted, rounds.put_at) == (((0, 0),), 1, 90_000)
    again = decided(letters(1, rounds=rounds._replace(queue="DLQ")), Target(), RETURNED)
    assert again.summary().breakers[KEY].returned == {90_000: 1}
    values = [
        output.value
        for part in (probing, again)
        for _, output in part.outputs
        if output.topic == "OUT"
    ]
    rows = [row_of(value, 0, 0, number) for number, value in enumerate(values)]
    attempts = attempts_of(rows, parse(TABLE).required())
    assert (attempts.failures, attempts.by_rule) == (0, ())


def test_a_parked_message_keeps_its_failures() -> None:
    headers = [*letters(1).headers[0], (own.FAILED_RULES, b"0:2"), (own.FAILURES, b"2")]
    handler = handler_of(TABLE)
    headers.append((own.TABLE, handler.table_id.encode()))
    work = decided(record(b"v", headers), Target(), RETURNED, kind=SourceKind.RETRIES)
    (copy,) = [output for _, output in work.outputs if output.topic == "RETRY"]
    own_headers = own.read_own(copy.headers or [])
    assert (own_headers.failures, own_headers.failed) == (2, ((0, 2),))
