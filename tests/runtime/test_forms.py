"""Forms tell what a person needs about a wrong file, and are JSON Schemas for editors."""

from __future__ import annotations

import json
import tomllib
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import Field

from redrive.command.test import FORM as TESTS
from redrive.forms import FileForm, Flag, Natural, TableForm, Text, number
from redrive.settings_file import FORM as SETTINGS
from redrive.topology.bindings import FORM as BINDINGS
from redrive.topology.mqe.reader import FORM as NETWORK

EXAMPLES = Path(__file__).parents[2] / "examples"
Empty = make_dataclass("Empty", (), bases=(TableForm,))
Letters = Annotated[str, Field(title="letters", pattern=r"\Aa\Z")]


def editor(form: FileForm[Any]) -> Draft202012Validator:
    """What an editor makes of a form."""
    schema = json.loads(form.json_schema())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("form", [SETTINGS, BINDINGS, NETWORK, TESTS], ids=lambda form: form.title)
def test_an_editor_refuses_an_unknown_key(form: FileForm[Any]) -> None:
    assert not editor(form).is_valid({"unknown": 1})


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.rglob("*.toml")), ids=lambda path: path.parent.name
)
def test_an_editor_accepts_the_examples(path: Path) -> None:
    assert list(editor(SETTINGS).iter_errors(tomllib.loads(path.read_text()))) == []
    for network in path.parent.glob("network.yaml"):
        assert list(editor(NETWORK).iter_errors(yaml.safe_load(network.read_text()))) == []


def form_of(*keys: tuple[str, Any]) -> FileForm[Any]:
    """The form of a file with these required keys."""
    table = make_dataclass("Table", keys, bases=(TableForm,), kw_only=True)
    return FileForm(table, "[top]", "table")


@pytest.mark.parametrize(
    ("kind", "data", "code", "message", "expected"),
    [
        (Natural, True, "WRONG_TYPE", "key is true or false", "a whole number"),
        (Natural, 2.0, "WRONG_TYPE", "key is a number", "a whole number"),
        (
            Annotated[float, number("", 0, 1)],
            float("nan"),
            "WRONG_TYPE",
            "key is not a number",
            "a number",
        ),
        (Flag, 1, "WRONG_TYPE", "key is a whole number", "true or false"),
        (str, None, "WRONG_TYPE", "key is empty", "text"),
        (str, {}, "WRONG_TYPE", "key is a table", "text"),
        (Annotated[Empty, Field(title="[key]")], 1, "WRONG_TYPE", "a whole", "table: [key]"),
        (Natural, -1, "OUT_OF_RANGE", "key is -1", "number from 0"),
        (Annotated[int, number("", 0, 5000)], 6000, "OUT_OF_RANGE", "is 6,000", "to 5,000"),
        (Text, "", "EMPTY", "key is empty", "text"),
        (
            Literal["one", "two"],
            "own",
            "BAD_VALUE",
            "'own' is not a valid key",
            "one of one, two",
        ),
        (Letters, "a\n", "BAD_VALUE", r"'a\n' is not a valid key", "letters"),
    ],
)
def test_a_wrong_value_is_told_in_words(
    kind: Any, data: object, code: str, message: str, expected: str
) -> None:
    (flaw,) = form_of(("key", kind)).flaws({"key": data})
    assert (flaw.path, flaw.code) == (("key",), code)
    assert message in flaw.message
    assert expected in flaw.expected


def test_a_value_is_shown_as_it_is_written() -> None:
    form = form_of(("key", Literal["one", "two"]))
    (flaw,) = form.flaws({"key": "secret"}, written={"key": "${NAME}"})
    assert flaw.message == "'${NAME}' is not a valid key"


def test_a_value_has_one_flaw_and_each_key_one() -> None:
    form = form_of(
        ("a", Annotated[str, Field(description="first")]),
        ("b", Annotated[str, Field(title="b or nothing")]),
        ("c", Literal["x"]),
    )
    flaws = {flaw.path: flaw for flaw in form.flaws({"c": 1, "d": 1, "ee": 2})}
    assert {path: flaw.code for path, flaw in flaws.items()} == {
        ("a",): "MISSING",
        ("b",): "MISSING",
        ("c",): "WRONG_TYPE",
        ("d",): "UNKNOWN_KEY",
        ("ee",): "UNKNOWN_KEY",
    }
    assert flaws["a",].message == "[top] needs a: first"
    assert flaws["b",].expected == "b or nothing"
