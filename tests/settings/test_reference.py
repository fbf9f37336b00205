"""Documentation and examples agree with the program."""

import re
from pathlib import Path

import pytest
from tests.settings.conftest import GOOD, findings_of
from tests.settings.reference import PAGE, updated

from redrive.settings_file import FORM

PROJECT = Path(__file__).parents[2]
REFERENCE = PAGE.read_text(encoding="utf-8")
EXAMPLES = sorted((PROJECT / "examples").rglob("*.toml"))
INTENDED = {"mq": ["UNDELIVERABLE", "UNDELIVERABLE"], "mqe": ["ATTRIBUTES_DIFFER"]}
"""Findings about the networks, whose READMEs say which messages are to go wrong, and why."""


def test_reference_has_each_setting_as_its_form_declares_it() -> None:
    """``python -m tests.settings.reference`` writes the tables again."""
    headings = set(re.findall(r"^## \[+(\w+)", REFERENCE, re.MULTILINE))
    assert headings == FORM.root.keys.keys()
    assert updated(REFERENCE) == REFERENCE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_report_what_they_are_made_to_show_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(path.parent)  # as PYTHONPATH, for an enrichment beside the settings
    codes = [finding.code for finding in findings_of(path, {})]
    assert codes == INTENDED.get(path.parent.name, [])


def test_what_an_example_comments_out_is_right_too(folder: Path) -> None:
    path = PROJECT / "examples" / "orders" / "redrive.toml"
    text = re.sub(r"^#(?=[a-z_]+ = )", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert text != path.read_text(encoding="utf-8")
    (folder / "orders.rul").write_bytes((path.parent / "orders.rul").read_bytes())
    (folder / "redrive.toml").write_text(text.replace("/run/secrets/redrive", "password"))
    (folder / "password").write_text("x")
    findings = findings_of(folder / "redrive.toml", {"KAFKA_PASSWORD": "x"})
    # The authorities' file is of another machine.
    assert [finding.subject for finding in findings] == ["ssl_ca_file"]


def test_the_example_of_a_finding_is_what_the_program_says(folder: Path) -> None:
    Path("redrive.toml").write_text(GOOD + "\n" * 11 + "[job]\n" + "emitter = 'lane'\n")
    (finding,) = findings_of(Path("redrive.toml"), {})
    shown = finding.render().replace(f":{finding.line}:", ":21:")
    assert "\n".join(f"    {line}" for line in shown.splitlines()) in REFERENCE
