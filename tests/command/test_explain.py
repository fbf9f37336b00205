"""``redrive explain`` as a person or a program uses it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.commands import redrive

from redrive.messages.dead_letter_header import DeadLetterHeader, encode_header

TABLE = """\
RETRYINT(60)
REASON(MQRC_Q_FULL) DESTQ(APP.*) ACTION(RETRY) RETRY(7)
REPLYQ(?*) ACTION(FWD) FWDQ(&REPLYQ) FWDQM(&REPLYQM) HEADER(NO)
PERSIST(MQPER_NOT_PERSISTENT) ACTION(DISCARD)
"""


KAFKA = """DIALECT(KAFKA) RETRYINT(30)
SCHEME(connect) ERRMSG(/timed out/) AGE(>2h) ACTION(FWD) FWDT('dead.&CONNECTOR')
HEADER('x-tenant',acme) JSON('$.n',7) ACTION(RETRY) RETRY(2)
ACTION(QUARANTINE)
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "orders.rul"
    path.write_text(TABLE)
    return path


@pytest.fixture
def message(tmp_path: Path) -> Path:
    path = tmp_path / "message.json"
    path.write_text(
        json.dumps(
            {
                "md": {"Persistence": "MQPER_PERSISTENT", "ReplyToQ": "R.Q"},
                "dlh": {"Reason": 2053, "DestQName": "APP.IN", "DestQMgrName": "QM1"},
            }
        )
    )
    return path


explain = partial(redrive, "explain")


def test_rules_and_clauses_are_explained(table: Path, message: Path) -> None:
    output = explain(table, "--message", message).output
    assert "rule at line 2  ACTION(RETRY) RETRY(7): matches" in output
    assert "  + REASON(MQRC_Q_FULL): the message has 2053 (MQRC_Q_FULL)" in output
    assert "  + DESTQ(APP.*): the message has 'APP.IN'" in output
    assert "rule at line 4  ACTION(DISCARD): does not match" in output
    assert "  - PERSIST(MQPER_NOT_PERSISTENT): the message has 1 (MQPER_PERSISTENT)" in output


def test_attempts_are_listed_in_time(table: Path, message: Path) -> None:
    lines = explain(table, "--message", message).output.splitlines()
    start = lines.index("attempts, if each one that can fail does:")
    assert [" ".join(line.split()) for line in lines[start + 1 :]] == [
        *(
            f"{60 * n} s rule at line 2: put to APP.IN on QM1, without dead-letter header, "
            f"attempt {n + 1} of 7"
            for n in range(5)
        ),
        "... every 60 s",
        "360 s rule at line 2: put to APP.IN on QM1, without dead-letter header, attempt 7 of 7",
        "420 s rule at line 3: put to R.Q, without dead-letter header",
        "420 s the message remains",
    ]


LONG = f"APP.{'X' * 100}"
ANSWERS: dict[str, tuple[list[str], str | bytes, str, list[str]]] = {
    "symbolic names stand for numbers; what is not given is blank or 0": (
        ["--field", "reason=mqrc_q_full", "--field", "DESTQ=app.in"], "", TABLE,
        ["  - DESTQ(APP.*): the message has 'app.in'",
         "       0 s  rule at line 4: discard the message"],
    ),
    "fields win over the message": (
        ["--message", "file", "--field", "REASON=2085"],
        '{"dlh": {"Reason": 2053, "DestQName": "APP.IN"}}', TABLE,
        ["  - REASON(MQRC_Q_FULL): the message has 2085 (MQRC_UNKNOWN_OBJECT_NAME)"],
    ),
    "what no rule matches remains at once": (
        ["--field", "PERSIST=1"], "", TABLE,
        ["no rule matches:\n       0 s  the message remains\n"],
    ),
    "a rule that ignores leaves the message": (
        ["--field", "REASON=1"], "", "ACTION(IGNORE)\nACTION(DISCARD)\n",
        ["rule at line 1: leave the message; later rules are skipped\n"],
    ),
    "raw bytes with an MQDLH are a message": (
        ["--message", "file"],
        encode_header(DeadLetterHeader(reason=2053, dest_q_name="APP.X")) + b"body", TABLE,
        ["put to APP.X"],
    ),
    "names too long for an MQDLH are headers": (
        ["--message", "file"], json.dumps({"dlh": {"Reason": 2053, "DestQName": LONG}}), TABLE,
        [f"put to {LONG}"],
    ),
    "no rule is asked about a message without a header": (
        ["--message", "file"], '{"md": {"Format": "MQSTR"}, "body_hex": "68"}', TABLE,
        ["no rule is asked"],
    ),
}  # fmt: skip
"""By what holds: arguments, the message's file, the table, and what is told."""


