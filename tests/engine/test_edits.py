"""Edits of replays: what an operation does, that it travels with its replay, and what is put."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.failed_processing import SCHEMES
from tests.engine.known_cluster import OPEN, KnownCluster
from tests.engine.samples import (
    NOW,
    dead_letter,
    handler_of,
    identity_of,
    outcomes_in,
    record,
    resolve_anything,
    slice_of,
    written,
)
from tests.engine.test_replays import ORIGINS, carried_out, instructions
from tests.outcomes.samples import row_with

from redrive.engine.attempts import Resolvers
from redrive.engine.commands import Replay, To, read_replays
from redrive.engine.context import Entry
from redrive.engine.edits import (
    Change,
    Content,
    DropHeader,
    Edit,
    Operation,
    PatchValue,
    ReplaceContent,
    SetHeader,
    call_function,
    changes,
    digest,
)
from redrive.engine.facts import Facts, Original, RecordQuestion
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import SourceKind
from redrive.kafka.records import StoredRecord
from redrive.masking import Mask
from redrive.messages import Headers, OutputRecord, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.dead_letter_header import DeadLetterHeader, encode_header
from redrive.messages.json_patch import JsonPatch
from redrive.operations.replay import planning
from redrive.operations.replay.plan import change_of
from redrive.operations.replay.planning import Preview
from redrive.rules import parse
from redrive.topology.put import Destination, Refusal

names = st.sampled_from(["a", "b", "trace", "Currency"])
raws = st.none() | st.binary(max_size=4)
contents = st.builds(Content, raws, st.lists(st.tuples(names, raws), max_size=5))
patches = st.sampled_from(
    [JsonPatch.of([{"op": "add", "path": "", "value": value}]) for value in ({"a": 1}, None, 7)]
)
operations = st.one_of(
    st.builds(SetHeader, names, st.binary(max_size=4)),
    st.builds(DropHeader, names),
    st.builds(PatchValue, patches),
    st.builds(ReplaceContent, st.text("0123456789abcdef", max_size=8), contents),
)
edits = st.builds(Edit, st.lists(operations, max_size=4).map(tuple))


def patch(*operations: dict[str, Any]) -> PatchValue:
    return PatchValue(JsonPatch.of(list(operations)))


@given(contents, names, st.binary(max_size=4))
def test_set_then_dropped_is_dropped_and_set_twice_is_set_once(
    content: Content, name: str, value: bytes
) -> None:
    setting, drop = SetHeader(name, value), DropHeader(name)
    assert Edit((setting, drop)).applied(content) == Edit((drop,)).applied(content)
    edited = Edit((SetHeader(name, b"?"), setting)).applied(content)
    assert edited == Edit((setting,)).applied(content)
    assert isinstance(edited, Content)
    assert [raw for header, raw in edited.headers if header == name] == [value]
    others = [pair for pair in content.headers if pair[0] != name]
    assert [pair for pair in edited.headers if pair[0] != name] == others


@given(contents, contents)
def test_a_difference_is_empty_exactly_if_nothing_changes(content: Content, other: Content) -> None:
    for before, after in (
        (content, other),
        (content, Content(content.value, list(content.headers))),
    ):
        is_same = before == after
        assert (changes(before, after) == "") is is_same
        for mask in (Mask(), Mask(headers=("*",)), Mask(patterns=(r".+",))):
            assert (not change_of("m", before, after, mask).lines) is is_same
    assert (digest(content) == digest(other)) is (content == other)


@given(edits)
def test_an_edit_is_read_with_its_replay_as_it_was_written(edit: Edit) -> None:
    replay = Replay(plan="p", edit=edit)
    key, entry = replay.entry()
    assert read_replays({key: entry})["p"] == replay
    assert ("edit" in entry) is bool(edit)


@pytest.mark.parametrize(
    "document",
    [
        [{"set_header": "redrive.id", "to": "eA=="}], [{"drop_header": ""}], [{"upper": 1}], ["x"],
        [{"set_header": "a", "to": "%"}], [{"json_patch": [{"op": "remove", "path": "a"}]}],
    ],
)  # fmt: skip
def test_an_edit_that_cannot_be_read_is_not_carried_out(document: list[Any]) -> None:
    key, entry = Replay(plan="p").entry()
    assert not read_replays({key: {**entry, "edit": document}})


BODY = b'{"amount": 10.5, "currency": "EU"}'
FIX = Edit((
    DropHeader("trace"),
    SetHeader("source", b"fixed"),
    patch({"op": "replace", "path": "/currency", "value": "EUR"}),
))  # fmt: skip


def letter_by_library(number: int) -> OutputRecord:
    """The dead letter that a library makes of an order."""
    headers: Headers = [("source", b"shop"), ("trace", b"1")]
    return SCHEMES[number](OutputRecord("Q", b"k", BODY, headers, 77), 5, NOW)


LETTERS = {
    "headers": OutputRecord("DLQ", b"k", BODY, [("trace", b"1"), *dead_letter(2053, "Q")], 77),
    "binary": OutputRecord(
        "DLQ", b"k", encode_header(DeadLetterHeader(reason=2053, dest_q_name="Q")) + BODY,
        [("trace", b"1")], 77,
    ),
    **{scheme.__name__: letter_by_library(number) for number, scheme in enumerate(SCHEMES)},
}  # fmt: skip


def copy_of(letter: OutputRecord) -> StoredRecord:
    """What remains of a dead letter."""
    headers = [
        *(letter.headers or []), (own.ID, ORIGINS[0]), (own.ORIGIN, ORIGINS[0]),
        (own.TIMESTAMP, b"77"), (own.HOPS, b"0"),
    ]  # fmt: skip
    if letter.key is not None:
        headers.append((own.KEY, letter.key))
    if letter.value is None:
        headers.append((own.NULL, b"1"))
    lane = TopicPartition("REMAINING", 3)
    return StoredRecord(lane, 0, NOW, ORIGINS[0], letter.value or b"", headers)


CLUSTER = KnownCluster(
    records={
        RecordQuestion("Q", 0, 5): Original(b"k", BODY, [("source", b"shop"), ("trace", b"1")], 77)
    },
    copies={ORIGINS[0]: 0},
)  # fmt: skip


def preview_of(copy: StoredRecord, monkeypatch: pytest.MonkeyPatch) -> Preview:
    monkeypatch.setattr(planning, "find_record", lambda *_: copy)
    handlers: Any = {"dlq": None}
    known: Any = CLUSTER
    return Preview(known, handlers, {"dlq": handler_of()}, Facts(lambda: 0.0), CLUSTER.answers)


ROW = row_with(handler="dlq", message="DLQ:3:0")


@pytest.mark.parametrize("name", LETTERS)
@pytest.mark.parametrize("wanted", [Replay(to=To.ORIGINAL), Replay(to=To.QUEUE, queue="R")])
def test_what_the_job_puts_is_what_the_preview_showed(
    name: str, wanted: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of(LETTERS[name])
    preview = preview_of(copy, monkeypatch)
    before = preview.content(ROW, wanted)
    typed = Content(b"typed", [("new", b"1"), *before.headers])
    fixed = FIX.applied(before)
    assert isinstance(fixed, Content)
    for edit, after in ((FIX, fixed), (Edit((ReplaceContent(digest(before), typed),)), typed)):
        replay = replace(wanted, plan="p", edit=edit)
        (shown,) = preview.changes([ROW], replay, Mask())
        assert shown == change_of("DLQ:3:0", before, after)
        cluster = KnownCluster(
            records=CLUSTER.records, copies=CLUSTER.copies, replays={"p": replay}
        )
        records = Records(
            [copy.key], [copy.value], [[*copy.headers, (own.REPLAY, b"p")]], [NOW], [0]
        )
        entries = cluster.decided(slice_of(records, handler_of(), kind=SourceKind.REPLAYS))
        (put,) = written(entries, wanted.queue or "Q")
        kept = own.without_own(put.headers or [])
        assert Content(put.value, kept) == after
        assert own.read_own(put.headers or []).identity == "DLQ:3:0"
        (outcome,) = outcomes_in(entries)
        assert outcome["edit"] == changes(before, after)
    assert b'"currency":"EUR"' in (fixed.value or b"")
    assert not any(raw == b"shop" or header == "trace" for header, raw in fixed.headers)


REFUSED: list[tuple[Operation, str]] = [
    (patch({"op": "remove", "path": "/a"}), "the value is not JSON"),
    (ReplaceContent("0" * 64, Content(b"", [])), "the message has changed since it was edited"),
]


@pytest.mark.parametrize(("operation", "text"), REFUSED)
@pytest.mark.parametrize("to", [To.ORIGINAL, To.RULES])
def test_an_edit_that_does_not_apply_leaves_the_message_where_it_was(
    operation: Operation, text: str, to: To
) -> None:
    replay = Replay(plan="p", to=to, edit=Edit((SetHeader("a", b"1"), operation)))
    entries = carried_out(instructions((ORIGINS[0], "p")), replay)
    assert not written(entries, "Q")
    assert not written(entries, "RETRY")
    (kept,) = written(entries, "REMAINING")
    assert kept.value == b"body"
    assert not any(name == "a" for name, _ in kept.headers or [])
    (outcome,) = outcomes_in(entries)
    assert (outcome["result"], outcome["reason"], outcome["attempt"]) == ("remains", 2110, 1)
    assert text in outcome["detail"]
    assert "edit" not in outcome


def test_an_edited_message_whose_target_is_full_is_not_parked_without_its_edit() -> None:
    def refuse(queue_manager: str, queue: str) -> Destination | Refusal:
        return Refusal(2053, "full")

    replay = Replay(plan="p", to=To.RULES, edit=Edit((SetHeader("a", b"1"),)))
    records = instructions((ORIGINS[0], "p"))
    entries = carried_out(records, replay, handler=handler_of(resolve=refuse))
    assert not written(entries, "RETRY")
    assert [outcome["result"] for outcome in outcomes_in(entries)] == ["remains"]


def test_an_outcome_has_no_value_of_what_was_edited() -> None:
    edit = Edit((SetHeader("password", b"S3CRET"), DropHeader("none")))
    entries = carried_out(instructions((ORIGINS[0], "p")), Replay(plan="p", edit=edit))
    (outcome,) = outcomes_in(entries)
    assert outcome["edit"] == "headers password"
    assert "S3CRET" not in str(outcome)


TRANSFORMED = "DIALECT(KAFKA)\nACTION({}) TRANSFORM(t)\n"


def transformed(action: str, change: Change | None) -> list[Entry]:
    """What is written for a fresh dead letter of a table with one transformation."""
    decider = RulesDecider(
        identity_of("DLQ", name="dlq", queue="DLQ"),
        parse(TRANSFORMED.format(action)).required(),
        Resolvers(lambda manager, queue, _: resolve_anything(manager, queue)),
        hop_limit=25,
        transforms={} if change is None else {"t": change},
    )
    failure = [
        ("topic_poisoned", b"Q"),
        ("reason_poisoned", b"no"),
    ]  # its time is that of the failure
    letter = record(BODY, [("trace", b"1"), *failure])
    return OPEN.decided(slice_of(letter, decider))


def function(change: Any, seconds: float = 0.0) -> Change:
    return partial(call_function, "t", change, clock=cycle([0.0, seconds]).__next__)


def without(name: str) -> Change:
    """A transform that removes a member of the value."""
    return Edit((patch({"op": "remove", "path": f"/{name}"}),), "TRANSFORM(t)").applied


def raised(error: BaseException) -> Any:
    def change(value: bytes | None, headers: Headers) -> None:
        raise error

    return change


ACTIONS = {"RETRY": "Q", "FWD) FWDT(R": "R"}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_rule_puts_what_its_transformation_made(action: str) -> None:
    (_, retried), *_ = transformed(
        action, function(lambda value, _: (value[::-1], [("new", None)]))
    )
    assert retried.topic == ACTIONS[action]
    assert retried.value == BODY[::-1]
    assert own.without_own(retried.headers or []) == [("new", None)]
    entries = transformed(action, without("amount"))
    (put,) = written(entries, ACTIONS[action])
    assert put.value == b'{"currency":"EU"}'
    (outcome,) = outcomes_in(entries)
    assert outcome["edit"].startswith("value sha256:")


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        (None, 2110, "the settings have no [transforms.t]"),
        (without("a"), 2110, "TRANSFORM(t) does not apply: operation 1, remove '/a': there is no"),
        (function(raised(ValueError("bad"))), 2374, "TRANSFORM(t) failed: ValueError: bad"),
        (function(raised(SystemExit(3))), 2374, "SystemExit: 3"),
        (function(lambda *_: b"x"), 2374, "not return a pair of value and headers"),
        (function(lambda *_: ("x", [])), 2374, "not return a pair of bytes and a list"),
        (function(lambda *_: (b"x", [("a", "b")])), 2374, "not a pair of text and bytes"),
        (function(lambda *_: (b"x", [("redrive.id", b"")])), 2374, "are Redrive's own"),
        (function(lambda *_: (b"x", []), 1.1), 2374, "it took 1.1 s"),
    ],
)
def test_a_transformation_that_fails_is_a_failed_attempt(
    change: Change | None, reason: int, detail: str
) -> None:
    entries = transformed("RETRY", change)
    assert not written(entries, "Q")
    (kept,) = written(entries, "REMAINING")
    assert kept.value == BODY
    (outcome,) = outcomes_in(entries)
    assert (outcome["result"], outcome["reason"], outcome["attempt"]) == ("remains", reason, 1)
    assert detail in outcome["detail"]


def test_an_edit_has_the_last_word_behind_a_transformation() -> None:
    edit = Edit((patch({"op": "test", "path": "", "value": 1}), SetHeader("a", b"2")))
    replay = Replay(plan="p", to=To.RULES, edit=edit)
    decider = RulesDecider(
        identity_of("DLQ", name="dlq", queue="DLQ"),
        parse(TRANSFORMED.format("RETRY")).required(),
        Resolvers(lambda manager, queue, _: resolve_anything(manager, queue)),
        hop_limit=25,
        transforms={"t": function(lambda *_: (b"1", [("a", b"1"), ("b", b"1")]))},
    )
    entries = carried_out(instructions((ORIGINS[0], "p")), replay, handler=decider)
    (put,) = written(entries, "Q")
    kept = own.without_own(put.headers or [])
    assert Content(put.value, kept) == Content(b"1", [("a", b"2"), ("b", b"1")])
