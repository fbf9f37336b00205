"""What changes is counted, sorted by loss, and shown with its reasons."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import dead_letter, handler_of

from redrive.engine.decision import TimestampMode
from redrive.engine.facts import Answers, Facts, Questions, TopicFacts
from redrive.engine.rules_decider import RulesDecider
from redrive.messages import Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.schemes import OwnScheme, SchemeTable
from redrive.rules import Matcher
from redrive.rules.analysis import decide
from redrive.what_if.answer import Cell, IdleRule, Loss, WhatIf
from redrive.what_if.question import LaneRecords, Over, Tally
from redrive.what_if.text import lines_of
from redrive.what_if.verdict import Disposition

NAMES = "old.rul", "<new>.rul"
OLD = """RETRYINT(5)
REASON(2053) ACTION(RETRY) RETRY(2)
DESTQ('PAY*') ACTION(FWD) FWDQ(CLERK)
REASON(2051) ACTION(FWD) FWDQ(OPS)
"""
NEW = """RETRYINT(5)
DESTQ('PAY*') ACTION(DISCARD)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ(SECURITY)
REASON(2051) ACTION(FWD) FWDQ(OPS)
REASON(2051) ACTION(DISCARD)
"""

letters = st.lists(
    st.tuples(
        st.sampled_from([2053, 2051, 2035, 2085]), st.sampled_from(["PAY.IN", "ORDERS", "EV\x1bIL"])
    ),
    min_size=1,
    max_size=40,
)


def best_case(questions: Questions) -> Answers:
    """Every topic exists."""
    return Answers({name: TopicFacts() for name in questions.topics})


def answer_of(
    rows: list[tuple[int, str]], *, parts: int = 1, old: str = OLD, new: str = NEW
) -> WhatIf:
    """What changes for some dead letters."""
    return tally_of(rows, handler_of(old), handler_of(new), parts=parts).answer("dlq", NAMES)


def tally_of(
    rows: list[tuple[int, str]], old: RulesDecider, new: RulesDecider, *, parts: int = 1
) -> Tally:
    """Two tables tried on some dead letters."""
    tally = Tally(old, new, Facts(lambda: 0.0), best_case, now=90_000)
    size = -(-len(rows) // parts) or 1
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        records = Records(
            [b"k"] * len(some),
            [b"x"] * len(some),
            [dead_letter(*row) for row in some],
            [77] * len(some),
            list(range(start, start + len(some))),
        )
        lane = TopicPartition("DLQ", 0)
        tally.add(LaneRecords(Over.BACKLOG, lane, records))
    return tally


@given(rows=letters, parts=st.integers(1, 4))
def test_every_message_is_counted_once_by_what_two_tables_do(
    rows: list[tuple[int, str]], parts: int
) -> None:
    answer = answer_of(rows, parts=parts)
    tables = handler_of(OLD).table, handler_of(NEW).table
    cells: Counter[tuple[str, str]] = Counter()
    changed = lost = 0
    for reason, queue in rows:
        fields: dict[str, str | int] = {"REASON": reason, "DESTQ": queue}
        decisions = [
            decide(table, Matcher(table).candidates_of(fields), fields) for table in tables
        ]
        deeds = [
            table.rules[rules[0]].action.value if rules else "REMAINS"
            for table, (_, rules) in zip(tables, decisions, strict=True)
        ]
        cells[deeds[0], deeds[1]] += 1
        (was, _), (becomes, _) = decisions
        changed += was != becomes
        lost += becomes.discarded and not was.discarded
    merged: Counter[tuple[str, str]] = Counter()
    for cell in answer.matrix:
        merged[cell.old, cell.new] += cell.count
    assert merged == cells
    assert (answer.total, answer.changed) == (len(rows), changed)
    assert answer.newly_discarded + answer.newly_discarded_in_the_end == lost
    assert sum(change.count for change in answer.changes) == changed
    remains = answer.new.actions.get(Disposition.REMAINS, 0)
    assert sum(rule.new for rule in answer.rules) == answer.total - remains


def test_what_is_thrown_away_comes_first() -> None:
    rows = [(2035, "ORDERS")] * 9 + [(2051, "ORDERS")] * 2 + [(2053, "PAY.IN")]
    answer = answer_of(rows)
    assert [(change.loss, change.count) for change in answer.changes] == [
        (Loss.AT_ONCE, 1),
        (Loss.IN_THE_END, 2),
        (Loss.NONE, 9),
    ]
    lines = "\n".join(lines_of(answer))
    assert (
        lines.index("NEWLY DISCARDED: 1 ")
        < lines.index("NEWLY DISCARDED IF")
        < lines.index("9 messages")
    )


@given(rows=letters, tables=st.permutations([OLD, NEW]))
def test_new_discards_are_told_before_every_other_change(
    rows: list[tuple[int, str]], tables: list[str]
) -> None:
    answer = answer_of(rows, old=tables[0], new=tables[1])
    losses = [change.loss for change in answer.changes]
    assert losses == sorted(losses, key=[*Loss].index)
    changes = [line for line in lines_of(answer) if " becomes " in line]
    assert len(changes) == len(losses)
    for line, loss in zip(changes, losses, strict=True):
        assert line.startswith("NEWLY DISCARDED") is (loss is not Loss.NONE)


@given(whys=st.lists(st.sampled_from([b"late", b"full", None]), min_size=1, max_size=9))
def test_other_schemes_alone_change_what_becomes_of_a_message(whys: list[bytes | None]) -> None:
    own_scheme = OwnScheme(name="mine", recognise="x-why", parts={"error.message": "x-why"})
    table = "ACTION(DISCARD)\n"
    handlers = handler_of(table), handler_of(table, schemes=SchemeTable([own_scheme.scheme()]))
    tally = Tally(*handlers, Facts(lambda: 0.0), best_case, now=90_000, schemes=["mine"])
    records = Records(
        [b"k"] * len(whys),
        [b"x"] * len(whys),
        [[("x-why", why)] if why else [] for why in whys],
        [77] * len(whys),
        list(range(len(whys))),
    )
    lane = TopicPartition("REMAINING", 0)
    tally.add(LaneRecords(Over.REMAINING, lane, records))
    recognised = sum(why is not None for why in whys)
    cells = [
        Cell(Disposition.REMAINS, Disposition.DISCARD, changed=True, count=recognised),
        Cell(Disposition.REMAINS, Disposition.REMAINS, changed=False, count=len(whys) - recognised),
    ]
    assert tally.answer("dlq", NAMES).matrix == [cell for cell in cells if cell.count]


def test_counts_begin_again_under_another_table_also_if_it_has_counted_before() -> None:
    first = handler_of("REASON(2053) ACTION(RETRY) RETRY(2)\n")
    between = handler_of("REASON(2053) ACTION(FWD) FWDQ(OPS)\n")
    own_pairs = [(own.ID, b"DLQ:0:1"), (own.ORIGIN, b"DLQ:0:1"), (own.FAILURES, b"2")]
    headers = [*dead_letter(2053, "ORDERS"), *own_pairs, (own.TABLE, first.table_id.encode())]
    parked = Records([b"k"], [b"x"], [headers], [77], [5])
    for deciding, disposition in ((first, Disposition.REMAINS), (between, Disposition.RETRY)):
        tally = Tally(deciding, first, Facts(lambda: 0.0), best_case, now=90_000)
        lane = TopicPartition("RETRY", 0)
        tally.add(LaneRecords(Over.PARKED, lane, parked))
        assert [cell.new for cell in tally.answer("dlq", NAMES).matrix] == [disposition]


def test_a_reason_is_told_clause_by_clause() -> None:
    [change] = answer_of([(2053, "PAY.IN")]).changes
    assert list(change.samples[0].because) == [
        "old table, line 2: REASON(MQRC_Q_FULL) matches, REASON=MQRC_Q_FULL",
        "new table, line 2: DESTQ(PAY*) matches, DESTQ=PAY.IN",
        "the rule of the old table is at line 3 of the new one",
    ]
    [gone] = answer_of([(2053, "PAY.IN")], new="REASON(2035) ACTION(DISCARD)\n").changes
    assert gone.samples[0].because[1:] == (
        "new table: no rule matches",
        "the new table does not have the old rule: REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)",
        (
            "closest in the new table is line 1: REASON(MQRC_NOT_AUTHORIZED) does not match,"
            " REASON=MQRC_Q_FULL"
        ),
    )


def test_rules_and_targets_are_told_with_both_counts() -> None:
    answer = answer_of([(2053, "ORDERS"), (2035, "ORDERS"), (2051, "ORDERS")])
    rules = {rule.rule: (rule.old_line, rule.old, rule.new_line, rule.new) for rule in answer.rules}
    assert rules["REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)"] == (2, 1, 3, 1)
    assert rules["REASON(MQRC_NOT_AUTHORIZED) ACTION(FWD) FWDQ(SECURITY)"] == (None, 0, 4, 1)
    assert {(str(target.target), target.old, target.new) for target in answer.targets} == {
        ("ORDERS", 1, 1),
        ("OPS", 1, 1),
        ("SECURITY", 0, 1),
    }
    assert answer.never_matched == (IdleRule(2, "DESTQ(PAY*) ACTION(DISCARD)"),)


@given(rows=letters)
def test_equal_tables_change_nothing(rows: list[tuple[int, str]]) -> None:
    answer = answer_of(rows, new=f"* another text\n{OLD}")
    assert (answer.changed, answer.changes) == (0, [])


@pytest.mark.parametrize("mode", TimestampMode)
def test_messages_that_die_young_or_may_hide_newer_ones_are_counted(mode: TimestampMode) -> None:
    """Also those that wait first; without ``keep`` none dies young."""
    topics = {
        "ORDERS": TopicFacts(retention=100_000),
        "COMPACT": TopicFacts(wants_keys=True),
        "LASTING": TopicFacts(retention=10_000_000),
    }

    def answers(questions: Questions) -> Answers:
        return Answers({name: topics[name] for name in questions.topics})

    for table in ("ACTION(RETRY)\n", "DIALECT(KAFKA)\nACTION(RETRY)\n"):
        handler = handler_of(table, timestamps=mode)
        tally = Tally(handler, handler, Facts(lambda: 0.0), answers, now=90_000)
        names = ["ORDERS", "COMPACT", "LASTING", "ORDERS"]
        records = Records(
            [b"k"] * 4,
            [b"x"] * 4,
            [dead_letter(2053, name) for name in names],
            [77] * 4,
            [*range(4)],
        )
        lane = TopicPartition("DLQ", 0)
        tally.add(LaneRecords(Over.BACKLOG, lane, records))
        young = "2 messages: ORDERS keeps records for 100s, and less than half of that is left"
        hiding = "1 message: COMPACT is compacted: an old value may hide a newer one of its key"
        expected = [young, hiding] if mode is TimestampMode.KEEP else [hiding]
        assert list(tally.answer("dlq", NAMES).notes) == expected
