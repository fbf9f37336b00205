"""``redrive runmqdlq`` takes IBM's arguments and standard input, and reports on standard output."""

import io
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.commands import redrive
from tests.conftest import PATIENCE, KafkaClient

from redrive.__main__ import main
from redrive.checkpoints.control import register
from redrive.checkpoints.own_topics import state_topic
from redrive.command.runmqdlq import Arguments, Report, open_queue, read_input, settings_for
from redrive.configuration import EmitterChoice
from redrive.configuration.deciders import table_of
from redrive.engine.statistics import Failure, OutcomeKind
from redrive.errors import (
    ConfigurationError,
    EnvironmentFault,
    FatalFault,
    RedriveError,
    UsageError,
)
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.settings import RulesSource, Settings
from redrive.streaming.lifecycle import BatchSummary, JobControl

PRETEND = Path(__file__).with_name("pretend_job.py")
RULES = "ACTION(FWD) FWDQ(REALLY.DEAD)\n"
WITH_CONTROL = "INPUTQ(FROM.TABLE) INPUTQM(QM9) WAIT(NO)\n" + RULES
PASSWORD = "hunter2"  # noqa: S105 - what must be shown nowhere


@pytest.fixture(autouse=True)
def _folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, without variables of ours."""
    for name in ("BOOTSTRAP_SERVERS", "DEADQ", "SETTINGS", "DIRECTORY", "SECURITY_PROTOCOL"):
        monkeypatch.delenv(f"REDRIVE_{name}", raising=False)


def run(*words: str, table: str = RULES, code: int | None = None) -> Result:
    return redrive("runmqdlq", *words, typed=table, code=code)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], Arguments()),
        (["Q"], Arguments(("Q",))),
        (["Q", "QM"], Arguments(("Q", "QM"))),
        ([" ", "QM"], Arguments((" ", "QM"))),
        (["Q", "QM", "TMC    2"], Arguments(("Q", "QM"))),
        (["Q", "QM", "-u", "alice", "-c"], Arguments(("Q", "QM"), "alice")),
        (["-ualice", "Q"], Arguments(("Q",), "alice")),
        (["-c"], Arguments()),
        (["?"], Arguments(wants_help=True)),
        (["-?"], Arguments(wants_help=True)),
        (["--help"], Arguments(wants_help=True)),
    ],
)
def test_arguments_are_read_as_ibm_does(words: list[str], arguments: Arguments) -> None:
    """Names are positional, a third is ignored, ``-u id`` and ``-uid`` are the same."""
    assert Arguments.parse(words) == arguments


def test_the_first_line_is_the_password_only_with_a_user() -> None:
    rules, password = read_input(b"hunter2\r\nACTION(RETRY)\n", has_password=True)
    assert (rules.text, password) == ("\nACTION(RETRY)\n", PASSWORD)
    rules, password = read_input(b"ACTION(RETRY)\n", has_password=False)
    assert (rules.text, password) == ("ACTION(RETRY)\n", "")


def settings(*words: str, table: str = RULES, **environ: str) -> Settings:
    variables = {f"REDRIVE_{name}": value for name, value in environ.items()}
    return settings_for(Arguments.parse(words), RulesSource(table, "<stdin>"), variables)


@pytest.mark.parametrize(
    ("words", "table", "deadq", "queue", "queue_manager"),
    [
        (["Q", "QM"], WITH_CONTROL, "OWN", "Q", "QM"),
        (["Q"], WITH_CONTROL, "OWN", "Q", "QM9"),
        (["Q", " "], RULES, "OWN", "Q", ""),
        (["Q extra"], WITH_CONTROL, "OWN", "Q", "QM9"),
        ([" "], WITH_CONTROL, "OWN", "OWN", "QM9"),
        ([], WITH_CONTROL, "OWN", "FROM.TABLE", "QM9"),
        ([], RULES, "OWN", "OWN", ""),
    ],
)
def test_arguments_win_over_the_table(
    words: list[str], table: str, deadq: str, queue: str, queue_manager: str
) -> None:
    """Argument, then INPUTQ unless a blank hides it, then the queue manager's own."""
    job = settings(*words, table=table, DEADQ=deadq).job
    identity = job.handlers[0].identity
    assert (identity.queue, identity.queue_manager) == (queue, queue_manager)
    assert job.application == queue


@pytest.mark.parametrize(
    ("words", "table", "queue"),
    [
        (["", "QM2"], RULES, "DEAD.TWO"),
        ([" ", "QM1"], WITH_CONTROL.replace("INPUTQM(QM9) ", ""), "DEAD.ONE"),
        (["Q", "QM1"], RULES, "Q"),
        ([], RULES.replace("ACTION", "INPUTQM(QM2)\nACTION"), "DEAD.TWO"),
    ],
)
def test_deadq_of_the_definitions_is_used(words: list[str], table: str, queue: str) -> None:
    """Where nothing names a queue, or a blank asks for the queue manager's own (D-CTL)."""
    for name, dead in (("QM1", "DEAD.ONE"), ("QM2", "DEAD.TWO")):
        script = f"DEFINE QLOCAL({dead})\nDEFINE QLOCAL(Q)\nALTER QMGR DEADQ({dead})\n"
        Path(f"{name}.mqsc").write_text(script)
    Path("redrive.toml").write_text('[topology]\nfiles = ["QM1.mqsc", "QM2.mqsc"]\n')
    job = settings(*words, table=table, SETTINGS="redrive.toml").job
    assert job.handlers[0].identity.queue == queue