@pytest.mark.parametrize("case", ANSWERS)
def test_a_message_is_explained(folder: Path, case: str) -> None:
    arguments, message, rules, text = ANSWERS[case]
    Path("file").write_bytes(message if isinstance(message, bytes) else message.encode())
    Path("table").write_text(rules)
    result = explain("table", *arguments, code=0)
    assert [part for part in text if part not in result.output] == []


MISTAKES: list[tuple[list[str], str, str]] = [
    ([], "", "no message to explain"),
    (["--field", "REASN=1"], "", "did you mean REASON?"),
    (["--field", "REASON"], "", "has no value"),
    (["--field", "REASON=MQMT_REQUEST"], "", "neither a number nor a name MQRC_... or MQFB_..."),
    (["--message", "file"], '{"md": {"Persistance": 1}}', "md has no field Persistance"),
    (["--message", "file"], '{"dlh": {"Reason": "MQRC_NONSENSE"}}', "Reason is neither a number"),
    (["--message", "file"], '{"dlh": 5}', "dlh is not a JSON object"),
    (["--message", "file"], '{"md": ', "file: "),
    (["--message", "file"], '{"body_hex": "xyz"}', "file: "),
    (["--field", "HEADER=x"], "KAFKA", "takes a name in parentheses"),
    (["--field", "TOPIC(x)=y"], "KAFKA", "takes no argument"),
    (["--field", "AGE=2x"], "KAFKA", "is not a number"),
    (["--field", "TOPIK=x"], "KAFKA", "did you mean TOPIC"),
]


@pytest.mark.parametrize(("arguments", "file", "said"), MISTAKES)
def test_a_mistake_is_explained(folder: Path, arguments: list[str], file: str, said: str) -> None:
    """Exit code 2, what is wrong, and what to write instead."""
    Path("file").write_text(file)
    Path("table").write_text(KAFKA if file == "KAFKA" else TABLE)
    result = explain("table", *arguments, code=2)
    assert said in result.output


