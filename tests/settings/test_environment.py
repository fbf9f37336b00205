"""Environment variables set single settings, and win over the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.settings.conftest import GOOD, KEYS, PASSWORD, Check

from redrive.errors import ConfigurationError
from redrive.settings import Option, Settings, read_settings

TABLES = """
[clusters.eu-west]
bootstrap_servers = "a:1"
[queues."A.B"]
max_depth = 1
consumer_group = "g"
"""
SIGN_IN = {
    "REDRIVE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "REDRIVE_KAFKA__SASL_USERNAME": "alice",
    "REDRIVE_KAFKA__SASL_PASSWORD": PASSWORD,
}


def read(environ: Mapping[str, str], text: str = GOOD + TABLES, *options: Option) -> Settings:
    Path("redrive.toml").write_text(text)
    return read_settings(Path("redrive.toml"), options=options, environ=environ)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        (
            "KAFKA__BOOTSTRAP_SERVERS",
            "b:2",
            lambda settings: settings.job.connection.bootstrap_servers,
        ),
        (
            "CLUSTERS__EU_WEST__BOOTSTRAP_SERVERS",
            "b:2",
            lambda settings: settings.job.clusters["eu-west"],
        ),
        ("QUEUES__A_B__MAX_DEPTH", "7", lambda settings: settings.job.limits["A.B"].max_depth),
        ("JOB__POLLING_DELAY", "2.5", lambda settings: settings.job.polling_delay),
        ("JOB__SPARK_UI", "True", lambda settings: settings.job.spark_ui),
        ("LEDGER__ENABLED", "false", lambda settings: settings.job.ledger.enabled),
    ],
)
def test_a_variable_wins_over_the_file(
    folder: Path, name: str, value: str, found: Callable[[Settings], Any]
) -> None:
    before, after = found(read({})), found(read({f"REDRIVE_{name}": value}))
    assert before != after
    assert value.lower() in str(after).lower()


def test_an_option_wins_over_a_variable(folder: Path) -> None:
    option = Option(("kafka", "bootstrap_servers"), "--bootstrap-server", "c:3")
    settings = read({"REDRIVE_KAFKA__BOOTSTRAP_SERVERS": "b:2"}, GOOD, option)
    assert settings.job.connection.bootstrap_servers == "c:3"


def test_a_secret_is_used_and_shown_nowhere(folder: Path) -> None:
    settings = read(SIGN_IN)
    assert settings.job.connection.sasl_password == PASSWORD
    assert PASSWORD not in f"{settings!r} {settings.describe()}"
    with pytest.raises(ConfigurationError) as caught:
        read({**SIGN_IN, "REDRIVE_KAFKA__SASL_USERNAME": ""})
    assert PASSWORD not in "".join(diagnostic.render() for diagnostic in caught.value.diagnostics)


def test_a_path_is_relative_to_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("other").mkdir()
    monkeypatch.chdir("other")
    path = Path("../redrive.toml")
    settings = read_settings(path, environ={"REDRIVE_LEDGER__PATH": "ledger"})
    assert settings.job.ledger.path == (folder / "other" / "ledger")


@pytest.mark.parametrize(
    ("name", "value", "code", "said"),
    [
        ("KAFKA__BOOTSTRAP_SERVERS", "nowhere", "BAD_VALUE", "'nowhere' is not an address"),
        ("KAFKA__SSL_CA_FILE", "ca.pem", "WITHOUT_EFFECT", "security_protocol PLAINTEXT"),
        ("JOB__CORES", "many", "WRONG_TYPE", "cores is text"),
        ("JOB__CORES", "0", "OUT_OF_RANGE", "cores is 0"),
        ("JOB__SPARK_UI", "yes", "WRONG_TYPE", "spark_ui is text"),
        ("KAFKA__BOOTSTRAP_SERVER", "a:1", "UNKNOWN_KEY", "REDRIVE_KAFKA__BOOTSTRAP_SERVERS?"),
        ("CLUSTERS__US__BOOTSTRAP_SERVERS", "a:1", "UNKNOWN_KEY", "must be in the file"),
        ("TOPOLOGY__FILES", "a.mqsc", "UNKNOWN_KEY", "does not name a setting"),
    ],
)
def test_a_wrong_variable_is_named(
    check: Check, name: str, value: str, code: str, said: str
) -> None:
    (finding,) = check(GOOD, {f"REDRIVE_{name}": value})
    assert (finding.code, finding.file) == (code, "<environment>")
    assert f"REDRIVE_{name}=" in finding.source_line
    assert said in finding.render()


@pytest.mark.parametrize("environ", [{"REDRIVE_JAVA": "x"}, {"REDRIVE_JOB__CORES": ""}])
def test_other_variables_are_no_settings(check: Check, environ: dict[str, str]) -> None:
    assert check(GOOD, environ) == ()


def test_two_tables_of_one_variable_have_none(check: Check) -> None:
    (finding,) = check(
        GOOD + "[queues.A-B]\n[queues.'A.B']\n", {"REDRIVE_QUEUES__A_B__PUT": "disabled"}
    )
    assert finding.code == "UNKNOWN_KEY"


def test_no_setting_has_two_underscores() -> None:
    assert not [key for keys in KEYS.values() for key in keys if "__" in key]


def test_the_example_in_the_reference_is_what_the_program_says(check: Check) -> None:
    (finding,) = check(GOOD, {"REDRIVE_KAFKA__BOOTSTRAP_SERVER": "a:1"})
    shown = "\n".join(f"    {line}" for line in finding.render().splitlines())
    assert shown in (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
