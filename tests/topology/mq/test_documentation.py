"""Every example of docs/resolution.md and docs/migrating-from-mq.md, run unchanged."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.commands import redrive

from redrive.messages.reasons import Reason
from redrive.topology.mq.objects import ATTRIBUTES, OPTIONS

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "resolution.md").read_text(encoding="utf-8")
MIGRATING = (DOCS / "migrating-from-mq.md").read_text(encoding="utf-8")
_EXAMPLE = re.compile(r"```console\n\$ redrive (.*?)\n(.*?)```", re.DOTALL)
EXAMPLES = _EXAMPLE.findall(TEXT)
PAGES = [(page, *example) for page in (TEXT, MIGRATING) for example in _EXAMPLE.findall(page)]
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(
    ("page", "arguments", "output"), PAGES, ids=[arguments for _, arguments, _ in PAGES]
)
def test_a_command_prints_what_the_page_shows(
    folder: Path, page: str, arguments: str, output: str
) -> None:
    for name, text in re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(text)
    result = redrive(*shlex.split(arguments))
    assert result.output == output


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_on_the_page_runs(program: str) -> None:
    exec(compile(program, "docs/resolution.md", "exec"), {})  # noqa: S102 - our own page


def test_every_row_of_the_table_has_an_example() -> None:
    for row in range(1, 16):
        assert f"### R{row}: " in TEXT
        examples = "\n".join([*PROGRAMS, *(output for _, output in EXAMPLES)])
        assert row == 10 or re.search(rf"\bR{row}\b", examples), row


def test_every_reason_code_is_told() -> None:
    never = {Reason.NONE, Reason.NOT_OPEN_FOR_OUTPUT, Reason.OPTIONS_ERROR}
    never.add(Reason.CLUSTER_RESOLUTION_ERROR)
    assert [code for code in Reason if code not in never and str(int(code)) not in TEXT] == []


def test_every_attribute_that_resolution_uses_has_a_line() -> None:
    section = TEXT.split("## Attributes")[1].split("\n## ")[0]
    keywords = set(re.findall(r"[A-Z][A-Z0-9]{2,}", section))
    known = {word for words in ATTRIBUTES.values() for word in words}
    assert sorted(known - keywords - OPTIONS) == []
