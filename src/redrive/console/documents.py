"""The documents of the console, shared by pages and scripts, and events when they change."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio.to_thread
import orjson

from redrive.command.channel import channel_document
from redrive.command.explain import explanation_document
from redrive.command.failures import shows_mq
from redrive.command.history import find_message, message_document, plain
from redrive.command.ls import Acknowledgements, Groups, Letters
from redrive.command.message_file import WrittenRecord, message_fields
from redrive.command.opening import ask_inventory
from redrive.command.put import checked_at, read_queue_names
from redrive.command.replay_work import results_of_replays, status_with_results
from redrive.command.selection import options_of
from redrive.command.status import StatusView
from redrive.command.topology import TopologyView, part_of
from redrive.configuration.deciders import table_of
from redrive.console.access import EVERYTHING, Scope, Seen
from redrive.engine.outcome import COLUMNS, Kind
from redrive.errors import EnvironmentFault, RedriveError, TransientFault, UsageError
from redrive.kafka.records import StoredRecord
from redrive.masking import MASK
from redrive.operations.channel import channel_status
from redrive.operations.network import Network, network_of_settings, open_cluster
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import assuming_tracer
from redrive.operations.replay.progress import statuses
from redrive.operations.states import read_states
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import History
from redrive.outcomes.inventory import Inventory, Selection, State, group_of
from redrive.outcomes.open_letters import OPEN
from redrive.outcomes.rows import Values
from redrive.settings import Settings, read_settings

_BARS: Final = 48
"""Points of a curve, and hours of failures."""
_CLASSES: Final = 3
"""Exceptions with a colour of their own."""
_MOST: Final = 1000
"""Maximum groups to draw routes from."""
_COMPLETIONS: Final = 20
_COLUMNS: Final = {column.name: column.kind for column in COLUMNS}
_VALUE: Final = re.compile(
    r"(?P<before>(?s:.*?)\b(?P<column>\w+)\s*(?:=|<>|!=|LIKE)\s*')(?P<value>[^']*)$"
)
"""The end of a condition with a column and a text."""
_NAME: Final = re.compile(r"(?P<before>(?s:.*?))(?P<name>[a-z_]*)$")
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of one job, each for a scope of it; each reads the settings again."""

    path: Path

    def settings(self, scope: Scope) -> Settings:
        """The current settings, without what is not in scope; errors of ``read_settings``.

        Every view of the console uses them, so this is where users are restricted.
        """
        settings = read_settings(self.path)
        return replace(settings, job=scope.restrict(settings.job))

    def status(self, scope: Scope) -> dict[str, Any]:
        """What ``redrive status --json`` prints, and the outcomes of the last day by the hour."""
        settings, now = self.settings(scope), datetime.now(UTC)
        part = (_HOUR / _BARS).total_seconds()
        view = StatusView.of(settings, rates=lambda asked: asked.rates(now - _DAY, part), now=now)
        rates = view.now.rates
        return {
            **view.as_json(),
            "description": view.description,
            "alarms": [*view.alarms()],
            "mq": shows_mq(settings.job, mq=False),
            "rates": None
            if rates is None
            else {"hour": _curves(rates, now, _HOUR), "day": _curves(rates, now, _DAY)},
        }

    def failures(self, scope: Seen) -> dict[str, Any]:
        """How many dead letters of all states failed in each of the last hours, by exception."""
        settings, now = self.settings(scope), datetime.now(UTC)
        until = now.replace(minute=0, second=0, microsecond=0) + _HOUR
        since = until - _BARS * _HOUR
        answer = ask_inventory(
            settings,
            Selection(state=State.ALL, since=since, before=until),
            lambda inventory, chosen: [
                *inventory.arrivals(chosen, since, _HOUR.total_seconds(), column="error_class")
            ],
        )
        hours: list[Counter[str]] = [Counter() for _ in range(_BARS)]
        for error_class, hour, number in sorted(answer.found):
            hours[hour][settings.mask.text(error_class)] += number
        total = sum(hours, Counter())
        shown = [error_class for error_class, _ in total.most_common(_CLASSES)]
        bars = [
            {
                "since": since + hour * _HOUR,
                "before": since + (hour + 1) * _HOUR,
                "count": counts.total(),
                "exceptions": [counts[error_class] for error_class in shown],
            }
            for hour, counts in enumerate(hours)
        ]
        first = next((hour for hour, counts in enumerate(hours) if counts), _BARS)
        return {
            "total": total.total(),
            "exceptions": [{"name": name, "count": total[name]} for name in shown],
            "hours": bars[min(first, _BARS // 2) :],
            **answer.document(),
        }

    def groups(self, scope: Scope, selection: Selection, limit: int) -> dict[str, Any]:
        """What ``redrive groups --json`` prints, and trends of the groups."""
        settings = self.settings(scope)
        groups = Groups.of(settings, selection, limit=limit, bars=_BARS // 2)
        document = groups.document()
        for group, condition, trend in zip(
            document["groups"], groups.conditions, groups.trends, strict=True
        ):
            group |= {"condition": condition, "trend": trend}
        return {**document, **_form_choices(settings)}

    def messages(self, scope: Scope, selection: Selection, limit: int, page: int) -> dict[str, Any]:
        """What ``redrive ls --json`` prints."""
        settings = self.settings(scope)
        letters = Letters.of(settings, selection, limit=limit, page=page)
        return {**letters.document(), **_form_choices(settings)}

    def outline(self, scope: Scope) -> dict[str, Any]:
        """What a list's page shows before its rows."""
        return _form_choices(self.settings(scope))

    def message(self, identity: str, scope: Seen) -> dict[str, Any]:
        """What ``redrive show --json`` prints, with each rule's verdict."""
        settings = self.settings(scope)
        answer, record = find_message(settings, identity, of_handlers=True)
        document = message_document(settings, answer, record)
        group = group_of(answer.last) if answer and answer.last.result in OPEN else ""
        return {
            "message": identity,
            **document,
            "last": plain(answer.last) if answer else None,
            "mq": shows_mq(settings.job, mq=False),
            "why": _why(settings, answer, record),
            "group": "" if MASK in group else group,
        }

    def body(self, identity: str, scope: Scope) -> bytes:
        """The masked body of a message; raises ``RedriveError`` if it was deleted."""
        settings = self.settings(scope)
        _, record = find_message(settings, identity, of_handlers=True)
        if isinstance(record, Lost):
            raise RedriveError(f"the body was deleted: {record.reason}")
        return settings.mask.data(record.value or b"")

    def acknowledgements(self, scope: Seen) -> dict[str, Any]:
        """What ``redrive ack --list --json`` prints."""
        settings = self.settings(scope)
        current = Acknowledgements.of(settings)
        rows = [
            {**row, "chosen": _list_parameters(settings, acknowledgement.selection)}
            for row, (acknowledgement, _) in zip(
                current.document(settings), current.pairs, strict=True
            )
        ]
        return {"acknowledgements": rows, "notes": current.notes}

    def completions(self, scope: Scope, text: str, selection: Selection) -> dict[str, Any]:
        """Completions of a condition: columns, or values of one among the selected."""
        quoted = _VALUE.fullmatch(text)
        if quoted is None:
            name = _NAME.fullmatch(text)
            assert name is not None, "it matches any text"
            names = (column for column in _COLUMNS if column.startswith(name["name"]))
            return {"completions": [name["before"] + column for column in names]}
        column, before = quoted["column"], quoted["before"]
        if _COLUMNS.get(column) is not Kind.TEXT:
            return {"completions": []}
        settings = self.settings(scope)

        def ask(inventory: Inventory, chosen: Selection) -> list[str]:
            return inventory.values(chosen, column, quoted["value"], limit=_COMPLETIONS)

        values = ask_inventory(settings, selection, ask).found
        return {
            "completions": [
                "{}{}'".format(before, value.replace("'", "''"))
                for value in values
                if settings.mask.text(value) == value
            ]
        }

    def network(self, queue_manager: str = "") -> dict[str, Any]:
        """What ``redrive topology show --json`` prints, and the channels of one queue manager.

        The name may have ``*`` and ``?``; empty for all managers. For a job without a topology it
        is only ``ways``, the sources of its dead letters.
        """
        settings = self.settings(EVERYTHING)
        named = {handler.identity.topic: handler.identity.name for handler in settings.job.handlers}
        if settings.topology is None:
            return {"queue_managers": [], "handlers": named, **_ways(settings)}
        network = network_of_settings(self.path)
        view = TopologyView.of(network, ())
        part = part_of(view.overview, [queue_manager] if queue_manager else [])
        document = view._replace(overview=part).document()
        document |= {"notes": [*view.notes], "handlers": named, "chosen": queue_manager}
        if len(part.queue_managers) > 1:
            return document
        name = part.queue_managers[0].name
        reached_from = [
            {"queue_manager": manager.name, "name": connection.name, "kind": connection.kind}
            for manager in view.overview.queue_managers
            for connection in manager.connections
            if connection.queue_manager == name and manager.name != name
        ]
        channels, notes = _channels(network, name)
        document["notes"] += notes
        return {**document, "channels": channels, "reached_from": reached_from}

    def resolve(self, put: str, at: str = "") -> dict[str, Any]:
        """What ``redrive resolve --json`` prints, with the queues as changed by operators.

        ``put`` is ``QUEUE`` or ``QUEUE@QM``; ``at`` may be empty for the only queue manager. It
        raises ``UsageError`` if these are not names, or there is no topology.
        """
        network = network_of_settings(self.path)
        with network.cluster() as cluster:
            states = read_states(network.required_job(), cluster)
        names = read_queue_names(put)
        at = checked_at(at, network.topology.manager_names)
        message = NewMessage(queue=names.queue, queue_manager=names.queue_manager)
        trace = assuming_tracer(network.topology, states).trace(at, message, b"", offset=0)
        return {**asdict(trace), "put": put, "at": at}

    def replays(self, scope: Scope) -> dict[str, Any]:
        """What ``redrive replay list --json`` prints."""
        job = self.settings(scope).job
        with open_cluster(job.connection) as cluster:
            replays = statuses(job, cluster, results=partial(results_of_replays, job))
        return {"replays": [progress.document() for progress in replays]}

    def replay(self, scope: Scope, plan: str) -> dict[str, Any]:
        """What ``redrive replay status --json`` prints."""
        job = self.settings(scope).job
        with open_cluster(job.connection) as cluster:
            return status_with_results(job, cluster, plan).document()


def _list_parameters(settings: Settings, selection: Selection) -> dict[str, str] | None:
    """A selection as parameters of a list; None if they have a secret."""
    options = options_of(selection)
    if any(settings.mask.text(option) != option for option in options.values()):
        return None
    parameters = {
        name.removeprefix("--").replace("-", "_"): option for name, option in options.items()
    }
    return {"status": selection.state.value, **parameters}


def _form_choices(settings: Settings) -> dict[str, Any]:
    return {
        "mq": shows_mq(settings.job, mq=False),
        "handlers": [handler.identity.name for handler in settings.job.handlers],
    }


def _channels(network: Network, name: str) -> tuple[list[Any], list[str]]:
    try:
        return [channel_document(channel) for channel in channel_status(network, name, "")], []
    except UsageError:
        return [], []  # it sends nothing to others
    except (EnvironmentFault, TransientFault) as fault:
        return [], [fault.message]


def _ways(settings: Settings) -> dict[str, Any]:
    groups = Groups.of(settings, Selection(state=State.OPEN), limit=_MOST)
    counts: Counter[tuple[str, str, str]] = Counter()
    for group in groups.groups:
        counts[group.handler, group.destination, group.consumer_group] += group.count
    ways = [
        {"handler": handler, "topic": topic, "consumer_group": group, "count": count}
        for (handler, topic, group), count in counts.most_common()
    ]
    return {"ways": ways, "notes": groups.answer.notes}


def _curves(rates: Sequence[Values], now: datetime, span: timedelta) -> dict[str, Any]:
    """Outcomes of a time span by result, in ``_BARS`` equal parts.

    Each is the first outcome of a message, which ``came``, or one ``again``: of a further attempt
    or evaluation. ``rates`` are those of the last day, in the parts of an hour.
    """
    width = span // _HOUR
    first = (_DAY - span) // _HOUR * _BARS
    results: dict[str, list[int]] = {}
    came, again = [0] * _BARS, [0] * _BARS
    for row in rates:
        if row["part"] >= first:
            place = min(_BARS - 1, (row["part"] - first) // width)
            results.setdefault(row["result"], [0] * _BARS)[place] += row["n"]
            came[place] += row["came"]
            again[place] += row["n"] - row["came"]
    seconds = (span / _BARS).total_seconds()
    return {
        "seconds": seconds,
        "since": now - span,
        "came": came,
        "again": again,
        "results": results,
    }


def _why(
    settings: Settings, answer: History | None, stored: StoredRecord | Lost
) -> dict[str, Any] | None:
    """What the handler's table does with a message, rule by rule; None without its fields."""
    if isinstance(stored, Lost):
        return None
    job, name = settings.job, answer.last.handler if answer else ""
    by_name = [handler for handler in job.handlers if handler.identity.name == name]
    by_topic = [handler for handler in job.handlers if handler.identity.topic == stored.lane.topic]
    handler = next(iter(by_name or by_topic), None)
    if handler is None:
        return None
    rules = table_of(handler)
    record = WrittenRecord(stored.key, stored.value, stored.headers, stored.timestamp)
    fields, problem = message_fields(record, job.scheme_table.at(stored.lane.topic), rules)
    if problem:
        return {"problem": problem, "rules": [], "turns": []}
    document = explanation_document(rules, fields, settings.mask, job.group_topic)
    return {"problem": "", "handler": handler.identity.name, **document}


# -- events: one query of the job serves all browsers with the same scope --------------------------

_BUSY: Final = 0.2
"""Seconds between two checks while the job changes its state."""
_IDLE: Final = 1.0
"""Seconds between two checks after one without a change."""
_SHARE: Final = 3
"""A check takes at most one part in this many of the time, for ledgers of any size."""
_ALIVE: Final = 15.0
"""Seconds after which an empty comment keeps the connection open."""
_UNIMPORTANT: Final = {"time", "rates", "last_minute", "last_hour"}
"""Members, at any depth, that change without an event."""


class _Look(NamedTuple):
    until: float
    """When it expires, by the monotonic clock."""
    document: dict[str, Any]
    state: str
    """A digest of its relevant parts."""


class Live:
    """The state of the job, and events whenever it changes."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._looks: dict[Scope, _Look] = {}
        self._looking = asyncio.Lock()

    async def status(self, scope: Seen) -> dict[str, Any]:
        """What ``redrive status --json`` prints, with the rates of the last hour and day.

        It is ``Documents.status`` of the last unexpired check; errors as there.
        """
        return (await self._look(scope)).document

    def state(self, scope: Scope) -> str:
        """The state at the last check, however old; empty if there was none."""
        look = self._looks.get(scope)
        return look.state if look else ""

    async def events(self, scope: Scope, seen: str) -> AsyncIterator[bytes]:
        """Server-sent events: ``changed`` whenever the state of the job changes.

        ``seen`` is a state not newer than what the page shows; empty if none is known. Source: the
        WHATWG HTML Living Standard, section 9.2.
        """
        said = time.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            now, until = seen, time.monotonic() + _IDLE
            with contextlib.suppress(RedriveError):  # the page already shows it
                until, _, now = await self._look(scope)
            if now != seen:
                seen, said = now, time.monotonic()
                yield f"event: changed\nid: {now}\ndata: \n\n".encode()
            elif time.monotonic() - said > _ALIVE:
                said = time.monotonic()
                yield b": \n\n"
            await asyncio.sleep(until - time.monotonic())

    async def _look(self, scope: Scope) -> _Look:
        async with self._looking:
            look, began = self._looks.get(scope), time.monotonic()
            if look is None or began >= look.until:
                document = await anyio.to_thread.run_sync(self._documents.status, scope)
                text = orjson.dumps(
                    _important(document), default=str, option=orjson.OPT_NON_STR_KEYS
                )
                state = hashlib.blake2b(text, digest_size=8).hexdigest()
                pause = _IDLE if look is not None and look.state == state else _BUSY
                until = began + max(pause, _SHARE * (time.monotonic() - began))
                look = self._looks[scope] = _Look(until, document, state)
        return look


def _important(value: Any) -> Any:  # noqa: ANN401 - a part of a document
    """A document without its irrelevant parts."""
    if isinstance(value, dict):
        return {
            name: _important(member) for name, member in value.items() if name not in _UNIMPORTANT
        }
    return [*map(_important, value)] if isinstance(value, list) else value