@pytest.mark.parametrize(
    ("more", "rebalances"),
    [("", True), ('[application]\ninstance = "1/2"\n', False)],
)
def test_several_calls_for_one_queue_share_it(more: str, rebalances: bool) -> None:  # noqa: FBT001
    """Several handlers may run on one queue with one table (note 7), unless settings say how."""
    Path("redrive.toml").write_text(more)
    assert settings("Q", SETTINGS="redrive.toml").job.rebalances is rebalances


def test_what_to_do_about_another_application_is_an_option() -> None:
    """IBM's command has no such options; names stay positional."""
    job = settings("Q", "--take-over", "shop", "QM").job
    assert (job.take_over, job.handlers[0].identity.queue_manager) == ("shop", "QM")
    assert settings("--beside", "Q").job.beside
    with pytest.raises(UsageError, match="--take-over needs"):
        Arguments.parse(["Q", "--take-over"])


@pytest.mark.parametrize("runs", [False, True])
def test_a_running_handler_with_another_table_keeps_the_queue(
    kafka: KafkaClient,
    runs: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MQOPEN ends with 2042; a table may change once no handler runs."""
    queue = kafka.topic("dlq")
    job = settings(queue, BOOTSTRAP_SERVERS=kafka.bootstrap_servers).job
    with Cluster(job.connection) as cluster:
        for table in ("another", table_of(job.handlers[0]).hash):
            TopicAdministration(job.connection).ensure([state_topic(job.control_topic)])
            entry = {"table": table, "retry_release": 0, "remaining_release": 0}
            register(cluster, job.control_topic, f"table/{queue}/0", entry)
            monkeypatch.setattr(Cluster, "members", lambda *_: ("one",) if runs else ())
            if runs and table == "another":
                with pytest.raises(EnvironmentFault, match=r"2042.* another rules table"):
                    open_queue(job)
            else:
                open_queue(job)


def test_a_queue_that_does_not_exist_cannot_be_opened(bootstrap_servers: str) -> None:
    """MQOPEN ends with 2085; the sentence names the queue, and the exit code is 1."""
    result = CliRunner().invoke(
        main,
        ["runmqdlq", "no.such.queue"],
        input=RULES,
        env={"REDRIVE_BOOTSTRAP_SERVERS": bootstrap_servers},
    )
    assert result.exit_code == 1
    assert "AMQ8745: the dead-letter queue no.such.queue cannot be opened" in result.stderr
    assert "MQRC_UNKNOWN_OBJECT_NAME (2085)" in result.stderr


@pytest.mark.parametrize("words", [[], [" "]])
def test_without_any_queue_nothing_starts(words: list[str]) -> None:
    with pytest.raises(UsageError, match="not named"):
        settings(*words)


def test_the_application_is_named_after_the_queue() -> None:
    assert settings("orders_dlq").job.application == "orders-5Fdlq"


def test_brokers_come_from_the_environment() -> None:
    assert settings("Q").job.connection.bootstrap_servers == "localhost:9092"
    connection = settings("Q", BOOTSTRAP_SERVERS="one:1,two:2").job.connection
    assert connection.bootstrap_servers == "one:1,two:2"


def test_a_user_signs_in_with_the_password_of_standard_input() -> None:
    """By default over TLS, as a password is not to travel in the clear."""
    signed_in = settings("Q", "-u", "alice", STANDARD_INPUT=PASSWORD).job.connection
    assert (signed_in.sasl_username, signed_in.sasl_password) == ("alice", PASSWORD)
    assert (signed_in.security_protocol, signed_in.sasl_mechanism) == ("SASL_SSL", "PLAIN")
    chosen = settings(
        "Q", "-u", "alice", STANDARD_INPUT=PASSWORD, SECURITY_PROTOCOL="SASL_PLAINTEXT"
    )
    assert chosen.job.connection.security_protocol == "SASL_PLAINTEXT"
    assert PASSWORD not in repr(chosen)


def test_a_settings_file_holds_but_for_name_and_handlers() -> None:
    Path("conf").mkdir()
    Path("conf/redrive.toml").write_text(
        '[application]\nname = "other"\n[kafka]\nbootstrap_servers = "file:1"\n'
        '[[handlers]]\nqueue = "OTHER"\nrules = "nothing.rul"\n'
        '[queues.A]\nput = "disabled"\n[topology]\ndead_letter_queue = "OWN"\n'
        '[log]\nlevel = "debug"\n'
    )
    read = settings(SETTINGS="conf/redrive.toml")
    assert (read.job.application, read.job.connection.bootstrap_servers) == ("OWN", "file:1")
    assert not read.job.limits["A"].put_enabled
    assert read.log.level.value == "debug"
    over = settings("Q", SETTINGS="conf/redrive.toml", BOOTSTRAP_SERVERS="variable:1")
    assert over.job.connection.bootstrap_servers == "variable:1"
    assert [handler.identity.queue for handler in over.job.handlers] == ["Q"]


def test_the_log_is_quiet_beside_the_report() -> None:
    assert settings("Q").log.level.value == "warning"


def test_a_wrong_variable_is_shown_where_it_was_set() -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings("Q", BOOTSTRAP_SERVERS="nowhere")
    (finding,) = caught.value.diagnostics
    assert finding.render().splitlines()[1:3] == [
        "    REDRIVE_BOOTSTRAP_SERVERS=nowhere redrive runmqdlq Q",
        "                              ^~~~~~~",
    ]


def test_a_table_with_errors_starts_nothing() -> None:
    result = run("Q", "-u", "alice", table="hunter2\nREASON(1)\nACTION(FWD)\n", code=1)
    assert "<stdin>:2:1: error: the rule has no ACTION" in result.stderr
    assert "<stdin>:3:" in result.stderr
    assert PASSWORD not in result.stderr + result.stdout
    assert not list(Path().iterdir())


def batch(results: dict[str, int], **more: object) -> BatchSummary:
    values: dict[str, object] = {
        "batch": 1,
        "time": 0,
        "seconds": 0.1,
        "emitter": EmitterChoice.DRIVER,
        "inputs": Counter(
            {OutcomeKind("Q", 1, result, 0): count for result, count in results.items()}
        ),
        **more,
    }
    return BatchSummary(**values)  # type: ignore[arg-type]


def report(
    *batches: BatchSummary, words: tuple[str, ...] = ("Q", "QM"), error: RedriveError | None = None
) -> list[str]:
    """The lines of a report, without their times."""
    lines = io.StringIO()
    chosen = settings(*words)
    observer = Report(chosen, lambda line: print(line, file=lines))
    control = JobControl(observer)
    if batches:
        control.started(chosen.job)
    for summary in batches:
        control.batch(summary)
    if error:
        observer.failed(error)
    else:
        control.stopped("nothing left that can be processed (WAIT)")
    stamp = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    said = lines.getvalue().splitlines()
    assert all(re.match(stamp, line) for line in said)
    return [re.sub(stamp, "", line) for line in said]


def test_the_report_adds_up() -> None:
    failure = Failure("Q", 7, 2053, "BILLING", "full")
    said = report(
        batch(
            {"forwarded": 2, "retried": 1, "parked": 3},
            failures={failure: 3},
            invalid=Counter(DLQ=1),
        ),
        batch({"forwarded": 3, "discarded": 1, "remains": 4}),
    )
    assert said == [
        "AMQ8708: Dead-letter queue handler started to process INPUTQ(Q). Its queue manager is QM.",
        (
            "AMQ8722: The rule at line 7 could not put 3 messages on BILLING: "
            "MQRC_Q_FULL (2053), full."
        ),
        "AMQ8721: 1 message has no valid dead-letter header: kept, as no rule can match.",
        "AMQ8709: Dead-letter queue handler ending: nothing left that can be processed (WAIT).",
        "Successful actions: 1 retry, 5 forwards, 1 discard.",
        "4 messages remain on Q.",
    ]


def test_one_message_that_remains_is_one_message() -> None:
    said = report(batch({"remains": 1}), words=("Q",))
    assert said[0] == "AMQ8708: Dead-letter queue handler started to process INPUTQ(Q)."
    assert said[-1] == "1 message remains on Q."


def test_an_error_ends_the_report_with_a_summary_too() -> None:
    said = report(batch({"retried": 2}), error=FatalFault("another instance took over"))
    assert said[1:3] == [
        "AMQ8709: Dead-letter queue handler ending by an error: another instance took over.",
        "Successful actions: 2 retries, 0 forwards, 0 discards.",
    ]
    assert report(error=FatalFault("no broker")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(kafka: KafkaClient, number: signal.Signals) -> None:
    """The table cannot be read twice, so SIGHUP too ends the running batch and then the process."""
    queue = kafka.topic("dlq")
    with subprocess.Popen(
        [sys.executable, str(PRETEND), "runmqdlq", queue],
        env={"REDRIVE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(RULES)
        process.stdin.close()
        assert (
            f"AMQ8708: Dead-letter queue handler started to process INPUTQ({queue})"
            in process.stdout.readline()
        )
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE) == 0
    assert f"AMQ8709: Dead-letter queue handler ending: {number.name}." in rest
    assert f"0 messages remain on {queue}." in rest
