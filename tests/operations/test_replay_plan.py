"""Plans to replay: what they hold, what they warn of, and how they are read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import handled, job_of
from tests.kafka.known_topics import KnownTopics
from tests.outcomes.samples import row_with

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.engine.decision import TimestampMode
from redrive.engine.facts import NO_LIMIT, TAKEN_AWAY, Answers, Copies, Questions, TopicFacts
from redrive.errors import EnvironmentFault, UsageError
from redrive.messages import TopicPartition
from redrive.operations.replay import planning
from redrive.operations.replay.plan import Part, Plan, Warned, parse_rate, parse_target
from redrive.operations.replay.planning import Planner
from redrive.operations.restart import meaning_of
from redrive.outcomes.inventory import Places
from redrive.outcomes.rows import Row
from redrive.rules import parse
from redrive.topology.put import QueueLimits

NOW = datetime.now(UTC)


RULES = "REASON(2053) ACTION(RETRY)\nREASON(2051) ACTION(DISCARD)\n"


def job(rules: str = RULES) -> JobConfiguration:
    """A job with one handler of the topic dlq."""
    return job_of(handled("dlq", rules, replay_topic="replay"))


def row(offset: int, **members: Any) -> Row:
    """One message as the ledger tells it."""
    place = f"dlq:0:{offset}"
    known = {
        "handler": "dlq", "origin": place, "message": place, "body_size": 10,
        "table_hash": "0" * 16, "form": "headers", "attempt": 1, "reason": 0, "reason_name": "",
        "time": NOW, "result": "remains", "rule_line": 0, "hop": 0, "field_reason": 2053,
        "field_destq": "ORDERS",
    }  # fmt: skip
    return row_with(**{**known, **members})


@dataclass(frozen=True)
class Queues:
    """Every queue exists, save for what is said here."""

    limits: QueueLimits = field(default_factory=QueueLimits)
    depth: int = 0

    def answers(self, questions: Questions) -> Answers:
        """What the cluster says of them."""
        topics = {
            name: TopicFacts(
                exists=name != "MISSING",
                silent="no leader" * (name == "SILENT"),
                wants_keys=name == "COMPACT",
                retention=60_000 if name == "MINUTE" else NO_LIMIT,
            )
            for name in questions.topics
        }
        return Answers(topics, dict.fromkeys(questions.depths, self.depth))


OPEN = Queues()
"""Nothing is refused."""


WEEK = 7 * 24


def cluster() -> KnownTopics:
    """A record came in every hour, the one with offset 2 a week ago; those before are deleted."""
    soon = datetime.now(UTC).timestamp() + 60
    letters = [(int(1000 * (soon - 3600 * age)), b"") for age in range(WEEK, WEEK - 98, -1)]
    settings = {"dlq": {"retention.ms": str(WEEK * 3_600_000)}}
    return KnownTopics({TopicPartition("dlq", 0): letters}, begin=2, settings=settings)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, int]:
    """What remains: a hundred messages, unless a test changes it."""
    copies = {f"dlq:0:{number}".encode(): number for number in range(100)}

    class Known:
        def __init__(self, connection: object) -> None:
            del connection

        def on(self, lane: TopicPartition) -> Copies:
            assert lane == TopicPartition("remaining", 0)
            return copies

        def close(self) -> None:
            pass

    monkeypatch.setattr(planning, "LiveCopies", Known)
    return copies


def planned(
    rows: list[Row],
    replay: Replay,
    queues: Queues = OPEN,
    entries: Mapping[str, Mapping[str, Any]] | None = None,
    replays: Mapping[str, int] | None = None,
    rules: str = RULES,
) -> Plan:
    limits = dict.fromkeys(("ORDERS", "BILLS"), queues.limits)
    [handler] = job(rules).handlers
    settings = replace(
        job(), limits=limits, handlers=(replace(handler, timestamp=TimestampMode.KEEP),)
    )
    known: Any = cluster()
    entries = {"topic/dlq": {"identity": "id-dlq"}, **(entries or {})}
    planner = Planner(settings, known, queues.answers, entries=entries)
    return planner.plan(Places(rows, replays or {}), replay)


def codes(plan: Plan) -> dict[str, int]:
    """What a plan warns of, with the number of messages."""
    return {warning.code: warning.count for warning in plan.warnings}


ORIGINAL = Replay(to=To.ORIGINAL)
pytestmark = pytest.mark.usefixtures("live")


def test_a_plan_counts_by_reason_exception_group_and_target() -> None:
    columns = {"error_class": "a.B", "consumer_group": "billing"}
    rows = [row(1), row(2, **columns), row(3, field_destq="BILLS", field_reason=2051)]
    plan = planned(rows, replace(ORIGINAL, rate=2))
    assert plan.count == 3
    assert plan.size == 30
    assert plan.seconds == 1.5
    assert [(part.name, part.count) for part in plan.reasons] == [
        ("2053 MQRC_Q_FULL", 2), ("2051 MQRC_PUT_INHIBITED", 1)
    ]  # fmt: skip
    for parts, name in ((plan.exceptions, "a.B"), (plan.groups, "billing")):
        assert {(part.name, part.count) for part in parts} == {(name, 1), ("unknown", 2)}
    assert not planned([row(1)], ORIGINAL).exceptions
    assert [(part.name, part.count, part.example) for part in plan.targets] == [
        ("ORDERS", 2, "dlq:0:1"), ("BILLS", 1, "dlq:0:3")
    ]  # fmt: skip
    assert plan.messages == {"dlq": {"dlq:0": [1, 2, 3]}}


def test_a_plan_for_groups_names_their_topics_and_leaves_out_the_others() -> None:
    rows = [
        row(1, consumer_group="billing"),
        row(2, consumer_group="connect-sink", form="connect"),
        row(3),
    ]
    plan = planned(rows, Replay(to=To.GROUP))
    assert plan.messages == {"dlq": {"dlq:0": [1, 2]}}
    assert {part.name for part in plan.targets} == {
        "ORDERS.billing.retry", "ORDERS.connect-sink.retry"
    }  # fmt: skip
    assert plan.notes == ["1 message is left out: the consumer group is unknown"]


@pytest.mark.parametrize(
    ("members", "queues", "expected"),
    [
        ({"field_destq": "MISSING"}, OPEN, {"target-missing": 3}),
        ({"field_destq": "dlq"}, OPEN, {"would-loop": 3}),
        ({"field_destq": "SILENT"}, OPEN, {"target-silent": 3}),
        ({}, Queues(QueueLimits(put_enabled=False)), {"put-disabled": 3}),
        ({}, Queues(QueueLimits(max_depth=5, consumer_group="g"), 4), {"target-full": 2}),
        ({}, Queues(QueueLimits(max_depth=7, consumer_group="g"), 4), {}),
        ({"field_destq": None}, OPEN, {"no-original": 3}),
        ({"field_destq": "COMPACT"}, OPEN, {"after-the-put": 3}),
        ({"field_destq": "MINUTE", "time": NOW - timedelta(hours=1)}, OPEN, {"after-the-put": 3}),
        ({"message_key": b"k"}, OPEN, {"order": 3}),
    ],
)
def test_a_plan_warns_of_what_would_go_wrong(
    members: dict[str, Any], queues: Queues, expected: dict[str, int]
) -> None:
    assert codes(planned([row(n, **members) for n in range(3)], ORIGINAL, queues)) == expected


def test_a_plan_warns_of_earlier_replays() -> None:
    plan = planned([row(1), row(2)], ORIGINAL, replays={"dlq:0:1": 2})
    assert codes(plan) == {"replayed-before": 1}


@pytest.mark.parametrize("to", [To.DISCARD, To.REMAIN])
def test_what_is_put_nowhere_is_not_put_twice_nor_out_of_order(to: To) -> None:
    rows = [row(n, message_key=b"k") for n in range(3)]
    assert codes(planned(rows, Replay(to=to), replays={"dlq:0:1": 2})) == {}


def test_a_plan_by_the_rules_tells_which_rule_decides() -> None:
    rows = [row(1), row(2, field_reason=2051), row(3, field_reason=9)]
    plan = planned(rows, Replay(to=To.RULES))
    assert {part.name for part in plan.targets} == {
        "ORDERS by the rule at line 1", "discarded by the rule at line 2",
        "remains: no rule matches",
    }  # fmt: skip
    assert "same-table" not in codes(plan)


def test_a_plan_by_rules_about_exceptions_tells_them_apart() -> None:
    """Messages that differ in their exception alone are decided each by its own."""
    rules = "DIALECT(KAFKA)\nROOTCLASS(a.B) ACTION(DISCARD)\nACTION(IGNORE)\n"
    classes = ["a.A", "a.B", "a.A", "a.B"]
    rows = [row(offset, form="spring-dlt", error_class=name) for offset, name in enumerate(classes)]
    plan = planned(rows, Replay(to=To.RULES), rules=rules)
    assert {part.name: part.count for part in plan.targets} == {
        "discarded by the rule at line 2": 2,
        "remains: ignored by the rule at line 3": 2,
    }


def test_a_plan_to_try_parked_messages_tells_where_their_next_attempt_goes(
    live: dict[bytes, int],
) -> None:
    live.clear()  # parked messages have no remaining copy
    table = parse(job().handlers[0].rules, name="").required()
    columns = {"table_hash": table.hash[:16], "result": "parked"}
    rows = [
        row(1),
        row(2, attempt=1, reason=2053, **columns),
        row(3, field_reason=2051, attempt=0, **columns),
    ]
    full = Queues(QueueLimits(max_depth=4, consumer_group="g"), 4)
    plan = planned(rows, Replay(to=To.ATTEMPT), full)
    assert {part.name for part in plan.targets} == {
        "ORDERS by the rule at line 1", "remains: the only attempt failed",
        "discarded by the rule at line 2",
    }  # fmt: skip
    assert codes(plan) == {"target-full": 1}
    assert codes(planned(rows, Replay(to=To.REMAIN), full)) == {}


def test_a_plan_by_the_rules_warns_if_the_job_decides_by_another_table() -> None:
    rows, replay = [row(1), row(2)], Replay(to=To.RULES)
    same = meaning_of(job().handlers[0], job())
    assert codes(planned(rows, replay, entries={"table/dlq/0": {"table": same}})) == {}
    assert codes(planned(rows, replay)) == {}
    other = planned(rows, replay, entries={"table/dlq/0": {"table": "f" * 64}})
    assert codes(other) == {"other-table": 2}
    assert "redrive restart" in other.warnings[0].text


def test_a_plan_leaves_out_what_is_gone_and_fetches_what_lost_its_copy(
    live: dict[bytes, int],
) -> None:
    live[b"dlq:0:3"] = TAKEN_AWAY
    for lost in (0, 1, 2, 25, 27):
        del live[f"dlq:0:{lost}".encode()]
    plan = planned([row(number) for number in (0, 1, 2, 3, 4, 25, 27)], ORIGINAL)
    assert plan.messages == {"dlq": {"dlq:0": [2, 4, 25, 27]}}
    assert codes(plan) == {"restored": 3, "expires": 2}
    assert [note.partition(":")[0] for note in plan.notes] == [
        "1 message is left out", "2 messages are left out"
    ]  # fmt: skip
    assert "payload was deleted" in plan.notes[1]
    nothing = planned([row(0)], ORIGINAL)
    assert (nothing.count, codes(nothing), len(nothing.notes)) == (0, {}, 1)


def test_a_topic_made_anew_does_not_have_the_messages_of_the_one_before(
    live: dict[bytes, int],
) -> None:
    live.clear()
    live[b"dlq~2:0:9"] = 1
    rows = [row(25), row(9, origin="dlq~2:0:9"), row(60, origin="dlq~2:0:60")]
    entries = {"topic/dlq": {"identity": "id-dlq", "incarnation": 2}}
    plan = planned(rows, ORIGINAL, entries=entries)
    assert plan.messages == {"dlq": {"dlq~2:0": [9, 60]}}
    assert codes(plan) == {"restored": 1}
    assert "payload was deleted" in plan.notes[0]
    unread = planned(rows, ORIGINAL, entries={"topic/dlq": {"identity": "other", "incarnation": 2}})
    assert unread.messages == {"dlq": {"dlq~2:0": [9]}}, "the job has not read the present topic"


def test_a_plan_for_discarded_messages_has_those_that_their_topic_holds(
    live: dict[bytes, int],
) -> None:
    live[b"dlq:0:4"] = TAKEN_AWAY  # by the discard
    rows = [row(number, result="discarded") for number in (0, 1, 2, 4, 60)]
    plan = planned(rows, replace(ORIGINAL, is_undo=True))
    assert plan.messages == {"dlq": {"dlq:0": [2, 4, 60]}}
    assert plan.notes == ["2 messages are gone from dlq, which has deleted them"]
    assert codes(plan) == {"restored": 3, "expires": 2}
    (held,) = (warning.text for warning in plan.warnings if warning.code == "restored")
    until = datetime.fromisoformat(held.partition(" until ")[2][:16]).replace(tzinfo=UTC)
    assert abs(until - NOW) < timedelta(hours=1), "that of the record with offset 2"


def test_a_plan_says_which_messages_have_no_dead_letter_header() -> None:
    """Their reason is none, and not the 0 that a header may have."""
    plan = planned([row(1, form="none", field_reason=0), row(2, field_reason=0)], ORIGINAL)
    assert {part.name for part in plan.reasons} == {"no dead-letter header", "0 MQRC_NONE"}


def test_messages_of_another_handler_are_left_out() -> None:
    plan = planned([row(1), row(2, handler="QM1--x")], ORIGINAL)
    assert plan.count == 1
    assert "QM1--x" in plan.notes[0]


@given(
    st.dictionaries(
        st.sampled_from(["dlq:0", "dlq~2:1"]), st.sets(st.integers(0, 1 << 40), min_size=1)
    ),
    st.sampled_from(To),
    st.none() | st.floats(0.01, 1e6),
)
def test_a_plan_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    places: dict[str, set[int]],
    to: To,
    rate: float | None,
) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    replay = Replay(plan="p", to=to, queue="Q", queue_manager="M", rate=rate, is_undo=rate is None)
    messages = {"dlq": {place: sorted(offsets) for place, offsets in places.items()}}
    part = (Part("2053 MQRC_Q_FULL", 2, "dlq:0:1"),)
    plan = Plan(
        replay=replay, application="a", created="", messages=messages, size=7,
        reasons=part, exceptions=part, groups=part, targets=part, handlers=part,
        warnings=(Warned("order", "keys", 2),),
        notes=("some were left out",),
    )  # fmt: skip
    plan.write(path)
    assert Plan.read(path) == plan


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"redrive_plan": 2}'])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a replay plan") as refused:
        Plan.read(path)
    assert "redrive replay plan" in str(refused.value.hint)
    with pytest.raises(UsageError, match="there is no plan"):
        Plan.read(tmp_path / "missing.json")
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        Plan.read(tmp_path)


def test_targets_and_rates_are_read_as_people_write_them() -> None:
    assert parse_target("original") == Replay(to=To.ORIGINAL)
    assert parse_target("group") == Replay(to=To.GROUP)
    assert parse_target("rules") == Replay(to=To.RULES)
    assert parse_target("Q@QM") == Replay(to=To.QUEUE, queue="Q", queue_manager="QM")
    assert parse_target("Q") == Replay(to=To.QUEUE, queue="Q")
    assert [parse_rate(text) for text in ("50/s", "0.5/s", "7")] == [50, 0.5, 7]
    for text in ("0", "-1/s", "fast", "5/min"):
        with pytest.raises(UsageError):
            parse_rate(text)
    with pytest.raises(UsageError):
        parse_target("@QM")
