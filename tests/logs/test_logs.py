"""The log says what a job does, in lines for people or in JSON."""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from redrive.configuration import EmitterChoice
from redrive.diagnostics import Diagnostic, Severity
from redrive.engine.statistics import Failure, OutcomeKind
from redrive.errors import ConfigurationError, EnvironmentFault
from redrive.logs import LogObserver, configure_logging, log_findings
from redrive.printable import counted
from redrive.settings import LogFormat, LogLevel, LogSettings
from redrive.streaming.lifecycle import BatchSummary

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "
FULL = Failure("orders", 10, 2053, "BILLING", "the queue holds 5000 messages")
FINDING = Diagnostic(
    severity=Severity.ERROR, code="BAD", message="it is wrong", file="a.toml", line=3, hint="fix it"
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Let the log go to a file in one of its forms, and afterwards where it went before."""
    path = tmp_path / "logs" / "redrive.log"
    root, ours = logging.getLogger(), logging.getLogger("redrive")
    level = ours.level

    def configure(form: LogFormat = LogFormat.TEXT, level: LogLevel = LogLevel.INFO) -> Path:
        configure_logging(LogSettings(format=form, level=level, file=str(path)))
        return path

    yield configure
    for handler in [handler for handler in root.handlers if handler.name == "redrive"]:
        root.removeHandler(handler)
        handler.close()
    ours.setLevel(level)


def lines(path: Path) -> list[str]:
    """The log without its stamps."""
    return [re.sub(f"^{STAMP}", "", line) for line in path.read_text().splitlines()]


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(results: Mapping[tuple[str, int, str], int] | None = None, **more: Any) -> BatchSummary:
    results = results if results is not None else {("orders", 3, "forwarded"): 2}
    values = {"batch": 1, "time": 1_000_000, "seconds": 0.25, "emitter": EmitterChoice.DRIVER}
    inputs = Counter({OutcomeKind(*kind, reason=0): count for kind, count in results.items()})
    return BatchSummary(inputs=inputs, **{**values, **more})


def test_a_batch_is_a_line_that_a_person_can_read(log: Callable[..., Path]) -> None:
    path = log()
    LogObserver().batch(
        summary(
            {("orders", 3, "forwarded"): 1000, ("orders", 0, "remains"): 200, ("x", 1, "parked"): 4}
        )
    )
    (line,) = lines(path)
    assert line == (
        "INFO    1,204 messages in 0.25 s (4,816/s): 1,000 forwarded, 200 remain, 4 parked"
    )


def test_one_message_remains_and_two_remain(log: Callable[..., Path]) -> None:
    path = log()
    observer = LogObserver(interval=0)
    observer.batch(summary({("orders", 0, "remains"): 1}))
    observer.batch(summary({("orders", 0, "remains"): 2}))
    assert [line.rpartition(": ")[2] for line in lines(path)] == ["1 remains", "2 remain"]


def test_a_batch_is_json_for_programs(log: Callable[..., Path]) -> None:
    path = log(LogFormat.JSON)
    LogObserver().batch(summary(rows=3))
    (entry,) = entries(path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "info",
        "logger": "redrive.job",
        "message": "2 messages in 0.25 s: 2 forwarded",
        "event": "batches",
        "batch": 1,
        "batches": 1,
        "records": 2,
        "rows": 3,
        "seconds": 0.25,
        "emitter": "driver",
        "results": [{"handler": "orders", "rule_line": 3, "result": "forwarded", "count": 2}],
    }


def test_busy_batches_share_a_line(log: Callable[..., Path]) -> None:
    path = log()
    observer = LogObserver(interval=3600)
    for number in range(5):
        observer.batch(summary(batch=number, failures={FULL: 3}))
    observer.stopped("SIGTERM")
    said = lines(path)
    assert [line for line in said if " messages in " in line] == [
        "INFO    2 messages in 0.25 s: 2 forwarded",
        "INFO    8 messages in 1.00 s: 8 forwarded",
    ]
    assert sum("could not put 12 messages" in line for line in said) == 1
    assert said[-1] == "INFO    stopped: SIGTERM"


def test_a_line_that_was_held_back_comes_by_itself(log: Callable[..., Path]) -> None:
    path = log()
    observer = LogObserver(interval=0.05)
    observer.batch(summary())
    observer.batch(summary())
    timer = observer._timer
    if timer is not None:  # else the machine was so slow that nothing was held back
        timer.join()
    assert len(lines(path)) == 2


def test_a_failure_names_rule_target_and_reason(log: Callable[..., Path]) -> None:
    path = log()
    LogObserver(interval=0).batch(summary(failures={FULL: 1}))
    assert lines(path)[1] == (
        "WARNING the rule at line 10 could not put 1 message on BILLING: MQRC_Q_FULL (2053), "
        "the queue holds 5000 messages  handler=orders"
    )


def test_failures_that_differ_in_detail_only_share_a_line(log: Callable[..., Path]) -> None:
    path = log(LogFormat.JSON)
    later = FULL._replace(detail="the queue holds 5003 messages")
    LogObserver(interval=0).batch(summary(failures={FULL: 1, later: 2}))
    failures = [entry for entry in entries(path) if entry["event"] == "failures"]
    assert [(entry["count"], entry["detail"]) for entry in failures] == [(3, later.detail)]


def test_messages_without_a_header_are_reported_from_time_to_time(log: Callable[..., Path]) -> None:
    path = log(LogFormat.JSON)
    observer = LogObserver(interval=0)
    for _ in range(3):
        observer.batch(summary(invalid=Counter(orders=2)))
    observer.stopped("SIGTERM")
    reports = [entry for entry in entries(path) if entry["event"] == "invalid"]
    assert [(entry["count"], entry["in_all"]) for entry in reports] == [(2, 2), (4, 6)]


def test_a_refused_restart_says_why(log: Callable[..., Path]) -> None:
    path = log()
    error = ConfigurationError("1 error in the settings", hint="fix all", diagnostics=[FINDING])
    LogObserver().restart_refused(error)
    assert lines(path) == [
        'ERROR   a.toml:3: it is wrong [BAD]  hint="fix it"',
        (
            "ERROR   not restarted, the job continues with the old settings: 1 error in the"
            " settings"
            '  hint="fix all"'
        ),
    ]


def test_the_level_keeps_lines_away(log: Callable[..., Path]) -> None:
    path = log(level=LogLevel.ERROR)
    logger = logging.getLogger("redrive.test")
    log_findings(logger, [FINDING, Diagnostic(severity=Severity.WARNING, code="W", message="w")])
    assert len(lines(path)) == 1


def test_configuring_again_replaces_the_log(log: Callable[..., Path]) -> None:
    log()
    path = log(LogFormat.JSON)
    logging.getLogger("redrive.test").info("once")
    assert [entry["message"] for entry in entries(path)] == ["once"]


def test_a_log_that_was_moved_away_goes_on_in_a_new_file(log: Callable[..., Path]) -> None:
    path = log()
    logger = logging.getLogger("redrive.test")
    logger.info("before")
    path.rename(path.with_suffix(".1"))
    logger.info("after")
    assert lines(path) == ["INFO    after"]


def test_an_exception_keeps_its_trace(log: Callable[..., Path]) -> None:
    for form in LogFormat:
        path = log(form)
        try:
            int("odd")
        except ValueError:
            logging.getLogger("redrive.test").exception("failed")
        assert "Traceback" in path.read_text()
        path.unlink()


def test_a_log_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be written") as caught:
        configure_logging(LogSettings(file=str(tmp_path / "file" / "redrive.log")))
    assert "[log]" in caught.value.hint


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [(0, "message", "0 messages"), (1, "retry", "1 retry"), (2000, "retry", "2,000 retries")],
)
def test_numbers_agree_with_their_nouns(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
