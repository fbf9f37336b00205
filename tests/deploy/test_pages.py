"""Pages that lead through an installation: what they tell to type and to write is right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from redrive.__main__ import SUBCOMMANDS, main
from redrive.settings import read_settings

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "../README.md",
    "start.md",
    "recipes.md",
    "running.md",
    "watching.md",
    "runbook.md",
    "laptop-to-three-nodes.md",
    "kubernetes.md",
    "installation.md",
    "versions.md",
)

EVERY = sorted([*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")])


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of the pages, with its page."""
    examples = []
    for page in PAGES:
        text = (DOCS / page).read_text().replace("\\\n", "")
        lines = re.findall(r"^ {4,}(?:kubectl .* -- )?redrive (.*)$", text, re.MULTILINE)
        lines += re.findall(r"`redrive ([^`\n]+)`", text)
        examples += [(page, shlex.split(line, comments=True)) for line in lines]
    return examples


def test_every_command_on_the_pages_exists_with_its_options() -> None:
    """Also that of a group, such as ``broker start``."""
    known = commands()
    assert len(known) > 20
    with click.Context(main) as context:
        for page, words in known:
            command: click.Command | None = main
            rest = list(words)
            while isinstance(command, click.Group) and rest and rest[0] not in _options(command):
                _, command, rest = command.resolve_command(context, rest)
            assert command is not None, f"{page}: redrive {shlex.join(words)}"
            given = {word for word in rest if word.startswith("-")}
            assert given <= _options(command), f"{page}: redrive {shlex.join(words)}"
    assert {words[0] for _, words in known} <= {*SUBCOMMANDS, "--help", "--version", "--debug"}


def _options(command: click.Command) -> set[str]:
    return {"--help", "--version", *(name for param in command.params for name in param.opts)}


def test_the_settings_on_the_way_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "laptop-to-three-nodes.md").read_text()
    blocks = [
        block.replace("\n    ", "\n").strip()
        for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", text, re.MULTILINE)
    ]
    (rules,) = (block for block in blocks if block.startswith("DIALECT"))
    kafka = [block for block in blocks if "[kafka]" in block]
    first, signed_in = kafka
    (listen,) = (block for block in blocks if "listen" in block)
    (shared,) = (block for block in blocks if 'instance = "auto"' in block)
    (nodes,) = (block for block in blocks if "master =" in block)
    (tmp_path / "orders.rul").write_text(rules)
    monkeypatch.setenv("FOLDER", "one")
    body = first.partition("[kafka]")[2].partition("\n\n")[2]
    steps = (
        first,
        f"{first}\n{listen}",
        f"{shared}\n[kafka]\nbootstrap_servers = 'localhost:9092'\n{body}",
        f"{first}\n{nodes}",
    )
    for step in steps:
        (tmp_path / "redrive.toml").write_text(step)
        assert read_settings(tmp_path / "redrive.toml").warnings == ()
    assert 'sasl_password_file = "' in signed_in


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\[[^\]\n]+\]\((?![a-z]+:)([^)\s]+)\)", page.read_text())
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    shown = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


def test_the_first_page_is_short_and_begins_without_words_of_ibm() -> None:
    """At most 7,000 characters; 25 lines that somebody reads who has never heard of MQ."""
    text = (DOCS.parent / "README.md").read_text()
    assert len(text) <= 7_000
    beginning = "\n".join(text.splitlines()[:25])
    assert re.findall(r"(?i)\bibm\b|\bmq|runmqdlq|everyplace", beginning) == []
    assert "![" in beginning
