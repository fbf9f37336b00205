"""Records, a rules table and facts of the cluster: what one attempt of the engine writes.

The cases are in ``cases/*.yaml``. One is an attempt, or several, each on what the one before wrote:

    - title: a full queue takes one more
      table: ACTION(RETRY) RETRY(2)        # the rules; without it, those of ``samples``
      options: {hop_limit: 3}              # of the handler
      leads_to: {topic: Q, max_depth: 10}  # all names, with limits; or the code of a refusal
      topics: {Q: {wants_keys: true}}      # facts of topics; all others take everything
      depths: {Q: 9}
      originals: {jobs:2:9: it is gone}    # records that are asked for, or why they are not there
      replays: {p: {to: original}}         # plans that were accepted
      now: 90000
      kind: retries                        # of the source, see ``SourceKind``
      record: {letter: 2053 Q, headers: {a: 1}, key: k, value: x, timestamp: 77}
      outcome: {reason: 2053, detail: ~is full}
      written: {Q: [{key: k, kept: [[a, 1]], headers: {redrive.hops: 1}}]}
      then: [{take: RETRY, kind: retries, outcome: {attempt: 2}}]

``letter`` are Reason and DestQName as headers; several records are ``records`` with ``outcomes``.
Of an outcome and of a record all that is said holds: ``~`` begins a part of a text, null is what
is absent, and ``kept`` are all headers but Redrive's own. ``written`` names every topic that is
written to, save that of outcomes; a number is that of its records. A further attempt has the
table, options and facts of the one before, unless it says something else, and adds what its
``record`` says to each record that it takes.

With ``put`` it is an attempt on puts: on the ``intake`` of queue manager A of ``test_puts``, or on
its ``channel`` to B, which a message that stays stops if it is a ``stopping channel``. A put is
``{to: Q@B, mqmd: {Persistence: 1}}``; ``mqmd`` are fields of the descriptor of what is written too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conformance.vectors import Vector, load, octets
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import (
    NOW,
    Resolve,
    dead_letter,
    handler_of,
    outcomes_in,
    resolve_anything,
    slice_of,
)
from tests.engine.test_puts import INTAKE, TRANSMISSION, names, work_on

from redrive.engine.commands import Replay, To
from redrive.engine.decision import TimestampMode
from redrive.engine.facts import Gone, Original, RecordQuestion, TopicFacts
from redrive.engine.slice import Slice
from redrive.engine.sources import SourceKind
from redrive.messages import Headers, OutputRecord, Records
from redrive.messages import own_headers as own
from redrive.topology.put import Destination, QueueLimits, Refusal

_FOLDER: Final = Path(__file__).parent / "cases"
CASES: Final = [
    pytest.param(case, id=f"{path.stem}: {case['title']}")
    for path in sorted(_FOLDER.glob("*.yaml"))
    for case in load(_FOLDER, path.stem)
]
_LASTING: Final = {
    "table",
    "options",
    "leads_to",
    "topics",
    "depths",
    "originals",
    "replays",
    "now",
    "put",
}
_SOURCES: Final = {
    "intake": (INTAKE, None),
    "channel": (TRANSMISSION, None),
    "stopping channel": (TRANSMISSION, ("A", "A.TO.B")),
}
_PLAIN: Final = OutputRecord("", b"k", b"x", [], 77)


@pytest.mark.parametrize("case", CASES)
def test_what_an_attempt_writes_is_what_the_case_says(case: Vector) -> None:
    """Decided twice, as the job does after a transaction that failed, it is the same."""
    written: list[OutputRecord] = []
    for attempt in _attempts(case):
        taken = [record for record in written if record.topic == attempt.get("take")]
        assert bool(taken) is ("take" in attempt)
        given = attempt.get("records") or [attempt.get("record", {})] * (len(taken) or 1)
        records = [*map(_record, given, taken or [_PLAIN] * len(given))]
        work = _work(attempt, _columns(records))
        cluster = _cluster(attempt)
        outputs = cluster.decided(work)
        assert cluster.decided(work) == outputs
        expected = attempt.get("outcomes", [attempt.get("outcome", {})] * len(records))
        outcomes = outcomes_in(outputs)
        assert len(outcomes) == len(expected)
        for outcome, members in zip(outcomes, expected, strict=True):
            actual = {name: outcome.get(name) for name in members}
            assert [name for name in members if not _fits(members[name], actual[name])] == [], (
                actual
            )
        written = [record for _, record in outputs if record.topic != "OUT"]
        if "written" in attempt:
            _check_written(attempt["written"], written)


def _attempts(case: Vector) -> Iterator[Vector]:
    lasting: Vector = {}
    for attempt in (case, *case.get("then", ())):
        lasting |= {name: content for name, content in attempt.items() if name in _LASTING}
        yield lasting | attempt


def _work(attempt: Vector, records: Records) -> Slice:
    options = _options(**attempt.get("options", {}))
    if "put" in attempt:
        source, channel = _SOURCES[attempt["put"]]
        kind = SourceKind(attempt.get("kind", SourceKind.PUTS))
        return work_on(
            None, [], records=records, source=source, channel=channel, kind=kind, **options
        )
    table = {"text": attempt["table"]} if "table" in attempt else {}
    handler = handler_of(**table, resolve=_resolve(attempt.get("leads_to")), **options)
    kind = SourceKind(attempt.get("kind", SourceKind.DEAD_LETTERS))
    return slice_of(records, handler, kind=kind, now=attempt.get("now", NOW))


def _options(**options: Any) -> dict[str, Any]:
    if "timestamps" in options:
        options["timestamps"] = TimestampMode(options["timestamps"])
    return options


def _record(given: Vector, before: OutputRecord) -> OutputRecord:
    """A record that is read: what is said of it, beside what another one has."""
    reason, _, queue = str(given.get("letter", "")).partition(" ")
    letter = dead_letter(int(reason), queue) if reason else []
    queue, _, manager = str(given.get("to", "")).partition("@")
    fields = {name: str(field) for name, field in given.get("mqmd", {}).items()}
    letter += names(queue, manager, **fields) if queue else []
    return before._replace(
        key=_raw(given["key"]) if "key" in given else before.key,
        value=_raw(given["value"]) if "value" in given else before.value,
        headers=[*(before.headers or []), *letter, *_headers(given.get("headers", {}))],
        timestamp=given.get("timestamp", 77),
    )


def _headers(given: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    return [(name, _raw(content)) for name, content in pairs]


def _raw(content: Any) -> bytes | None:
    """The bytes of a value: a text, a number, or as in the vectors; several ``times``, if said."""
    if isinstance(content, dict):
        return (octets(content) or b"") * int(content.get("times", 1))
    return None if content is None else str(content).encode()


def _columns(records: Sequence[OutputRecord]) -> Records:
    return Records(
        [record.key for record in records],
        [record.value for record in records],
        [record.headers or [] for record in records],
        [record.timestamp for record in records],
        [*range(len(records))],
    )


def _resolve(leads_to: dict[str, Any] | int | None) -> Resolve:
    if leads_to is None:
        return resolve_anything
    answer: Destination | Refusal
    if isinstance(leads_to, int):
        answer = Refusal(leads_to, "full")
    else:
        topic, limits = leads_to["topic"], {**leads_to}
        del limits["topic"]
        answer = Destination(
            topic=topic, queue=topic, queue_manager="", limits=QueueLimits(**limits)
        )
    return lambda *_: answer


def _cluster(attempt: Vector) -> KnownCluster:
    return KnownCluster(
        topics={name: TopicFacts(**facts) for name, facts in attempt.get("topics", {}).items()},
        depths=attempt.get("depths", {}),
        records=dict(_original(*pair) for pair in attempt.get("originals", {}).items()),
        copies={f"DLQ:3:{number}".encode(): number for number in range(4)},
        replays={
            plan: Replay(**{"plan": plan, **replay, "to": To(replay["to"])})
            for plan, replay in attempt.get("replays", {}).items()
        },
    )


def _original(place: str, there: Any) -> tuple[RecordQuestion, Original | Gone]:
    topic, partition, offset = place.split(":")
    question = RecordQuestion(topic, int(partition), int(offset))
    match there:
        case str():
            return question, Gone(there)
        case {"may_come": why}:
            return question, Gone(why, may_come=True)
    record = _record(there, _PLAIN)
    return question, Original(record.key, record.value, record.headers or [], record.timestamp)


def _fits(content: Any, actual: Any) -> bool:
    if isinstance(content, str) and content.startswith("~"):
        return content[1:] in str(actual)
    return bool(content == actual)


def _check_written(expected: Mapping[str, Any], written: Sequence[OutputRecord]) -> None:
    by_topic: dict[str, list[OutputRecord]] = defaultdict(list)
    for record in written:
        by_topic[record.topic].append(record)
    numbers = {
        topic: records if isinstance(records, int) else len(records)
        for topic, records in expected.items()
    }
    assert {topic: len(records) for topic, records in by_topic.items()} == numbers
    for topic, records in expected.items():
        if not isinstance(records, int):
            shown = [*map(_shown, by_topic[topic], records)]
            assert shown == [*map(_meant, records)]


def _shown(record: OutputRecord, said: Vector) -> Vector:
    """Those parts of a record of which something is said."""
    headers = dict(record.headers or [])
    parts = {
        "key": record.key, "value": record.value, "partition": record.partition,
        "timestamp": record.timestamp, "kept": own.without_own(record.headers or []),
        "headers": {name: headers.get(name) for name in said.get("headers", {})},
        "mqmd": {name: headers.get(f"JMS_IBM_MQMD_{name}") for name in said.get("mqmd", {})},
    }  # fmt: skip
    return {part: parts[part] for part in said}


def _meant(said: Vector) -> Vector:
    read: dict[str, Callable[[Any], Any]] = {
        "key": _raw, "value": _raw, "kept": _headers,
        "headers": lambda content: dict(_headers(content)),
        "mqmd": lambda content: dict(_headers(content)),
    }  # fmt: skip
    return {part: read.get(part, int)(content) for part, content in said.items()}
