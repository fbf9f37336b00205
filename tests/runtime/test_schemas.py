"""Schemas are published JSON Schemas, and their errors tell what a person needs."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from redrive.schemas import Schema

SCHEMAS = [
    ("redrive.topology", "bindings.json"),
    ("redrive.topology.mqe", "schema.json"),
]


@pytest.mark.parametrize(("package", "name"), SCHEMAS)
def test_a_schema_is_a_valid_json_schema(package: str, name: str) -> None:
    """Editors can use the file beside the code as it is."""
    Draft202012Validator.check_schema(Schema.load(package, name).definition)


def value(**schema: Any) -> Schema:
    return Schema({"title": "[top]", "type": "object", "properties": {"key": schema}}, "table")


@pytest.mark.parametrize(
    ("schema", "data", "code", "message", "expected"),
    [
        ({"type": "integer"}, True, "WRONG_TYPE", "key is true or false", "a whole number"),
        ({"type": "integer"}, 2.0, "WRONG_TYPE", "key is a number", "a whole number"),
        ({"type": "number"}, float("nan"), "WRONG_TYPE", "key is not a number", "a number"),
        ({"type": "string"}, None, "WRONG_TYPE", "key is empty", "text"),
        ({"type": "string"}, {}, "WRONG_TYPE", "key is a table", "text"),
        ({"type": "object", "title": "[key]"}, 1, "WRONG_TYPE", "key is a whole n", "table: [key]"),
        ({"type": "integer", "minimum": 1}, 0, "OUT_OF_RANGE", "key is 0", "number from 1"),
        ({"type": "integer", "maximum": 5000}, 6000, "OUT_OF_RANGE", "is 6,000", "to 5,000"),
        ({"type": "string", "minLength": 1}, "", "EMPTY", "key is empty", "text"),
        (
            {"enum": ["one", "two"]},
            "own",
            "BAD_VALUE",
            "'own' is not a valid key",
            "one of one, two",
        ),
        (
            {"title": "letters", "pattern": "^a$"},
            "a\n",
            "BAD_VALUE",
            r"'a\n' is not a valid key",
            "letters",
        ),
    ],
)
def test_a_wrong_value_is_told_in_words(
    schema: dict[str, Any], data: object, code: str, message: str, expected: str
) -> None:
    """What it is and what it should be, by the type, the title or the limits in the schema."""
    (flaw,) = value(**schema).flaws({"key": data})
    assert (flaw.path, flaw.code) == (("key",), code)
    assert message in flaw.message
    assert expected in flaw.expected


def test_a_value_is_shown_as_it_is_written() -> None:
    """What took the place of a variable appears in no message."""
    schema = value(enum=["one", "two"])
    (flaw,) = schema.flaws({"key": "secret"}, written={"key": "${NAME}"})
    assert flaw.message == "'${NAME}' is not a valid key"


def test_a_value_has_one_flaw_and_each_key_one() -> None:
    """Nobody needs to know twice that a value is wrong, and everybody which keys are."""
    schema = Schema(
        {
            "title": "[top]",
            "properties": {
                "a": {"description": "first"},
                "b": {"$ref": "#/$defs/b"},
                "c": {"type": "string", "enum": ["x"]},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
            "$defs": {"b": {"title": "b or nothing"}},
        },
        "table",
    )
    flaws = {flaw.path: flaw for flaw in schema.flaws({"c": 1, "d": 1, "ee": 2})}
    assert {path: flaw.code for path, flaw in flaws.items()} == {
        ("a",): "MISSING",
        ("b",): "MISSING",
        ("c",): "WRONG_TYPE",
        ("d",): "UNKNOWN_KEY",
        ("ee",): "UNKNOWN_KEY",
    }
    assert flaws["a",].message == "[top] needs a: first"
    assert flaws["b",].expected == "b or nothing"
