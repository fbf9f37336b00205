"""Paths into JSON values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.messages.json_patch import JsonPath

DOCUMENT = {"a": {"b-c": [{"d": "x"}, 7, True, None]}, "e f": "y", "it's": 1.5, "": 0}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a.b-c[0].d", "x"),
        ("$.a['b-c'][1]", "7"),
        ('$["a"]["b-c"][2]', "true"),
        ("$.a.b-c[3]", None),
        ("$.a.b-c[4]", None),
        ("$.a.b-c[0]", '{"d":"x"}'),
        ("$['e f']", "y"),
        (r"$['it\'s']", "1.5"),
        ("$['']", "0"),
        ("$.a.b-c.d", None),
        ("$[0]", None),
    ],
)
def test_a_path_leads_to_a_value_as_text(path: str, text: str | None) -> None:
    """Texts as they are, anything else as JSON; nothing there, or null, is nothing."""
    assert JsonPath.of(path).find(DOCUMENT) == text


@pytest.mark.parametrize(
    "path", ["", "a.b", "$a", "$.", "$.a[*]", "$..a", "$[-1]", "$['a", "$.a b"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"begin|neither"):
        JsonPath.of(path)


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(_JSON, st.lists(st.integers(0, 3) | st.text(max_size=3), max_size=3))
def test_any_path_finds_what_plain_indexing_finds(document: Any, steps: list[str | int]) -> None:
    written = "".join(
        f"[{step}]"
        if isinstance(step, int)
        else "['{}']".format(step.replace("\\", "\\\\").replace("'", "\\'"))
        for step in steps
    )
    expected = document
    for step in steps:
        is_place = isinstance(expected, dict if isinstance(step, str) else list)
        try:
            expected = expected[step] if is_place else None
        except LookupError:
            expected = None
    path = JsonPath.of(f"${written}")
    assert path.steps == tuple(steps)
    text = path.find(document)
    if expected is None:
        assert text is None
    else:
        assert text is not None
        assert (text if isinstance(expected, str) else json.loads(text)) == expected
