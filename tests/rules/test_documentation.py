"""docs/rules-language.md says what the code does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.commands import redrive

from redrive.command.message_file import message_from_json
from redrive.diagnostics import Severity
from redrive.messages.dead_letters import decode_dead_letter
from redrive.rules import PATTERN_KEYWORDS, parse
from redrive.rules import __path__ as package
from redrive.rules.analysis import analyse
from redrive.rules.keywords import KAFKA_PATTERNS

PAGE = (Path(__file__).parents[2] / "docs" / "rules-language.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
BLOCKS = [block for language, block in FENCED if not language]
TABLES = [block for block in BLOCKS if not block.startswith("$")]


def section(title: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    level = title.partition(" ")[0]
    following = PAGE.split(f"\n{title}\n")[1]
    return re.split(rf"\n#{{1,{len(level)}}} ", following, maxsplit=1)[0]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_the_page_is_legal(table: str) -> None:
    assert parse(table).required().rules


def test_the_first_table_has_no_findings() -> None:
    assert parse(TABLES[0]).diagnostics == ()
    notes = analyse(parse(TABLES[0]).required(), TABLES[0])
    assert {note.severity for note in notes} <= {Severity.NOTE}


def test_the_session_of_the_page_is_what_the_command_prints(tmp_path: Path) -> None:
    (session,) = [block for block in BLOCKS if block.startswith("$ redrive explain")]
    command, _, output = session.partition("\n...\n")
    path = tmp_path / "orders.rul"
    path.write_text(TABLES[0])
    _, _, *arguments = shlex.split(command)
    arguments = [word.replace("orders.rul", str(path)) for word in arguments]
    assert redrive(*arguments).output.endswith(output)


def test_the_finding_on_the_page_is_what_check_prints(folder: Path) -> None:
    (session,) = [block for block in BLOCKS if block.startswith("$ redrive check")]
    _, _, shown = session.partition("\n")
    Path("orders.rul").write_text(
        "DESTQ('APP*') ACTION(DISCARD)\nDESTQ(APP.1) ACTION(RETRY)\n"
        "REASON(MQRC_Q_FULL) ACTION(RETRY)\n"
    )
    assert shown in redrive("check", "orders.rul").output


def test_the_difference_on_the_page_is_what_diff_prints(folder: Path) -> None:
    (session,) = [block for block in BLOCKS if block.startswith("$ redrive diff")]
    _, _, shown = session.partition("\n")
    for name, tries in (("old.rul", 5), ("new.rul", 2)):
        Path(name).write_text(f"REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY({tries})\n")
    assert redrive("diff", "old.rul", "new.rul").output == shown


def test_every_class_of_finding_is_explained() -> None:
    code = "".join(path.read_text() for path in Path(package[0]).rglob("*.py"))
    given = r"(?:(?:warning|error_in_table)\(\s*|yield |code(?:: str )?=\s*)"
    raised = re.findall(f'{given}"([A-Z_]+)"', code)
    explained = "".join(
        map(section, ("## Errors", "## Warnings", "## What rules do to each other"))
    )
    assert set(raised) == set(re.findall(r"^\| `([A-Z_]+)` \|", explained, flags=re.MULTILINE))


def test_every_pattern_keyword_is_in_the_table_with_its_field() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (MQMD|MQDLH)\.(\w+).*? \| (text|number) \| (\d*) ?\|",
        section("## Patterns"),
        flags=re.MULTILINE,
    )
    assert [(name, kind, length) for name, _, _, kind, length in rows] == [
        (keyword.name, "text" if keyword.length else "number", str(keyword.length or ""))
        for keyword in PATTERN_KEYWORDS.values()
    ]
    for name, structure, field, kind, _ in rows:
        given: str | int = "A" if kind == "text" else 7
        document: dict[str, dict[str, str | int]] = {"md": {}, "dlh": {}}
        document["md" if structure == "MQMD" else "dlh"][field] = given
        assert decode_dead_letter(*message_from_json(document)).fields[name] == given


def test_every_pattern_keyword_of_the_dialect_is_in_its_table() -> None:
    kinds = {
        "": "number",
        "smhd": "seconds, `s` `m` `h` `d`",
        "kmg": "bytes, `k` `m` `g` (1,024 each)",
    }
    rows = re.findall(
        r"^\| `(\w+)(?:\('[^`]*)?` \| .*? \| ([^|]*) \|$",
        section("### Patterns of the dialect"),
        flags=re.MULTILINE,
    )
    assert rows == [
        (
            name,
            f"text, {keyword.length:,}"
            if keyword.length
            else kinds["".join(letter for letter, _ in keyword.units)],
        )
        for name, keyword in KAFKA_PATTERNS.items()
        if name not in PATTERN_KEYWORDS
    ]


def _examples() -> list[tuple[str, str, bool]]:
    """Clause, value, and whether the page says that they match."""
    names = {"blank": "", "everything that is not blank": "x", "everything else": "x"}
    examples = []
    for row in section("### Wildcards in texts").splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            for cell, matches in ((cells[1], True), (cells[2], False)):
                values = re.findall(r"`([^`]*)`", cell) or [names[cell]]
                examples += [(cells[0].strip("`"), value, matches) for value in values]
    return examples


@pytest.mark.parametrize(("clause", "value", "matches"), _examples())
def test_the_wildcard_examples_hold(clause: str, value: str, *, matches: bool) -> None:
    (rule,) = parse(f"{clause} ACTION(IGNORE)\n").required().rules
    (pattern,) = rule.patterns.values()
    assert pattern.matches(value) is matches
