"""JSON Patch (RFC 6902): what each operation does, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases_beside

from redrive.messages.json_patch import JsonPatch, read_json, write_json

in_table = cases_beside(__file__)
MEMBERS = {
    "remove": ("op", "path"), "move": ("op", "from", "path"), "copy": ("op", "from", "path"),
}  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=3), inner),
    max_leaves=12,
)  # fmt: skip


def patched(document: Any, *operations: dict[str, Any]) -> Any:
    return json.loads(JsonPatch.of(list(operations)).applied(json.dumps(document).encode()))


@in_table
def test_an_operation_changes_what_the_rfc_says(
    before: object, operation: list[Any], after: object
) -> None:
    members = MEMBERS.get(operation[0], ("op", "path", "value"))
    assert patched(before, dict(zip(members, operation, strict=True))) == after


@pytest.mark.parametrize(
    ("value", "operation", "problem"),
    [
        (b"not json", {"op": "remove", "path": "/a"}, "the value is not JSON"),
        (None, {"op": "remove", "path": "/a"}, "the value is null"),
        (b"\xff", {"op": "remove", "path": "/a"}, "the value is not JSON"),
        (b'{"a": 1, "a": 2}', {"op": "remove", "path": "/a"}, "repeats a member"),
        (b'{"a": 0.12345678901234567890}', {"op": "remove", "path": "/a"}, "more digits"),
        (b'{"a": 1e999}', {"op": "remove", "path": "/a"}, "more digits"),
        (b'{"a": NaN}', {"op": "remove", "path": "/a"}, "NaN is not JSON"),
        (b"[" * 100_000, {"op": "remove", "path": "/a"}, "nested too deeply"),
        (b'"\\ud800"', {"op": "test", "path": "", "value": "\ud800"}, "surrogates"),
        (b"{}", {"op": "remove", "path": "/a"}, "operation 1, remove '/a': there is no /a"),
        (b"{}", {"op": "replace", "path": "/a", "value": 1}, "there is no /a"),
        (b"{}", {"op": "add", "path": "/a/b", "value": 1}, "there is no /a"),
        (b"[]", {"op": "add", "path": "/1", "value": 1}, "nothing can be added at /1"),
        (b"[1]", {"op": "replace", "path": "/-", "value": 1}, "there is no /-"),
        (b"[1]", {"op": "remove", "path": "/00"}, "there is no /00"),
        (b'{"a": "b"}', {"op": "add", "path": "/a/c", "value": 1}, "nothing can be added at /a/c"),
        (b'{"a": true}', {"op": "test", "path": "/a", "value": 1}, "the value there is different"),
        (b'{"a": "1"}', {"op": "test", "path": "/a", "value": 1}, "the value there is different"),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_apply_says_why(
    value: bytes | None, operation: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        JsonPatch.of([operation]).applied(value)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "an array of operations"),
        ([], "an array of operations"),
        (
            [{"op": "test", "path": "", "value": 1}, 7],
            ("operation 2: op must be one of add, replace"),
        ),
        ([{"op": "merge", "path": ""}], "op must be one of"),
        ([{"op": "add", "path": "/a"}], "add needs value"),
        ([{"op": "remove"}], "remove needs path"),
        ([{"op": "copy", "path": "/a"}], "copy needs from"),
        ([{"op": "remove", "path": "a"}], "begins with /"),
        ([{"op": "remove", "path": "/~2"}], "after ~ comes 0 or 1"),
        ([{"op": "remove", "path": ""}], "of the whole value"),
        ([{"op": "move", "from": "/a", "path": "/a/b"}], "moved into itself"),
    ],
)
def test_what_is_no_patch_is_refused_before_it_is_applied(document: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JsonPatch.of(document)


@given(values)
def test_a_value_survives_reading_and_writing(value: object) -> None:
    for indent in (None, 2):
        assert read_json(write_json(value, indent=indent)) == value


@given(values, values)
def test_what_is_added_and_removed_again_changes_nothing(value: object, more: object) -> None:
    patch = JsonPatch.of([{"op": "add", "path": "/0/new", "value": more}])
    back = JsonPatch.of([{"op": "remove", "path": "/0/new"}])
    before = write_json([{"old": value}])
    assert back.applied(patch.applied(before)) == before


def test_a_patch_is_the_same_for_each_message() -> None:
    patch = JsonPatch.of([
        {"op": "add", "path": "/a", "value": []}, {"op": "add", "path": "/a/-", "value": 1}
    ])  # fmt: skip
    assert patch.applied(b"{}") == patch.applied(b"{}") == b'{"a":[1]}'
