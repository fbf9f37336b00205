"""TRANSFORM: how a table writes it, and that it is part of what a rule does."""

from __future__ import annotations

import pytest

from redrive.rules import parse

HEAD = "DIALECT(KAFKA)\n"


@pytest.mark.parametrize("name", ["fix_currency", "FIX", "a.b-1", "x" * 48])
@pytest.mark.parametrize("action", ["ACTION(RETRY)", "ACTION(FWD) FWDT(orders)"])
def test_a_name_keeps_its_letters_and_reads_back(action: str, name: str) -> None:
    table = parse(f"{HEAD}{action} TRANSFORM({name})").required()
    assert table.rules[0].transform == name
    assert parse(f"{HEAD}{action} TRANSFORM('{name}')").required() == table
    assert parse(table.canonical()).required() == table
    plain = parse(f"{HEAD}{action}").required()
    assert len({table.hash, plain.hash, parse(f"{HEAD}{action} TRANSFORM(z)").required().hash}) == 3


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("ACTION(DISCARD) TRANSFORM(a)", "COMBINATION"),
        ("ACTION(QUARANTINE) TRANSFORM(a)", "COMBINATION"),
        ("ACTION(RETRY) TRANSFORM('a b')", "BAD_VALUE"),
        ("ACTION(RETRY) TRANSFORM(a*)", "BAD_VALUE"),
        (f"ACTION(RETRY) TRANSFORM({'a' * 49})", "BAD_VALUE"),
        ("ACTION(RETRY) TRANSFORM()", "EMPTY_VALUE"),
        ("TRANSFORM(a)", "COMBINATION"),
    ],
)
def test_a_name_that_cannot_be_is_an_error(rule: str, code: str) -> None:
    result = parse(HEAD + rule)
    assert [finding.code for finding in result.diagnostics if finding.severity == "error"] == [code]


def test_ibms_language_has_no_transformations() -> None:
    findings = parse("ACTION(RETRY) TRANSFORM(a)").diagnostics
    assert "UNKNOWN_KEYWORD" in {finding.code for finding in findings}
