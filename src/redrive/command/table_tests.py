"""Tests of a rules table in a YAML file: messages, and what must become of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml

from redrive.command.message_fields import message_fields
from redrive.command.message_file import parse_field, read_written
from redrive.diagnostics import SourceLocation
from redrive.errors import ConfigurationError, UsageError
from redrive.messages.schemes import KNOWN
from redrive.rules import (
    Action,
    FieldValue,
    RulesTable,
    Turn,
    decode_source,
    explain,
    parse,
    resolve_target,
)
from redrive.schemas import Schema
from redrive.topology.document import Document, read_document

__all__ = ["Step", "TableTest", "Tests", "read_tests", "steps_of", "updated"]

_SCHEMA: Final = Schema.load("redrive.command", "tests_schema.json")
_REMAINS: Final = "REMAINS"

Step: TypeAlias = Mapping[str, Any]
"""What one rule does with a message: ``rule``, ``action``, ``target``, ``header``, ``at``,
``attempts``; of an expectation only what matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTest:
    """One message, and what must become of it."""

    name: str
    location: SourceLocation
    fields: Mapping[str, FieldValue]
    """Match fields by pattern keyword."""
    expected: Sequence[Step] | None
    """None if nothing is expected yet."""
    actual: Sequence[Step]
    """What the table does as it is."""

    @property
    def differences(self) -> tuple[int, ...]:
        """The steps, from 0, that are not as expected; a missing or needless one is among them."""
        expected = self.expected or ()
        number = max(len(expected), len(self.actual))
        return tuple(it for it in range(number) if not self._is_right(expected, it))

    def _is_right(self, expected: Sequence[Step], index: int) -> bool:
        if index >= len(expected) or index >= len(self.actual):
            return False
        actual = self.actual[index]
        return all(actual.get(name) == value for name, value in expected[index].items())

    @property
    def passed(self) -> bool:
        """Whether everything that is expected is so."""
        return self.expected is not None and not self.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """A file of tests."""

    table: RulesTable
    tests: Sequence[TableTest]


def read_tests(path: Path, *, strict: bool = True) -> Tests:
    """Read a file of tests and ask the table that it names.

    Args:
        path: The YAML file.
        strict: Whether clauses of the table must be separated.

    Raises:
        ConfigurationError: The file or the table has errors; all of one of them are attached.
        UsageError: The table or a message cannot be read.
    """
    document = read_document(_text(path), str(path))
    findings = document.diagnostics or [document.flaw(it) for it in _SCHEMA.flaws(document.data)]
    if findings:
        raise ConfigurationError(f"{path} is no file of tests", diagnostics=findings)
    data = cast("dict[str, Any]", document.data)
    table_path = path.parent / data["table"]
    table = parse(_text(table_path), name=str(table_path), strict=strict).required()
    tests = [
        _test(document, table, index, test, path.parent) for index, test in enumerate(data["tests"])
    ]
    return Tests(table=table, tests=tests)


def _text(path: Path) -> str:
    try:
        return decode_source(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _test(
    document: Document, table: RulesTable, index: int, test: Mapping[str, Any], folder: Path
) -> TableTest:
    location = document.location(("tests", index, "name"))
    fields = _fields(test["message"], folder, str(location), table)
    return TableTest(
        name=test["name"],
        location=location,
        fields=fields,
        expected=test.get("expect"),
        actual=tuple(steps_of(table, fields)),
    )


def _fields(
    message: Any,  # noqa: ANN401 - YAML
    folder: Path,
    where: str,
    table: RulesTable,
) -> dict[str, FieldValue]:
    if isinstance(message, str):
        try:
            record = read_written(folder / message)
        except OSError as error:
            raise UsageError(f"{where}: {message} cannot be read: {error.strerror}") from error
        fields, problem = message_fields(record, KNOWN, table)
        if problem:
            raise UsageError(
                f"{where}: {message} is no dead letter: {problem}",
                hint="no rule is asked about it; redrive explain shows what is made of it",
            )
        return fields
    return dict(
        parse_field(f"{name}={value}", f"{where}:", dialect=table.control.dialect)
        for name, value in message.items()
    )


def steps_of(table: RulesTable, fields: Mapping[str, FieldValue]) -> Iterator[Step]:
    """What a table does with a message if every attempt that can fail does.

    Args:
        table: The table.
        fields: Match fields by pattern keyword.

    Yields:
        A step for each rule that gets its turn, in order.
    """
    for turn in explain(table, fields).turns:
        yield _step(table, turn, fields)


def _step(table: RulesTable, turn: Turn, fields: Mapping[str, FieldValue]) -> Step:
    if turn.rule is None:
        return {"action": _REMAINS, "at": turn.seconds}
    rule = table.rules[turn.rule]
    step: dict[str, Any] = {"rule": rule.line, "action": rule.action.value}
    if rule.action.can_fail:
        queue, manager = resolve_target(rule, fields)
        step["target"] = f"{queue}@{manager}".removesuffix("@")
        step["header"] = rule.action is Action.FWD and rule.header
        step["attempts"] = turn.attempts
    return {**step, "at": turn.seconds}


def updated(text: str, tests: Tests) -> str:
    """The text of a file of tests in which every test expects what the table does as it is.

    Tests that passed stay as they are, and so does everything between the tests.

    Args:
        text: The text that the tests were read from.
        tests: The tests.

    Raises:
        UsageError: A test stands in braces, where nothing can be put in.
    """
    root = cast("yaml.MappingNode", yaml.compose(text, Loader=yaml.SafeLoader))
    nodes = next(value for key, value in root.value if key.value == "tests").value
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(end)
    for node, test in reversed(list(zip(nodes, tests.tests, strict=True))):
        if not test.passed:
            _replace_expectation(lines, node, test)
    return end.join(lines)


def _replace_expectation(lines: list[str], node: yaml.MappingNode, test: TableTest) -> None:
    if node.flow_style:
        raise UsageError(
            f"{test.location}: this test stands in braces, so its expectation cannot be written",
            hint="write name, message and expect on lines of their own",
        )
    key, value = next(
        ((key, value) for key, value in node.value if key.value == "expect"), (None, None)
    )
    indent = node.start_mark.column
    steps = [f"{' ' * indent}  - {_flow(step)}" for step in test.actual]
    if key is None or value is None:
        end = _last_line(node) + 1
        lines[end:end] = [f"{' ' * indent}expect:", *steps]
    else:
        start, end = key.start_mark.line, _last_line(value) + 1
        head = lines[start][: key.start_mark.column]
        lines[start:end] = [f"{head}expect:", *steps]


def _last_line(node: yaml.Node) -> int:
    """The line of the last character of a node; a block ends where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.line)


def _flow(step: Step) -> str:
    text: str = yaml.safe_dump(
        dict(step), default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True
    )
    return text.strip()