def test_a_message_without_a_header_is_left(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.bin"
    path.write_bytes(b"no dead letter")
    result = explain(table, "--message", path, code=0)
    assert "no rule is asked: " in result.output
    assert json.loads(explain(table, "--message", path, "--json").output)["rules"] == []


def test_explanation_as_json(table: Path, message: Path) -> None:
    """Rules with their clauses, turns with their targets."""
    document = json.loads(explain(table, "--message", message, "--json").output)
    assert [rule["matches"] for rule in document["rules"]] == [True, True, False]
    assert document["rules"][0]["clauses"][1]["pattern"] == "REASON(MQRC_Q_FULL)"
    assert document["turns"] == [
        {
            "seconds": 0,
            "line": 2,
            "action": "RETRY",
            "attempts": 7,
            "interval": 60,
            "target": {"queue": "APP.IN", "queue_manager": "QM1"},
        },
        {
            "seconds": 420,
            "line": 3,
            "action": "FWD",
            "attempts": 1,
            "interval": 60,
            "target": {"queue": "R.Q", "queue_manager": ""},
        },
        {"seconds": 420, "action": "REMAINS", "attempts": 0},
    ]


def test_a_table_with_errors_is_not_explained(tmp_path: Path) -> None:
    """Exit code 1 and every finding."""
    path = tmp_path / "bad.rul"
    path.write_text("REASON()\nFOO(1)\n")
    result = explain(path, "--field", "REASON=1", code=1)
    assert "EMPTY_VALUE" in result.output
    assert "UNKNOWN_KEYWORD" in result.output


def test_a_dialect_is_explained_by_fields(tmp_path: Path) -> None:
    table = tmp_path / "kafka.rul"
    table.write_text(KAFKA)
    fields = ["SCHEME=connect", "ERRMSG=timed out", "AGE=3h", "header(x-tenant)=acme", "TOPIC=t"]
    arguments = [word for field in fields for word in ("--field", field)]
    output = explain(table, *arguments).output
    assert "  + AGE(>2h): the message has 10800\n" in output
    assert "  - JSON('$.n',7): the message has blank\n" in output
    failed = "       0 s  rule at line 2: fail, because the message has no value for &CONNECTOR\n"
    assert failed in output
    assert "      30 s  rule at line 4: keep the message, also under other tables\n" in output


def test_order_is_told_of_a_message_that_is_explained_alone(tmp_path: Path) -> None:
    table = tmp_path / "kafka.rul"
    rule = "ACTION(RETRY) RETRY(2) BACKOFF(30s,2,1h)"
    table.write_text(f"DIALECT(KAFKA) ORDER(KEY)\n{rule}\n")
    output = explain(table, "--field", "TOPIC=orders").output
    assert "order: it waits longer behind an earlier message of its key\n" in output
    assert "jitter" not in output
    table.write_text(f"DIALECT(KAFKA)\n{rule}\n")
    output = explain(table, "--field", "TOPIC=orders").output
    assert "jitter" in output
    assert "order:" not in output


def test_a_round_for_a_group_is_explained_with_its_topic(tmp_path: Path) -> None:
    table, message = tmp_path / "kafka.rul", tmp_path / "letter.json"
    table.write_text("DIALECT(KAFKA)\nTOPIC(orders) ACTION(RETRY) TO(GROUP)\n")
    there = "orders.connect-sink.retry"
    told = {"topic": there, "partition": "3", "connector.name": "sink"}
    headers = {f"__connect.errors.{name}": text for name, text in told.items()}
    headers["redrive.group-topic"] = f"{there} orders 3"
    message.write_text(json.dumps({"headers": headers, "value": "{}"}))
    arguments = ["explain", str(table), "--message", str(message), "--json"]
    document = json.loads(redrive(*arguments).output)
    assert (document["message"]["TOPIC"], document["message"]["DESTQ"]) == ("orders", "orders")
    assert document["turns"][0]["target"]["queue"] == there
    output = explain(table, "--field", "TOPIC=orders").output
    assert "rule at line 2: fail, because the message names no consumer group" in output


def test_a_dialect_is_explained_by_a_message(tmp_path: Path) -> None:
    table, message = tmp_path / "kafka.rul", tmp_path / "letter.json"
    table.write_text(KAFKA)
    told = {"topic": "orders", "connector.name": "sink", "exception.message": "it timed out"}
    headers = {f"__connect.errors.{name}": text for name, text in told.items()}
    headers["x-tenant"] = "acme"
    message.write_text(json.dumps({"headers": headers, "value": '{"n": 7}'}))
    arguments = ["explain", str(table), "--message", str(message), "--json"]
    document = json.loads(redrive(*arguments).output)
    assert [rule["matches"] for rule in document["rules"]] == [False, True, True]
    assert document["message"]["CONNECTOR"] == "sink"
    assert document["turns"][0]["target"]["queue"] == "orders"
    old = json.loads(redrive(*arguments, "--field", "AGE=3h").output)
    assert old["turns"][0]["target"]["queue"] == "dead.sink"


def test_controls_of_a_message_and_of_a_table_reach_no_terminal(tmp_path: Path) -> None:
    table = tmp_path / "odd.rul"
    table.write_text("DESTQ('A\x1b[2J*') ACTION(RETRY)\nACTION(FWD) FWDQ(&REPLYQ)\n")
    fields = ["--field", "DESTQ=A\x1b[2J\x9b", "--field", "REPLYQ=\x1b]0;x\x07"]
    result = explain(table, *fields, code=0)
    assert "put to A" in result.output
    assert result.output.replace("\n", "").isprintable()


def test_a_message_of_kcat_is_explained(tmp_path: Path) -> None:
    table = tmp_path / "kafka.rul"
    table.write_text(
        "DIALECT(KAFKA)\nKEY(k7) SIZE(>3) AGE(>1d) HEADER(tenant,acme) ACTION(RETRY)\n"
    )
    line = {
        "topic": "orders.dlq",
        "partition": 0,
        "offset": 42,
        "ts": 1_700_000_000_000,
        "headers": ["mqdlh.Reason", "2053", "mqdlh.DestQName", "Q", "tenant", "acme"],
        "key": "k7",
        "payload": '{"a": 1}',
    }
    message = tmp_path / "line.json"
    message.write_text(json.dumps(line))
    result = explain(table, "--message", message, "--json", code=0)
    [rule] = json.loads(result.output)["rules"]
    assert rule["matches"], rule
    message.write_text(json.dumps({**line, "headers": ["tenant"]}))
    explain(table, "--message", message, code=2)


def test_a_message_that_is_nowhere_is_a_usage_error(table: Path, tmp_path: Path) -> None:
    for message in ("nothing.json", "orders:0", "orders:0:x"):
        explain(table, "--message", message, "--bootstrap-server", "127.0.0.1:1", code=2)
