"""``redrive test``: sample messages against a rules table, as its tests in version control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from redrive.command.finding_formats import counted
from redrive.command.table_tests import Step, TableTest, Tests, read_tests, updated
from redrive.printable import printable
from redrive.rules import decode_source
from redrive.rules.analysis import write_message

__all__ = ["test"]


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="TESTS.yaml...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--update", is_flag=True, help="Write what the table does now into the files.")
@click.option("--lenient", is_flag=True, help="Accept rules whose clauses are not separated.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.pass_context
def test(
    context: click.Context, files: tuple[Path, ...], *, update: bool, lenient: bool, as_json: bool
) -> None:
    """Try sample messages on rules tables, and tell which are not treated as expected.

    \b
    redrive test orders.tests.yaml
    redrive test --update orders.tests.yaml

    A file names a table, messages, and for each message the steps that must be taken if every
    attempt fails. --update writes the present answer of the table where it is not as expected, for
    a review of the change.

    Exit codes: 0 all as expected or updated, 1 not, or errors; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    results = {path: read_tests(path, strict=not lenient) for path in files}
    if as_json:
        click.echo(json.dumps([_document(path, it) for path, it in results.items()], indent=2))
    for path, tests in results.items():
        if update:
            _update(path, tests)
        elif not as_json:
            for line in _lines(path, tests):
                click.echo(line)
    failed = any(not one.passed for tests in results.values() for one in tests.tests)
    context.exit(1 if failed and not update else 0)


def _update(path: Path, tests: Tests) -> None:
    failed = [one for one in tests.tests if not one.passed]
    if failed:
        text = decode_source(path.read_bytes())
        path.write_bytes(updated(text, tests).encode())
    click.echo(f"{printable(str(path))}: {counted(len(failed), 'expectation')} written")


def _lines(path: Path, tests: Tests) -> Iterator[str]:
    for one in tests.tests:
        if not one.passed:
            yield from _failure(one)
    passed = sum(one.passed for one in tests.tests)
    failed = len(tests.tests) - passed
    told = f"{passed} passed" + (f", {failed} failed" if failed else "")
    yield click.style(printable(f"{path}: {told}"), bold=True)


def _failure(one: TableTest) -> Iterator[str]:
    yield click.style(printable(f"{one.location}: failed: {one.name}"), fg="red")
    yield printable(f"    message: {write_message(one.fields)}")
    if one.expected is None:
        yield "    nothing is expected yet; --update writes what the table does:"
    expected = one.expected or ()
    for index in range(max(len(expected), len(one.actual))):
        wanted = expected[index] if index < len(expected) else None
        there = one.actual[index] if index < len(one.actual) else None
        if index not in one.differences:
            yield printable(f"      {_told(wanted)}")
            continue
        if wanted is not None:
            yield printable(f"    - {_told(wanted)}")
        if there is not None:
            yield printable(f"    + {_told(there)}")


def _told(step: Step | None) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in (step or {}).items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "a blank queue"


def _document(path: Path, tests: Tests) -> dict[str, object]:
    return {
        "file": str(path),
        "table": tests.table.hash,
        "tests": [
            {
                "name": one.name,
                "line": one.location.line,
                "passed": one.passed,
                "expected": one.expected,
                "actual": one.actual,
            }
            for one in tests.tests
        ],
    }
