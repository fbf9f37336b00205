"""Documentation and examples agree with the program."""

import re
from pathlib import Path

import pytest
from tests.settings.conftest import GOOD, KEYS, findings_of

from redrive.settings import read_settings

PROJECT = Path(__file__).parents[2]
REFERENCE = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
EXAMPLES = sorted((PROJECT / "examples").rglob("*.toml"))
INTENDED = {"mq": ["UNDELIVERABLE", "UNDELIVERABLE"], "mqe": ["ATTRIBUTES_DIFFER"]}
"""Findings about the networks, whose READMEs say which messages are to go wrong, and why."""


def documented() -> dict[str, dict[str, str]]:
    """Table -> setting -> documented default, as the reference says."""
    tables = {}
    for section in re.split(r"^### (?=\[)", REFERENCE, flags=re.MULTILINE)[1:]:
        header, _, body = section.partition("\n")
        name = re.sub(r"\W.*", "", header.strip("["))
        rows = re.findall(
            r"^\| `(\w+)`(?: \*)? \| (.*?) ?\| ", re.split(r"\n##", body)[0], re.MULTILINE
        )
        tables[name] = dict(rows)
    return tables


def test_every_setting_is_documented_in_its_table() -> None:
    """The reference has exactly the settings that the program reads, table by table."""
    assert {name: set(settings) for name, settings in documented().items()} == {
        name: set(keys) for name, keys in KEYS.items() if name
    }


def test_documented_defaults_are_the_defaults(folder: Path) -> None:
    """What stands in the reference is what a file without the setting comes to."""
    described = read_settings(Path("redrive.toml")).describe()
    found = {**described, **described["kafka"], **described["job"]}
    found |= {
        **described["supervision"],
        **described["observe"],
        **described["ledger"],
        **described["log"],
    }
    literal = {
        name: default.strip("`").strip('"')
        for settings in documented().values()
        for name, default in settings.items()
        if re.fullmatch(r"`.*`", default) and name in found
    }
    # Signing in has no default without SASL; paths and the master depend on other settings.
    for name in ("sasl_mechanism", "directory", "master"):
        literal.pop(name, None)
    assert len(literal) > 10
    assert literal == {
        name: str(found[name]).replace("True", "true").replace("False", "false") for name in literal
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_report_what_they_are_made_to_show_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Example settings and what they name are right, without a warning that is not intended."""
    monkeypatch.syspath_prepend(path.parent)  # as PYTHONPATH, for an enrichment beside the settings
    codes = [finding.code for finding in findings_of(path, {})]
    assert codes == INTENDED.get(path.parent.name, [])


def test_what_an_example_comments_out_is_right_too(folder: Path) -> None:
    """Settings behind a number sign can be used by taking the sign away."""
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
    """The finding that the documentation shows is reported like that."""
    Path("redrive.toml").write_text(GOOD + "\n" * 11 + "[job]\n" + "emitter = 'lane'\n")
    (finding,) = findings_of(Path("redrive.toml"), {})
    shown = finding.render().replace(f":{finding.line}:", ":21:")
    assert "\n".join(f"    {line}" for line in shown.splitlines()) in REFERENCE
