"""``redrive test``: tests rules tables by YAML files of messages and expected steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import click
import yaml
from pydantic import AfterValidator, Field

from redrive.command.message_file import message_fields, parse_field, read_written
from redrive.command.options import EXISTING_FILE, json_option, lenient_option
from redrive.command.output import print_json
from redrive.diagnostics import SourceLocation
from redrive.errors import ConfigurationError, UsageError
from redrive.forms import FileForm, Flag, Natural, TableForm, Text
from redrive.messages.schemes import KNOWN
from redrive.printable import counted, printable
from redrive.rules import (
    Action,
    FieldValue,
    RulesTable,
    decode_source,
    explain,
    parse,
    resolve_target,
)
from redrive.rules.analysis import write_message
from redrive.topology.document import DefinitionDocument, read_document

Step: TypeAlias = Mapping[str, Any]
"""What one rule does with a message: ``rule``, ``action``, ``target``, ``header``, ``at``,
``attempts``; an expectation may have only some of them."""

_Positive: TypeAlias = Annotated[int, Field(strict=True, ge=1)]


@dataclass(frozen=True, kw_only=True)
class _Step(TableForm):
    rule: _Positive | None = None
    """Line of the rule."""
    action: Annotated[
        Literal["RETRY", "FWD", "DISCARD", "IGNORE", "QUARANTINE", "REMAINS"],
        Field(description="what is done"),
    ]
    target: str | None = None
    """QUEUE, or QUEUE@QM."""
    header: Flag | None = None
    """Whether the dead-letter header stays on."""
    at: Natural | None = None
    """Seconds of the first attempt."""
    attempts: _Positive | None = None


def _fields_or_file(message: object) -> object:
    if isinstance(message, dict | str):
        return message
    raise ValueError


@dataclass(frozen=True, kw_only=True)
class _Test(TableForm):
    name: Annotated[Text, Field(description="what holds, in a sentence")]
    message: Annotated[
        Any,
        AfterValidator(_fields_or_file),
        Field(
            title="fields such as {REASON: MQRC_Q_FULL}, or a file as explain --message takes it",
            description="its fields by pattern keyword, or its file",
        ),
    ]
    expect: Annotated[
        tuple[Annotated[_Step, Field(title="a step")], ...],
        Field(title="a list of steps, each attempt taken to fail"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class _TestsFile(TableForm):
    table: Annotated[Text, Field(description="file of the rules table, relative to this file")]
    tests: Annotated[
        tuple[Annotated[_Test, Field(title="a test")], ...],
        Field(description="messages and what happens to them", min_length=1),
    ]


FORM: Final = FileForm(_TestsFile, "a file of tests")


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="TESTS.yaml...",
    type=EXISTING_FILE,
)
@click.option("--update", is_flag=True, help="Write the actual steps into the files.")
@lenient_option
@json_option
@click.pass_context
def test(
    context: click.Context, files: tuple[Path, ...], *, update: bool, lenient: bool, as_json: bool
) -> None:
    """Test rules tables with sample messages.

    \b
    redrive test orders.tests.yaml
    redrive test --update orders.tests.yaml

    A file names a table, messages, and for each message the expected steps if every attempt fails.
    --update writes the actual steps where they differ, for a review of the change.

    Exit codes: 0 all as expected, or updated; 1 unexpected steps or errors; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    results = {path: read_tests(path, strict=not lenient) for path in files}
    if as_json:
        print_json([_tests_document(path, result) for path, result in results.items()])
    for path, tests in results.items():
        failed = sum(not table_test.passed for table_test in tests.tests)
        if update:
            if failed:
                path.write_bytes(updated(decode_source(path.read_bytes()), tests).encode())
            click.echo(f"{printable(str(path))}: {counted(failed, 'expectation')} written")
        elif not as_json:
            for line in _lines(path, tests):
                click.echo(line)
    passed = all(table_test.passed for tests in results.values() for table_test in tests.tests)
    context.exit(0 if passed or update else 1)


def _lines(path: Path, tests: Tests) -> Iterator[str]:
    for table_test in tests.tests:
        if not table_test.passed:
            yield from _failure(table_test)
    failed = sum(not table_test.passed for table_test in tests.tests)
    total = f"{len(tests.tests) - failed} passed" + (f", {failed} failed" if failed else "")
    yield click.style(printable(f"{path}: {total}"), bold=True)


