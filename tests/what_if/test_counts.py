"""What is counted of a backlog is what the job decides about each of its messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

import pytest
from tests.engine.jobs import DEAD_LETTERS, NOW, Decided, MemoryJob, at_now
from tests.engine.samples import dead_letter
from tests.engine.test_views import ACTIONS, KAFKA_ACTIONS, LETTERS, copies_of

from redrive.messages import Headers, OutputRecord, TopicPartition
from redrive.what_if.question import LaneRecords, Over, Tally

IBM: Final = [
    "", "APPLIDAT('x*')", "APPLNAME('app*')", "APPLTYPE(1)", "DESTQ('*A*')", "DESTQM(QM1)",
    "FEEDBACK(7)", "FORMAT('M*')", "MSGTYPE(8)", "PERSIST(1)", "REASON(2053)", "REPLYQ(R)",
    "REPLYQM('Q*')", "USERID('u1*')",
]  # fmt: skip
SHARED: Final = [
    *IBM, "SCHEME(connect*)", "TOPIC(A)", "GROUP(connect-sink)", "CONNECTOR(sink)",
    "STAGE(TASK_PUT)", "ERRCLASS(*Timeout*)", "ROOTCLASS(*)", "ATTEMPTS(>1)",
]  # fmt: skip
VARIED: Final = [
    *SHARED, "PARTITION(0)", "ERRMSG(*late*)", "AGE(>10)", "SIZE(>9)", "KEY(k)", "HEADER(x,y)",
    "JSON('$.a',1)",
]  # fmt: skip
DESCRIPTORS: Final[Headers] = [
    ("JMS_IBM_MQMD_UserIdentifier", b"u1x"), ("JMS_IBM_MQMD_MsgType", b"8"),
    ("JMS_IBM_MQMD_Feedback", b"7"), ("JMS_IBM_MQMD_ReplyToQ", b"R"),
    ("JMS_IBM_MQMD_ReplyToQMgr", b"QM1"), ("JMS_IBM_MQMD_PutApplType", b"1"),
    ("JMS_IBM_MQMD_PutApplName", b"app1"), ("JMS_IBM_MQMD_ApplIdentityData", b"xx"),
    ("__connect.errors.exception.message", b"it is late"), ("__connect.errors.stage", b"TASK_PUT"),
    ("__connect.errors.exception.class.name", b"a.Timeout"),
]  # fmt: skip


@pytest.mark.parametrize("dialect", [("", IBM), ("KAFKA", SHARED), ("KAFKA", VARIED)])
@at_now
def test_counts_are_those_of_deciding_each_message(dialect: tuple[str, list[str]]) -> None:
    for seed in range(6):
        random = Random(seed)
        old = MemoryJob(_table(random, *dialect))
        new = replace(old, rules=_table(random, *dialect))
        letters = [_letter(random) for _ in range(40)]
        identity = old.configuration.handlers[0].identity
        first = old.decide(DEAD_LETTERS, letters)
        topics = {
            DEAD_LETTERS: (Over.BACKLOG, letters),
            **{
                topic: (Over.PARKED, copies_of(first, topic)) for topic in identity.waiting_topics
            },
            identity.remaining_topic: (
                Over.REMAINING, copies_of(first, identity.remaining_topic)
            ),
        }  # fmt: skip
        tally = Tally(old.decider, new.decider, old.facts, old.cluster.answers, now=NOW)
        pairs: list[tuple[Decided, Decided]] = []
        for topic, (over, records) in topics.items():
            if records:
                read = old.part(topic, records).records
                tally.add(LaneRecords(over, TopicPartition(topic, 0), read))
                pairs += zip(old.decide(topic, records), new.decide(topic, records), strict=True)
        answer = tally.answer("dlq", ("old", "new"))
        cells = Counter[tuple[str, str]]()
        for cell in answer.matrix:
            cells[cell.old, cell.new] += cell.count
        assert cells == Counter((_action(was), _action(becomes)) for was, becomes in pairs)
        lines = {rule.new_line: rule.new for rule in answer.rules if rule.new}
        becomes = [decided.row for _, decided in pairs]
        assert lines == Counter(row.rule_line for row in becomes if row.rule_line)
        failing = Counter[int]()
        for refused in answer.failing_now:
            failing[refused.reason] += refused.count
        reasons = [decided.attempt_now.reason for _, decided in pairs]
        assert failing == Counter(filter(None, reasons))
        assert all(change.samples for change in answer.changes)


def _action(decided: Decided) -> str:
    return decided.row.action if decided.row.rule_line else "REMAINS"


def _table(random: Random, dialect: str, patterns: list[str]) -> str:
    actions = [*ACTIONS, *KAFKA_ACTIONS] if dialect else ACTIONS
    rules = [f"{random.choice(patterns)} {random.choice(actions)}" for _ in range(4)]
    return "\n".join([f"{dialect and f'DIALECT({dialect})'} RETRYINT(5)", *rules, ""])


def _letter(random: Random) -> OutputRecord:
    letter = random.choice(LETTERS)
    more = random.sample(DESCRIPTORS, random.choice([0, 1, 5]))
    return letter._replace(headers=[*(letter.headers or dead_letter(2053, "A")), *more])
