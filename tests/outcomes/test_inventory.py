"""Where dead letters stand, by the ledger and by what it does not hold yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.outcomes.samples import START, append, outcome, rows

from redrive.command.ls import trends_of
from redrive.engine.commands import ACKNOWLEDGED, states_of
from redrive.engine.outcome import UNTOUCHED
from redrive.errors import EnvironmentFault, UsageError
from redrive.outcomes.acknowledgements import Acknowledgement, acknowledgements_of
from redrive.outcomes.conditions import engine_condition
from redrive.outcomes.inventory import Group, Inventory, Selection, State, state_of
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.open_letters import OPEN, OpenLetters, write_open_letters
from redrive.outcomes.rows import Row, moment
from redrive.outcomes.table import LedgerTable

WRITTEN = 3
"""Ends, the beginning among them, from which on letters have been written down."""

stories = st.lists(
    st.tuples(
        st.lists(
            st.sampled_from(["parked", "held", "remains", "quarantined", "skipped", "cancelled"]),
            max_size=4,
        ),
        st.sampled_from(["", "retried", "forwarded", "discarded"]),
        st.none() | st.lists(st.sampled_from(["skipped", "parked", "remains"]), max_size=3),
    ).filter(lambda story: story[0] or story[1]),
    min_size=1,
    max_size=8,
)


Story = tuple[list[str], str, list[str] | None]
"""Where a dead letter waits, its end, and before that end what follows on an undone discard."""


def outcomes_of(stories: Sequence[Story]) -> list[dict[str, Any]]:
    """The outcomes of some dead letters, attempt by attempt, those of all mixed."""
    story_members: list[tuple[int, int, dict[str, Any]]] = []
    for letter, (waiting, end, undone) in enumerate(stories):
        # A replay may come too late.
        after = [end, "skipped"][: 1 + letter % 2] if end else []
        again = [] if undone is None else ["discarded", *undone]
        is_discarded = False
        for attempt, result in enumerate([*waiting, *again, *after]):
            place = f"orders.dlq:0:{letter}"
            members = {"origin": place, "message": place, "result": result, "attempt": attempt + 1}
            if is_discarded:
                members["replay"] = "p"
            if result not in UNTOUCHED:
                is_discarded = result == "discarded"
            if result == "quarantined":
                members |= {"result": "remains", "action": "QUARANTINE"}
            if result == "held":
                members |= {"result": "parked", "attempt": 0}
            members["outcome"] = f"redrive-shop-retry:0:{len(story_members)}" if attempt else place
            members["reason"] = 2053 if letter % 2 else 2085
            if letter % 3 or again:  # others are of an earlier version
                members["failed_at"] = START - letter * 7_000_000
            members["fields"] = {"DESTQ": f"Q{letter % 3}", "REASON": 2053}
            story_members.append((attempt, letter, members))
    story_members.sort(key=lambda item: item[:2])
    return [outcome(number, **members) for number, (_, _, members) in enumerate(story_members)]


def opened(folder: Path, known: Sequence[Row], tail: Sequence[Row]) -> Inventory:
    table = None
    if known:
        append(folder, list(known))
        table = LedgerTable.open(folder)
    return Inventory(Ledger(table, tuple(tail)))


def opened_in_steps(folder: Path, every: Sequence[Row], cuts: Sequence[int]) -> Inventory:
    """The last cut is the end of the ledger; at those before, open letters are written down."""
    begin = 0
    for cut in cuts:
        if begin:
            write_open_letters(folder)
        if every[begin:cut]:
            append(folder, list(every[begin:cut]))
        begin = max(begin, cut)
    table = LedgerTable.open(folder)
    assert (table and OpenLetters.of(table)) is not None or len({*cuts, 0}) < WRITTEN
    return Inventory(Ledger(table, tuple(every[begin:])))


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    stories=stories,
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=3).map(sorted),
    state=st.sampled_from(State),
)
def test_each_dead_letter_is_told_by_its_last_outcome(
    tmp_path_factory: pytest.TempPathFactory,
    stories: list[Story],
    cuts: list[int],
    state: State,
) -> None:
    every = rows(outcomes_of(stories), partitions=1)
    last = {row.origin: row for row in every if row.result not in UNTOUCHED}
    wanted = [
        row
        for row in last.values()
        if row.result in state.results
        and (state is State.ALL or (state_of(row) == "quarantined") is (state is State.QUARANTINED))
        and (state is not State.HELD or state_of(row) == "held")
    ]
    folder = tmp_path_factory.mktemp("job") / "ledger"
    with opened_in_steps(folder, every, cuts) as inventory:
        listing = inventory.letters(Selection(state=state), limit=100)
        half = len(wanted) // 2 + 1
        pages = [
            inventory.letters(Selection(state=state), limit=half, skipped=number * half)
            for number in range(3)
        ]
        groups, total = inventory.groups(Selection(state=state), limit=100)
    assert [row for page in pages for row in page.letters] == [*listing.letters]
    assert {page.total for page in pages} == {listing.total}, "also past the end"
    assert listing.total == total == len(wanted)
    assert sorted(row.outcome for row in listing.letters) == sorted(row.outcome for row in wanted)
    decided = [row for row in every if row.result not in UNTOUCHED]
    failures = {
        row.origin: row.failed_at or min(each.time for each in decided if each.origin == row.origin)
        if row.result in OPEN
        else row.failed_at or row.time
        for row in wanted
    }
    failed = [failures[row.origin] for row in listing.letters]
    assert failed == sorted(failed, reverse=True)
    counted = Counter((row.field_destq, row.reason_name) for row in wanted)
    groups_found: Counter[tuple[str, str]] = Counter()
    for group in groups:
        groups_found[group.destination, group.failure] += group.count
        assert group.example in last
        assert group.first <= group.last
    assert groups_found == counted
    if groups:
        assert min(group.first for group in groups) == min(failed)
        assert max(group.last for group in groups) == max(failed)


PLAIN = {
    "result": "remains", "handler": "h", "form": "connect", "reason_name": "",
    "error_class": None, "consumer_group": None, "fields": {"REASON": 2110, "DESTQ": "orders"},
}  # fmt: skip


def rows_with(every: Iterable[dict[str, Any]]) -> Sequence[Row]:
    """Outcomes with these members, in this order."""
    return rows([outcome(number, **members) for number, members in enumerate(every)], partitions=1)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    """Three open dead letters in the ledger, one of them retried since; two that are new."""
    members: list[dict[str, Any]] = [
        {"origin": "d:0:1", "result": "remains", "reason": 2053, "key": "a2V5", "rule_line": 3},
        {"origin": "d:0:2", "result": "parked", "reason": 2085, "fields": {"DESTQ": "it's"}},
        {"origin": "d:0:3", "result": "remains", "fields": {"REASON": 2051}, "handler": "bills"},
        {"origin": "d:0:2", "result": "retried"},
        {"origin": "d:0:4", "result": "parked", "key": None, "attempt": 0},
        {"origin": "d:0:5", "result": "remains", "action": "QUARANTINE", "handler": "late"},
    ]
    every = rows_with(members)
    return opened(tmp_path / "ledger", every[:3], every[3:])


@pytest.mark.parametrize(
    ("selection", "origins"),
    [
        (Selection(), [4, 3, 1]),
        (Selection(state=State.REMAINING), [3, 1]),
        (Selection(state=State.RETRIED), [2]),
        (Selection(state=State.ALL), [5, 4, 2, 3, 1]),
        (Selection(state=State.QUARANTINED), [5]),
        (Selection(state=State.HELD), [4]),
        (Selection(message="d:0:5"), [5]),
        (Selection(reason=2051), [3]),
        (Selection(state=State.REMAINING, reason=2053), [1]),
        (Selection(handler="bills"), [3]),
        (Selection(rule=3, key=b"key"), [1]),
        (Selection(since=moment(START + 2 * 7_000_000)), [4, 3]),
        (Selection(before=moment(START + 2 * 7_000_000)), [1]),
        (Selection(looked_since=moment(START + 2 * 7_000_000)), [4, 3]),
        (Selection(destination="it's"), []),
        (Selection(where="origin LIKE 'd:%:4' OR result = 'remains'"), [4, 3, 1]),
        (Selection(where="1 = 0"), []),
    ],
)
def test_filters_hold_for_the_last_outcome(
    inventory: Inventory, selection: Selection, origins: list[int]
) -> None:
    """Also a condition in SQL, on rows of the ledger and on those that it does not hold yet."""
    with inventory:
        listing = inventory.letters(selection, limit=10)
    origins_found = [row.origin for row in listing.letters if row.reason != -1]
    assert set(origins_found) >= {f"d:0:{number}" for number in origins}
    if selection.rule is None and selection.reason is None:
        assert origins_found == [f"d:0:{number}" for number in origins]


def test_what_stands_is_counted_by_handler_with_quarantined_messages_apart(
    inventory: Inventory,
) -> None:
    with inventory:
        standing = inventory.standing()
    assert {key: figures.count for key, figures in standing.items()} == {
        ("payments", State.PARKED): 1,
        ("payments", State.REMAINING): 1,
        ("bills", State.REMAINING): 1,
        ("late", State.QUARANTINED): 1,
    }
    assert standing["payments", State.PARKED].held == 1


def acknowledgement(**chosen: Any) -> Acknowledgement:
    """One that was made a second after the first sample."""
    more: dict[str, Any] = {
        name: chosen.pop(name) for name in ("made", "covers_new") if name in chosen
    }
    given = {"made": moment(START + 1000), "until": moment(START), **more}
    selection = Selection(state=State.REMAINING, **chosen)
    return Acknowledgement(id="5f2a", operator="ann", note="kept", selection=selection, **given)


@pytest.mark.parametrize(
    ("given", "covered"),
    [
        ([], set()),
        ([{}], {0}),
        ([{"covers_new": True}], {0, 2, 3}),
        ([{"covers_new": True, "reason": 2053}], {0, 2}),
        ([{"covers_new": True, "where": "origin LIKE '%:3'"}, {}], {0, 3}),
        ([{"covers_new": True, "where": "CAST(origin AS INT) = 1"}, {}], {0}),
        ([{"covers_new": True, "since": moment(START + 9_000)}], {2, 3}),
        ([{"covers_new": True, "looked_since": moment(START + 9_000)}], {2, 3}),
        ([{"covers_new": True, "before": moment(START + 9_000), "key": b"key"}], {0}),
        ([{"covers_new": True, "destination": "Q", "handler": "orders", "rule": 2}], {2}),
    ],
)
def test_what_is_acknowledged_counts_as_such_in_every_view(
    tmp_path: Path, given: list[dict[str, Any]], covered: set[int]
) -> None:
    members = [
        {"result": "remains", "reason": 2053, "key": "a2V5"},
        {"result": "parked", "reason": 2053},
        {"result": "remains", "reason": 2053, "fields": {"DESTQ": "Q"}},
        {"result": "remains", "reason": 2085},
        {"result": "remains", "reason": 2085, "action": "QUARANTINE"},
        {"result": "retried", "reason": 2085},
    ]
    plain = {"handler": "orders", "action": "RETRY", "key": None, "fields": {"REASON": 2085}}
    every = rows(
        [
            outcome(
                number, **plain, origin=f"d:0:{number}", outcome=f"d:0:{number}",
                message=f"d:0:{number}", rule_line=number, time=START + 10_000 * number
            )
            | letter
            for number, letter in enumerate(members)
        ],
        partitions=1,
    )  # fmt: skip
    made = [acknowledgement(**fields) for fields in given]
    entries = states_of(
        {f"{ACKNOWLEDGED}{number}": entry.entry()[1] for number, entry in enumerate(made)}
    ).acknowledged
    read = acknowledgements_of(entries, moment(START - 1))
    assert [replace(acknowledgement_read, id="5f2a") for acknowledgement_read in read] == made
    assert acknowledgements_of({"x": {"made": "?"}}, moment(START)) == ()
    table_rows = every[:3]
    append(tmp_path / "ledger", list(table_rows))
    ledger = Ledger(LedgerTable.open(tmp_path / "ledger"), tuple(every[3:]))
    with Inventory(ledger, read) as inventory:
        standing = inventory.standing()
        listing = inventory.letters(Selection(state=State.ALL), limit=9)
        groups, _ = inventory.groups(Selection(state=State.ALL), limit=9)
    assert listing.acknowledged == {f"d:0:{number}" for number in covered}
    assert sum(group.acknowledged for group in groups) == len(covered)
    remaining = standing["orders", State.REMAINING]
    assert (remaining.count, remaining.acknowledged) == (3, len(covered))
    oldest = min({0, 2, 3} - covered, default=None)
    assert remaining.unacknowledged_since == (
        None if oldest is None else START / 1000 + 10 * oldest
    )
    assert standing["orders", State.PARKED].acknowledged == 0
    assert standing["orders", State.QUARANTINED].acknowledged == 0


@pytest.mark.parametrize("where", ["field_destq = 'A'", "\"field_destq\" = 'A'"])
def test_a_condition_reaches_a_column_however_it_names_it(tmp_path: Path, where: str) -> None:
    every = rows_with({**PLAIN, "fields": {"DESTQ": queue}} for queue in "AAB")
    with opened(tmp_path / "ledger", every, []) as inventory:
        assert inventory.count(Selection(where=where)) == 2
        assert len(inventory.places(Selection(where=where), limit=None).rows) == 2


def test_acknowledgement_of_an_earlier_version_without_end_stays_in_effect() -> None:
    key, value = acknowledgement(covers_new=True).entry()
    entry = {**value, "until": None, "owner": "ann"}
    entries = {key.removeprefix(ACKNOWLEDGED): entry}
    assert acknowledgements_of(entries, moment(START)) == (
        replace(acknowledgement(covers_new=True), until=None),
    )


def test_acknowledgement_of_an_earlier_version_is_about_the_last_outcome() -> None:
    entry = {
        **acknowledgement(where="attempt > 2").entry()[1],
        "since": START / 1000,
        "before": START / 1000 + 1.5,
    }
    del entry["failed_since"], entry["failed_before"]
    selection = Acknowledgement.of("5f2a", entry).selection
    assert (selection.since, selection.looked_since) == (None, moment(START))
    assert engine_condition(selection.where)
    assert selection.where == "(attempt > 2) AND time < TIMESTAMP '2026-09-21 14:13:21.500000Z'"


@pytest.mark.parametrize(
    ("where", "problem", "hint"),
    [
        ("no_such_column = 1", "there is no column no_such_column", "docs/ledger.md"),
        ("destq = 'X'", "there is no column destq", "did you mean field_destq?"),
        ("Reason = 2053", "there is no column Reason", "did you mean field_reason?"),
        ('handler = "bills"', "there is no column bills", "single quotes: 'bills'"),
        ("origin LIKE", "does not fit at 'LIKE', character 8", "docs/ledger.md"),
        ("reason = = 1", "does not fit at '=', character 10", "docs/ledger.md"),
        ("reason = 1 AND\n(", "at '(', line 2, character 1", "docs/ledger.md"),
        ("reason\n= = 1", "at '=', line 2, character 3", "docs/ledger.md"),
        ("1 = 1) OR (1 = 1", "at ')', character 6", "docs/ledger.md"),
        ("reason = 1; SELECT 1", "not one expression", "docs/ledger.md"),
        ("'", "quotation mark is not closed", "docs/ledger.md"),
        ("reason = 'many'", "cannot be converted", "docs/ledger.md"),
        ("CAST(origin AS INT) = 1", "cannot be converted", "docs/ledger.md"),
        ("reason LIKE 'a'", "types of its values do not fit", "docs/ledger.md"),
        ("reason % 0 = 1", "divides by zero", "docs/ledger.md"),
        ("origin ~ '('", "regular expression", "docs/ledger.md"),
        ("count(*) > 1", "count is not a function of conditions", "starts_with"),
        ("reason IN (SELECT reason FROM ledger)", "SUBQUERY cannot be part", "docs/ledger.md"),
    ],
)
def test_a_condition_that_is_none_is_a_mistake_of_the_user(
    inventory: Inventory, where: str, problem: str, hint: str
) -> None:
    with (
        inventory,
        pytest.raises(UsageError, match=r"^--where is not a valid condition") as refused,
    ):
        inventory.letters(Selection(where=where), limit=1)
    assert problem in refused.value.message
    assert hint in str(refused.value.hint)


def test_a_comment_in_a_condition_ends_with_it(inventory: Inventory) -> None:
    with inventory:
        selection = Selection(state=State.REMAINING, where="handler = 'bills' -- mine")
        assert [letter.origin for letter in inventory.letters(selection, limit=9).letters] == [
            "d:0:3"
        ]


@pytest.mark.parametrize("where", ["", "handler = 'bills'", "CAST(origin AS INT) = 1"])
def test_a_ledger_that_cannot_be_read_is_told_and_never_empty(
    inventory: Inventory, tmp_path: Path, where: str
) -> None:
    for path in (tmp_path / "ledger").glob("day=*/*.parquet"):
        path.write_bytes(b"nothing that was written")
    with (
        inventory,
        pytest.raises(EnvironmentFault, match=r"the ledger in .* cannot be used") as refused,
    ):
        inventory.letters(Selection(where=where), limit=1)
    assert "\n" not in refused.value.message


def groups_of(folder: Path, *letters: dict[str, Any]) -> Sequence[Group]:
    """The groups of dead letters that remain, each with what it has beside the others."""
    every = rows_with(
        {**PLAIN, "origin": f"d:0:{number}", **letter} for number, letter in enumerate(letters)
    )
    with opened(folder / "ledger", every, []) as inventory:
        return inventory.groups(Selection(), limit=9)[0]


def test_a_group_without_a_dead_letter_header_has_no_reason(tmp_path: Path) -> None:
    """The reason 0 is one that a header can have, and no group is made of both."""
    fields = {"REASON": 0, "DESTQ": ""}
    forms = ("none", "none", "headers")
    groups = groups_of(tmp_path, *({"form": form, "fields": fields} for form in forms))
    assert [(group.reason, group.count) for group in groups] == [(None, 2), (0, 1)]


def test_each_exception_is_a_group_of_its_own(tmp_path: Path) -> None:
    classes = ["java.io.IOException", None, "java.lang.Error", "java.io.IOException"]
    groups = groups_of(tmp_path, *({"error_class": error_class} for error_class in classes))
    assert {group.error_class: group.count for group in groups} == {
        "java.io.IOException": 2, "": 1, "java.lang.Error": 1,
    }  # fmt: skip


def test_group_counts_dead_letters_of_one_record(tmp_path: Path) -> None:
    record, other = "orders:0:7", "orders:1:7"
    places = [
        *(("a", record, 0), ("a", record, 0), ("a", record, 0), ("a", record, 1)),
        *(("a", other, 0), ("a", None, 0), ("a", None, 0), ("b", record, 0)),
    ]
    names = ("consumer_group", "failed_record", "hop")
    groups = groups_of(tmp_path, *(dict(zip(names, place, strict=True)) for place in places))
    assert {group.consumer_group: (group.count, group.repeated) for group in groups} == {
        "a": (7, 2), "b": (1, 0),
    }  # fmt: skip


NOW = START + 86_400_000 * 12
"""Milliseconds: when the first run of a job decides about what failed before."""


@pytest.fixture
def backlog(tmp_path: Path) -> Inventory:
    """Two dead letters of each of twelve days, all decided in one minute, one of them replayed."""
    every = [
        {
            **PLAIN, "origin": f"d:0:{number}", "outcome": f"d:0:{number}",
            "time": NOW - 60_000 + number, "failed_at": START + number * 43_200_000,
        }
        for number in range(24)
    ]  # fmt: skip
    every.append({**every[3], "outcome": "replay:0:1", "time": NOW, "replay": "p"})
    return opened(tmp_path / "ledger", rows_with(every), [])


def test_backlog_of_twelve_days_has_bars_on_twelve_days(backlog: Inventory) -> None:
    with backlog:
        [group] = backlog.groups(Selection(), limit=9)[0]
        bars = backlog.arrivals(Selection(), moment(START), 86_400)
        assert {part: number for _, part, number in bars} == dict.fromkeys(range(12), 2)
        [trend] = trends_of(backlog, Selection(), [group], 12)
    assert (group.first, group.last) == (moment(START), moment(START + 23 * 43_200_000))
    assert len(trend) == sum(map(bool, trend)) == 12
    assert sum(trend) == group.count


def test_old_failures_are_found_on_the_day_of_their_decision(backlog: Inventory) -> None:
    week_ago = moment(NOW - 7 * 86_400_000)
    with backlog:
        old = backlog.places(Selection(state=State.REMAINING, before=week_ago), limit=None)
        new = backlog.letters(Selection(since=week_ago), limit=99)
        looked_at = backlog.count(Selection(looked_since=moment(NOW - 60_000)))
    assert [row.origin for row in old.rows] == [f"d:0:{number}" for number in range(10)]
    assert [row.origin for row in new.letters] == [f"d:0:{number}" for number in range(23, 9, -1)]
    assert looked_at == 24


def test_history_of_a_handler_begins_with_a_failure(backlog: Inventory) -> None:
    with backlog:
        seen = backlog.first_seen("h", moment(NOW - 86_400_000))
        assert sum(number for *_, number in seen) == 2


def test_an_empty_ledger_has_no_dead_letters(tmp_path: Path) -> None:
    with opened(tmp_path, [], []) as inventory:
        assert inventory.letters(Selection(), limit=1).total == 0
        assert inventory.groups(Selection(), limit=1) == ([], 0)


def test_dead_letters_that_their_topics_hold_are_counted_by_partition(tmp_path: Path) -> None:
    origins = ("d:0:1", "d:0:7", "d:0:9", "d:1:3", "d~2:0:4")
    members = [{"origin": at, "result": "discarded", "handler": "d"} for at in origins]
    every = rows_with(members)
    selection = Selection(state=State.DISCARDED)
    with opened(tmp_path / "ledger", every[:3], every[3:]) as inventory:
        held = inventory.held(selection, {"d:0": 2, "d:1": 4})
        nothing = inventory.held(selection, {})
    known = [(row["place"], row["n"], row["held"], row["first"]) for row in held]
    assert known == [("d:0", 3, 2, 7), ("d:1", 1, 0, None), ("d~2:0", 1, 0, None)]
    assert [row["held"] for row in nothing] == [0, 0, 0]


def test_what_a_plan_is_made_of_tells_how_often_a_message_was_replayed(tmp_path: Path) -> None:
    columns = {"replay": "p", "operator": "ann", "purpose": "", "attempt": 2}
    none = {**dict.fromkeys(columns), "attempt": 1}
    members: list[dict[str, Any]] = [
        {"origin": "d:0:1", "result": "remains", **none},
        {"origin": "d:0:2", "result": "remains", **none},
        {"origin": "d:0:1", "result": "remains", **columns},
        {"origin": "d:0:2", "result": "cancelled", **columns},
        {"origin": "d:0:2", "result": "discarded", **columns},
        {"origin": "d:0:2", "result": "remains", **columns, "attempt": 0},
        {"origin": "d:0:3", "result": "remains", **none},
        {"origin": "d:0:3", "result": "forwarded", **columns},
        {"origin": "d:0:1", "result": "remains", **columns, "replay": "q"},
    ]
    every = rows_with(members)
    with opened(tmp_path / "ledger", every[:3], every[3:]) as inventory:
        places = inventory.places(Selection(state=State.REMAINING), limit=None)
        first = inventory.places(Selection(state=State.REMAINING), limit=1)
        replayed = inventory.replayed()
    assert [row.origin for row in places.rows] == ["d:0:1", "d:0:2"]
    assert places.replays == {"d:0:1": 2}
    assert [row.origin for row in first.rows] == ["d:0:1"]
    by_p = {"remains": 2, "cancelled": 1, "discarded": 1, "forwarded": 1}
    assert replayed == {"p": by_p, "q": {"remains": 1}}