def _failure(table_test: TableTest) -> Iterator[str]:
    yield click.style(printable(f"{table_test.location}: failed: {table_test.name}"), fg="red")
    yield printable(f"    message: {write_message(table_test.fields)}")
    if table_test.expected is None:
        yield "    no steps are expected yet; --update writes the actual ones:"
    for index, (expected, actual) in enumerate(
        zip_longest(table_test.expected or (), table_test.actual)
    ):
        if index not in table_test.differences:
            yield printable(f"      {_step_text(expected)}")
            continue
        if expected is not None:
            yield printable(f"    - {_step_text(expected)}")
        if actual is not None:
            yield printable(f"    + {_step_text(actual)}")


def _step_text(step: Step | None) -> str:
    return ", ".join(f"{name} {_value_text(value)}" for name, value in (step or {}).items())


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "a blank queue"


def _tests_document(path: Path, tests: Tests) -> dict[str, object]:
    return {
        "file": printable(str(path)),
        "table": tests.table.hash,
        "tests": [
            {
                "name": table_test.name,
                "line": table_test.location.line,
                "passed": table_test.passed,
                "expected": table_test.expected,
                "actual": table_test.actual,
            }
            for table_test in tests.tests
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTest:
    """One message, and its expected steps."""

    name: str
    location: SourceLocation
    fields: Mapping[str, FieldValue]
    expected: Sequence[Step] | None
    """None if nothing is expected yet."""
    actual: Sequence[Step]

    @property
    def differences(self) -> tuple[int, ...]:
        """The steps, from 0, that are not as expected, missing or superfluous."""
        pairs = enumerate(zip_longest(self.expected or (), self.actual))
        return tuple(
            number
            for number, (expected, actual) in pairs
            if expected is None or actual is None or expected.items() - actual.items()
        )

    @property
    def passed(self) -> bool:
        """Whether every step is as expected."""
        return self.expected is not None and not self.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """A file of tests."""

    table: RulesTable
    tests: Sequence[TableTest]


def read_tests(path: Path, *, strict: bool = True) -> Tests:
    """Read a YAML file of tests and run them.

    Raises:
        ConfigurationError: The file or the table has errors; all of one of them are attached.
        UsageError: The table or a message cannot be read.
    """
    document = read_document(_text(path), str(path))
    findings = document.diagnostics or [document.flaw(flaw) for flaw in FORM.flaws(document.data)]
    if findings:
        raise ConfigurationError(f"{path} is not a file of table tests", diagnostics=findings)
    data = cast("dict[str, Any]", document.data)
    table_path = path.parent / data["table"]
    table = parse(_text(table_path), name=str(table_path), strict=strict).required()
    tests = [
        _read_test(document, table, index, test, path.parent)
        for index, test in enumerate(data["tests"])
    ]
    return Tests(table=table, tests=tests)


def _text(path: Path) -> str:
    try:
        return decode_source(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _read_test(
    document: DefinitionDocument,
    table: RulesTable,
    index: int,
    test: Mapping[str, Any],
    folder: Path,
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
                f"{where}: {message} is not a dead letter: {problem}",
                hint="no rule can apply to it; see redrive explain",
            )
        return fields
    return dict(
        parse_field(f"{name}={value}", f"{where}:", dialect=table.control.dialect)
        for name, value in message.items()
    )


def steps_of(table: RulesTable, fields: Mapping[str, FieldValue]) -> Iterator[Step]:
    """A step for each rule that applies to a message, if every attempt that can fail does."""
    for turn in explain(table, fields).turns:
        if turn.rule is None:
            yield {"action": "REMAINS", "at": turn.seconds}
            continue
        rule = table.rules[turn.rule]
        step: dict[str, Any] = {"rule": rule.line, "action": rule.action.value}
        if rule.action.can_fail:
            queue, manager = resolve_target(rule, fields)
            step["target"] = f"{queue}@{manager}".removesuffix("@")
            step["header"] = rule.action is Action.FWD and rule.header
            step["attempts"] = turn.attempts
        yield {**step, "at": turn.seconds}


def updated(text: str, tests: Tests) -> str:
    """The text with the actual steps of failed tests; ``UsageError`` for a test in braces."""
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
            f"{test.location}: this test is written in braces, where --update cannot write steps",
            hint="write name, message and expect on separate lines",
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
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.line)


def _flow(step: Step) -> str:
    return str(
        yaml.safe_dump(
            dict(step), default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True
        )
    ).strip()
