"""[mask]: what is shown of a message, in views, JSON and the log."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from tests.commands import redrive
from tests.engine.samples import dead_letter, handler_of
from tests.messages.samples import messages
from tests.outcomes.samples import row_with
from tests.settings.conftest import GOOD, Check
from tests.what_if.test_tally import best_case

from redrive.command import record
from redrive.engine.commands import Replay, To
from redrive.engine.facts import Facts
from redrive.engine.statistics import Failure
from redrive.kafka.records import StoredRecord
from redrive.logs import configure_logging
from redrive.masking import MASK, Mask
from redrive.messages import Headers, Records, TopicPartition
from redrive.messages.schemes import KNOWN
from redrive.observe.observer import MetricsObserver
from redrive.operations.browse import BrowsedMessage
from redrive.operations.identify import identified
from redrive.operations.record_view import RecordView
from redrive.operations.replay.plan import Part as PlanPart
from redrive.operations.replay.plan import Plan, Warned
from redrive.operations.supervision import Activity, SupervisionState
from redrive.settings import LogFormat, LogSettings, read_settings
from redrive.streaming.lifecycle import Emitted
from redrive.what_if.answer import document_of_table
from redrive.what_if.question import LaneRecords, Over, Tally
from redrive.what_if.text import lines_of, lines_of_table

SECRET = "4111111111111111"  # noqa: S105 - what must be shown nowhere
HIDDEN = Mask(("[0-9]{16}",), ("authorization", "X-*-Key"))
HEADERS: Headers = [
    ("Authorization", b"Basic dXNlcg=="),
    ("x-api-key", b"swordfish"),
    ("note", f"card {SECRET}".encode()),
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.exception.message", f"no field in {SECRET}".encode()),
    ("__connect.errors.exception.stacktrace", f"a.B: {SECRET}\n\tat c".encode()),
]
LETTER = StoredRecord(
    TopicPartition("dlq", 0), 7, 0, SECRET.encode(), f'{{"card":"{SECRET}"}}'.encode(), HEADERS
)


@contextmanager
def logging_to(settings: LogSettings) -> Iterator[None]:
    """The log as the settings say, for a while."""
    before = logging.getLogger().handlers[:]
    try:
        configure_logging(settings)
        yield
    finally:
        for handler in set(logging.getLogger().handlers) - set(before):
            logging.getLogger().removeHandler(handler)
            handler.close()


@pytest.mark.parametrize("form", record.FORMS)
def test_no_view_of_a_record_shows_a_secret(form: str) -> None:
    """In lines and as JSON, as text and in hexadecimal digits, whatever scheme tells it."""
    view = RecordView.of(LETTER, KNOWN, HIDDEN)
    shown = "\n".join(record.lines(view, form)) + orjson.dumps(record.as_json(view)).decode()
    assert MASK in shown
    for secret in (SECRET, SECRET.encode().hex(), SECRET.encode().hex(" "), "dXNl", "swordfish"):
        assert secret not in shown
    assert "orders" in shown


def test_examples_queues_and_outcomes_show_no_secret() -> None:
    [scheme] = identified("dlq", [LETTER], KNOWN, HIDDEN).by_share()
    browsed = BrowsedMessage.of(LETTER).masked(HIDDEN)
    row = row_with(
        message_key=SECRET.encode(),
        detail=f"refused {SECRET}",
        field_destq=SECRET,
        target_queue=SECRET,
        target_topic=f"a.{SECRET}",
        malformed=f'{{"card": {SECRET}}}',
    ).masked(HIDDEN)
    shown = f"{scheme.view} {browsed.record} {browsed.body!r} {row}"
    assert SECRET not in shown
    assert "swordfish" not in shown
    own = row_with(message=SECRET, attempt=3)
    assert own.masked(HIDDEN) == own


def test_what_is_told_of_a_hidden_header_is_hidden_too() -> None:
    hidden = Mask((), ("__connect.errors.topic", "kafka_dlt-*", "mqdlh.*"))
    spring: Headers = [
        ("kafka_dlt-original-topic", b"secret-topic"),
        ("kafka_dlt-original-partition", b"\x00\x00\x30\x39"),
        ("kafka_dlt-original-offset", b"secret-bytes"),
        ("kafka_dlt-exception-fqcn", b"secret.Class"),
        ("kafka_dlt-exception-message", b"secret message"),
    ]
    unread: Headers = [("mqdlh.Reason", b"secret number")]
    for headers in (spring, [*HEADERS, ("__connect.errors.topic", b"secret-topic")], unread):
        letter = StoredRecord(TopicPartition("dlq", 0), 7, 0, b"k", b"v", headers)
        view = RecordView.of(letter, KNOWN, hidden)
        [scheme] = identified("dlq", [letter], KNOWN, hidden).by_share()
        counted = (
            f"{scheme.view} {scheme.topics} {scheme.errors} {scheme.problem} {scheme.unreadable}"
        )
        shown = "\n".join(record.lines(view)) + orjson.dumps(record.as_json(view)).decode()
        for text in (shown, counted if headers is not unread else ""):
            assert "secret" not in text, text
            assert "12345" not in text
        assert MASK in shown


def test_a_plan_of_a_replay_shows_no_secret_and_does_the_same(tmp_path: Path) -> None:
    plan = Plan(
        replay=Replay(plan="a1", to=To.ORIGINAL),
        application="shop",
        created="2026-01-01T00:00:00+00:00",
        messages={"orders": {"orders.dlq:0": [7]}},
        targets=[PlanPart(f"Q.{SECRET}", 1, "orders.dlq:0:7")],
        warnings=[Warned("target-missing", f"puts to Q.{SECRET} fail", 1)],
        notes=[f"about {SECRET}"],
    )
    shown = plan.masked(HIDDEN)
    shown.write(tmp_path / "plan.json")
    assert SECRET not in (tmp_path / "plan.json").read_text()
    again = Plan.read(tmp_path / "plan.json")
    assert (again.replay, again.messages) == (plan.replay, plan.messages)


def test_neither_metrics_nor_health_tell_a_secret(folder: Path) -> None:
    (folder / "redrive.toml").write_text(GOOD)
    observer = MetricsObserver(read_settings(folder / "redrive.toml").job, HIDDEN)
    emitted = Emitted()
    for digit in "12":
        emitted.failures[Failure("orders", 2, 2085, f"{digit * 16}.Q", "")] += 1
    observer.emitted(emitted)
    cause = f"the enrichment raised ValueError: {SECRET}"
    observer.supervised(
        SupervisionState(time=time.time(), pid=os.getpid(), state=Activity.STALLED, cause=cause)
    )
    page = generate_latest(observer.metrics.registry).decode()
    assert f'target="{MASK}.Q"' in page
    assert 'reason="MQRC_UNKNOWN_OBJECT_NAME",target="***.Q"} 2.0' in page
    assert "1111" not in page
    assert SECRET not in observer.health.message


@given(messages, st.none() | st.binary(max_size=5))
def test_a_mask_changes_nothing_but_what_it_finds(
    message: tuple[bytes | None, Headers], key: bytes | None
) -> None:
    value, headers = message
    stored = StoredRecord(TopicPartition("dlq", 0), 7, 0, key, value, headers)
    mask = Mask(("no such text anywhere",), ("no-such-header",))
    assert record.as_json(RecordView.of(stored, KNOWN, mask)) == record.as_json(
        RecordView.of(stored, KNOWN)
    )


def test_an_expression_with_quotation_marks_masks_json_in_the_log(tmp_path: Path) -> None:
    """A line of JSON escapes them, and the text in it is masked before."""
    path = tmp_path / "log"
    pattern = r'"password":\s*"[^"]*"'
    with logging_to(LogSettings(format=LogFormat.JSON, file=str(path), mask=Mask((pattern,)))):
        facts: dict[str, Any] = {"details": {"seen": [{"it": '{"password": "sesame"}'}]}}
        logging.getLogger("redrive.test").warning("no %s", '{"password":"sesame"}', extra=facts)
    entry = json.loads(path.read_text())
    assert entry["message"] == f"no {{{MASK}}}"
    assert entry["seen"] == [{"it": f"{{{MASK}}}"}]


@pytest.mark.parametrize("form", LogFormat)
def test_the_log_holds_no_secret(form: LogFormat, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with logging_to(LogSettings(format=form, file=str(path), mask=HIDDEN)):
        facts: dict[str, Any] = {"facts": {"detail": f"refused {SECRET}"}}
        logging.getLogger("redrive.test").warning("saw %s", SECRET, extra=facts)
    (line,) = path.read_text().splitlines()
    assert line.count(MASK) == 2
    assert SECRET not in line
    assert form is LogFormat.TEXT or json.loads(line)["level"] == "warning"


def test_settings_tell_what_to_mask(folder: Path) -> None:
    text = GOOD + '\n[mask]\npatterns = ["[0-9]{16}"]\nheaders = ["authorization"]\n'
    (folder / "redrive.toml").write_text(text)
    settings = read_settings(folder / "redrive.toml")
    assert settings.mask == settings.log.mask == Mask(("[0-9]{16}",), ("authorization",))


PLACES = "error.message = 'my-error'\norigin.topic = 'from'"


@pytest.mark.parametrize(
    ("header", "silent"),
    [
        ("authorization", ()),
        ("__CONNECT.errors.*", ("connect",)),
        ("MY-error", ("mine",)),
    ],
)
def test_hidden_header_hides_the_message_of_its_exception(
    folder: Path, header: str, silent: tuple[str, ...]
) -> None:
    text = (
        f"{GOOD}\n[mask]\nheaders = ['{header}']\n[schemes.mine]\nrecognise = 'my-error'\n{PLACES}"
    )
    (folder / "redrive.toml").write_text(text)
    mask = read_settings(folder / "redrive.toml").mask
    assert mask.silent_schemes == silent
    for form in ("connect", "mine"):
        row = row_with(form=form, error_message="denied").masked(mask)
        assert row.error_message == (MASK if form in silent else "denied")
    assert row_with(form="connect").masked(mask).error_message is None


@pytest.mark.parametrize("pattern", ["(", "x*", "(?=a)"])
def test_a_pattern_that_cannot_mask_is_an_error(pattern: str, check: Check) -> None:
    [finding] = check(GOOD + f"\n[mask]\npatterns = ['{pattern}']\n")
    assert finding.code == "BAD_VALUE"
    assert "invalid pattern" in finding.message


def test_what_a_table_would_do_shows_no_secret() -> None:
    """Samples, reasons and targets, in lines and as JSON."""
    table = f"DESTQ({SECRET}) ACTION(RETRY) RETRY(2)\nACTION(FWD) FWDQ(&DESTQ)\n"
    tables = handler_of(table), handler_of(f"REASON(1) ACTION(DISCARD)\n{table}")
    tally = Tally(*tables, Facts(lambda: 0.0), best_case, now=0, mask=HIDDEN)
    letters = [dead_letter(1, SECRET), dead_letter(2, f"{SECRET}.X")]
    records = Records([b"k"] * 2, [b"x"] * 2, letters, [0] * 2, [0, 1])
    lane = TopicPartition("dlq", 0)
    tally.add(LaneRecords(Over.BACKLOG, lane, records))
    answer = tally.answer("dlq", ("old.rul", "new.rul"))
    shown = [
        "\n".join(lines_of(answer)),
        "\n".join(lines_of_table(answer)),
        orjson.dumps([asdict(answer), document_of_table(answer)]).decode(),
    ]
    for text in shown:
        # The rules themselves are the user's own words.
        assert SECRET not in text.replace(f"({SECRET})", "")
        assert MASK in text


def test_an_explanation_shows_no_secret(folder: Path) -> None:
    (folder / "redrive.toml").write_text(GOOD + '\n[mask]\npatterns = ["[0-9]{16}"]\n')
    (folder / "kafka.rul").write_text("DIALECT(KAFKA)\nERRMSG(*) KEY(*) ACTION(DISCARD)\n")
    failure = {
        "key": SECRET,
        "value": "x",
        "headers": {
            "__connect.errors.topic": "orders",
            "__connect.errors.exception.message": f"no field in {SECRET}",
        },
    }
    (folder / "letter.json").write_text(json.dumps(failure))
    for more in ((), ("--json",)):
        arguments = ["explain", "kafka.rul", "--message", "letter.json", "-c", "redrive.toml"]
        result = redrive(*arguments, *more, code=0)
        assert MASK in result.output
        assert SECRET not in result.output
