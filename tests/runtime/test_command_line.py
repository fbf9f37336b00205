"""The frame of the ``redrive`` command: help, errors and exit codes."""

from __future__ import annotations

import errno
import subprocess
import sys

import click
import pytest
from tests.commands import python, redrive

from redrive.__main__ import SUBCOMMANDS, main
from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError, EnvironmentFault, RedriveError, UsageError

_FINDING = Diagnostic(
    severity=Severity.ERROR,
    code="UNKNOWN_KEYWORD",
    message="REASN is not a keyword",
    file="orders.rul",
    line=3,
    column=1,
    length=5,
    source_line="REASN(2053) ACTION(RETRY)",
    hint="did you mean REASON?",
)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """``redrive check`` raises the error in this list."""
    errors: list[Exception] = []

    @click.command()
    def check() -> None:
        raise errors[0]

    monkeypatch.setattr("redrive.command.check.check", check)
    return errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EnvironmentFault("no broker answers", hint="start one"), 1),
        (ConfigurationError("the table has errors", hint="mend it"), 1),
        (UsageError("two tables were given", hint="give one"), 2),
    ],
)
def test_an_error_is_one_message_with_a_hint(
    error: RedriveError, code: int, failing: list[Exception]
) -> None:
    failing.append(error)
    result = redrive("check", code=code)
    assert result.stdout == ""
    assert result.stderr == f"error: {error.message}\nhint: {error.hint}\n"


def test_the_findings_of_a_configuration_come_with_it(failing: list[Exception]) -> None:
    failing.append(ConfigurationError("the table has errors", diagnostics=[_FINDING]))
    result = redrive("check")
    assert result.stderr == f"{_FINDING.render()}\nerror: the table has errors\n"


def test_a_full_disk_is_one_message(failing: list[Exception]) -> None:
    failing.append(OSError(errno.ENOSPC, "No space left on device", "job/slots/run"))
    result = redrive("check", code=1)
    assert result.stderr.startswith("error: job/slots/run: No space left on device\nhint: ")


def test_debug_adds_the_stack_trace(failing: list[Exception]) -> None:
    failing.append(EnvironmentFault("no broker answers"))
    result = redrive("--debug", "check")
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("error: no broker answers\n")


def test_an_unknown_subcommand_is_a_usage_error() -> None:
    redrive("nonsense", code=2)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_helps_with_an_example(name: str) -> None:
    result = redrive(name, "--help", code=0)
    assert f"redrive {name}" in result.stdout


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_list_of_subcommands_says_what_their_help_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == SUBCOMMANDS[name]


def test_help_loads_no_subcommand() -> None:
    """``redrive --help`` must not wait for Spark or a Kafka client."""
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from redrive.__main__ import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    answer = python("-c", code, code=0)
    loaded = set(answer.stdout.split())
    assert not loaded & {"pyspark", "confluent_kafka", "kafka", "deltalake", "pyarrow", "numpy"}


_LEFT_BEHIND = """
import atexit, sys, time
from redrive.__main__ import start
from redrive.errors import OutcomeUnknown
from redrive.kafka.deadline import DeadlineThread
atexit.register(print, "cleaned up")
if sys.argv.pop() == "hangs":
    try:
        DeadlineThread("client").run("a call", 0.01, lambda: time.sleep(600))
    except OutcomeUnknown:
        pass
start()
"""


@pytest.mark.parametrize("client", ["hangs", "answers"])
def test_a_process_with_a_client_left_behind_ends_without_taking_its_memory_away(
    client: str,
) -> None:
    program = [sys.executable, "-c", _LEFT_BEHIND, "no-such-command", client]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No such command" in done.stderr
    assert ("cleaned up" in done.stdout) == (client == "answers")


@pytest.mark.parametrize(
    "words", [("broker", "start", "--brokers", "3"), ("groups", "--owner", "ann")]
)
def test_removed_option_is_refused_with_the_last_version_that_had_it(words: list[str]) -> None:
    error = " ".join(redrive(*words, code=2).stderr.split())
    assert f"{words[-2]} was removed; 0.1.0 was the last version with it: " in error
