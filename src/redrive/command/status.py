"""``redrive status``: shows waiting messages, results, and the state of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.checkpoints.instances import Share
from redrive.checkpoints.other_applications import notes_about_others, who_runs
from redrive.checkpoints.registry import vacant_shares
from redrive.command.history import due_text
from redrive.command.options import config_option, instance_options, table_options
from redrive.command.output import console, print_json, print_uncut, table
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import read_topics, sources_of
from redrive.engine.outcome import Result
from redrive.errors import TransientFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.operations.channel import HeldMessages, held_messages
from redrive.operations.durations import clock, duration
from redrive.operations.retention import Waiting, expiring_of
from redrive.operations.states import acknowledgements_in_effect
from redrive.operations.supervision import (
    Activity,
    HiddenRecords,
    SupervisionState,
    hidden_records,
    problem_of,
    supervision_file,
)
from redrive.operations.supervision import read as read_supervision
from redrive.operations.tables import NextLook, next_looks
from redrive.outcomes.ledger import Batch
from redrive.outcomes.status import (
    AskRates,
    Count,
    HandlerStatus,
    Precision,
    Status,
    status_of,
)
from redrive.printable import printable
from redrive.settings import Option, Settings, read_settings_for_lookup

_Answer = TypeVar("_Answer")

_REFRESH: Final = 2.0
"""Seconds between two updates with ``--watch``."""
_HOW_TO_RELEASE: Final = (
    "redrive browse QM --remaining shows them; redrive channel start or redrive queue release"
    " retries them\n"
)
_SIGNS: Final = {Precision.EXACT: "", Precision.LAST_KNOWN: "~ ", Precision.UNKNOWN: ""}


@click.command()
@config_option
@instance_options
@table_options
@click.option("--watch", is_flag=True, help="Update every two seconds until interrupted.")
@click.option("--check", is_flag=True, help="Report the health of the job by the exit code.")
@click.pass_context
def status(
    context: click.Context,
    /,
    config: Path,
    options: Sequence[Option],
    *,
    as_json: bool,
    watch: bool,
    check: bool,
) -> None:
    """Show what waits for every handler, and the results so far.

    \b
    redrive status -c redrive.toml
    redrive status --watch
    redrive status --check

    waiting: not read yet. parked: waits for its next attempt. held: parked behind an earlier
    message of the same key (ORDER(KEY)). remaining: no rule could place it. acknowledged: remains
    on purpose (redrive ack). quarantined: set aside, no table evaluates it. Undeliverable
    messages are counted by the queue on which they wait. Without the ledger's folder, as on another
    machine, it counts on the topics; without a broker it shows what the ledger knows, with a note.
    ? is an unknown number.

    Exit codes: 0 shown, 1 error, 2 usage. With --check, which has to run on the machine of the
    job: 0 healthy, 1 the job is stalled or dead, a handler is stopped, its queue has messages and
    GET(DISABLED), no instance works on a share, a transaction has been open for a minute and hides
    messages, the broker does not answer, or the number of waiting messages is unknown.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if check and watch:
        raise UsageError("--check runs once", hint="leave out --watch")
    # A changed table may be broken: the job refused it, which status has to report.
    settings = read_settings_for_lookup(config, options=options)
    if watch:
        _watch(settings, as_json=as_json)
        return
    view = StatusView.of(settings)
    if as_json:
        print_json(view.as_json())
    else:
        print_uncut(view.shown())
    context.exit(1 if check and view.problem else 0)


def _watch(settings: Settings, *, as_json: bool) -> None:
    live = nullcontext() if as_json else Live(console=console(), auto_refresh=False)
    with suppress(KeyboardInterrupt), live as shown:
        while True:
            view = StatusView.of(settings)
            if shown is None:
                print_json(view.as_json(), indent=False)
            else:
                shown.update(view.shown(), refresh=True)
            time.sleep(_REFRESH)


@dataclass(frozen=True, slots=True)
class StatusView:
    """The state of a job, as observed and as it reports itself."""

    now: Status
    supervision: SupervisionState | None
    next_looks: Mapping[str, NextLook]
    expiring: Sequence[Waiting]
    held: Sequence[HeldMessages] = ()
    """What waits for channels that do not move it."""
    vacant: Sequence[Share] = ()
    """Fixed shares of the partitions without an instance, while another share has one."""
    others: Sequence[str] = ()
    """What is to be known of other applications on the same topics."""
    hidden: Sequence[HiddenRecords] = ()

    @classmethod
    def of(
        cls, settings: Settings, *, rates: AskRates = lambda _: None, now: datetime | None = None
    ) -> Self:
        """The state by the brokers, the ledger and the job; arguments as for ``status_of``.

        Raises:
            EnvironmentFault: As ``status_of`` does.
        """
        job = settings.job
        read = partial(acknowledgements_in_effect, job)
        current = status_of(job, acknowledgements=read, rates=rates, now=now, mask=settings.mask)
        reported = read_supervision(supervision_file(job))
        if reported is not None and job.only_handlers is not None:
            reported = reported.restricted_to(job)
        remains = current.instances is not None and any(
            handler.remaining.number for handler in current.handlers
        )
        is_refused = reported is not None and bool(reported.refused)
        looks = next_looks(job) if remains and not is_refused else {}
        expiring = () if current.instances is None else expiring_of(job, current.time.timestamp())
        if reported is not None:
            reported = reported.masked(settings.mask)
        answers = current.instances is not None
        ask = partial(_ask, job)
        held: Sequence[HeldMessages] = ()
        if answers and sources_of(job):
            held = ask(lambda cluster: held_messages(job, cluster))
        vacant: Sequence[Share] = ()
        if current.instances and job.share.total > 1:
            name, topic = job.application, job.control_topic
            vacant = ask(lambda cluster: vacant_shares(cluster, name, topic, job.share))
        others: Sequence[str] = ()
        if answers and job.only_handlers is None:  # others are for users of the whole job
            topics = read_topics(job)
            others = ask(lambda cluster: notes_about_others(cluster, job.application, topics))
        hidden = _hidden(job, current, reported)
        return cls(current, reported, looks, expiring, held, vacant, others, hidden)

    @property
    def problem(self) -> str:
        """The problem of the job as a whole; empty if it is healthy."""
        now = self.now
        problem = problem_of(self.supervision, now.instances, now.time.timestamp())
        stopped = self.supervision.stopped if self.supervision is not None else {}
        seconds = now.time.timestamp()
        problems = [
            hidden.sentence(seconds) for hidden in self.hidden if hidden.is_problem(seconds)
        ]
        problems += [f"the handler of {topic} is stopped: {why}" for topic, why in stopped.items()]
        problems += [
            handler.because for handler in now.handlers if handler.because and handler.waiting
        ]
        gap = now.gap and f"the number of waiting messages is unknown: {now.gap}"
        return problem or self._vacancy or next(iter(problems), gap)

    @property
    def _vacancy(self) -> str:
        shares = ", ".join(map(str, self.vacant))
        return shares and f"no instance works on the share {shares}: its partitions wait"

    @property
    def description(self) -> str:
        """The state that the job reports, except that it runs."""
        state, now = self.supervision, self.now.time.timestamp()
        if state is None or (state.state is Activity.RUNNING and not state.is_dead(now)):
            return ""
        return state.describe(now)

    def shown(self) -> RenderableType:
        """The state for a terminal."""
        now = self.now
        parts: list[RenderableType] = [Text(_title(now, self.supervision), style="bold")]
        if self.description:
            style = "bold red" if self.problem else "yellow"
            parts.append(Text(printable(f"{self.description}\n"), style=style))
        if now.handlers:
            parts.append(_queues(now))
        for handler in now.handlers:
            look = self.next_looks.get(handler.identity.name)
            if look is not None and handler.remaining.number:
                line = f"remaining messages of {handler.identity.name} are evaluated again {look}"
                parts.append(Text(line))
        parts += [Text(printable(f"{line}\n"), style="bold red") for line in self.alarms()]
        if now.puts is not None and now.puts.retried:
            parts.append(_waiting("retried by a receiver, on", now.puts.retried))
        if now.puts is not None and now.puts.undelivered:
            parts += [_waiting("undeliverable, on", now.puts.undelivered), _HOW_TO_RELEASE]
        if now.outcomes:
            parts += [_results(now), _batches(now.batches)]
        elif now.outcomes is not None:
            parts.append("No outcomes yet. `redrive run` handles waiting messages.")
        state = self.supervision
        waits = [] if state is None else [state.ledger, state.clusters, *state.dropping]
        notes = [*now.notes, *self.others, *_missing(now, state), *filter(None, waits)]
        return Group(*parts, *(Text(printable(f"note: {note}"), style="yellow") for note in notes))

    def alarms(self) -> Iterator[str]:
        """Problems that need a person while the job itself is healthy."""
        now = self.now.time.timestamp()
        state = self.supervision
        if self._vacancy:
            yield self._vacancy
        if state is not None:
            if state.refused:
                yield (
                    "changed settings or tables were refused, the old ones stay in use:"
                    f" {state.refused}"
                )
            for topic, why in state.stopped.items():
                yield f"the handler of {topic} is stopped: {why}; see redrive handler list"
        yield from (handler.because for handler in self.now.handlers if handler.because)
        yield from map(str, self.held)
        for breaker in () if state is None else state.breakers:
            yield f"{breaker.sentence} (for {duration(now - breaker.since)})"
        for hidden in self.hidden:
            yield hidden.sentence(now)
        for waiting in self.expiring:
            yield waiting.sentence(now)

    def as_json(self) -> dict[str, Any]:
        """The state for JSON."""
        now, puts, state = self.now, self.now.puts, self.supervision
        names = {
            topic: handler.identity.name
            for handler in now.handlers
            for topic in handler.identity.topics
        }
        return {
            "application": now.application,
            "time": now.time,
            "instances": now.instances,
            "vacant": [*map(str, self.vacant)],
            "handlers": [_handler_as_json(handler) for handler in now.handlers],
            "puts": puts and asdict(puts),
            "batches": [batch._asdict() for batch in now.batches],
            "outcomes": now.outcomes,
            "unprojected": now.unprojected,
            "notes": [*now.notes, *self.others, *_missing(now, state)],
            "held": [
                {
                    "place": held.place or None,
                    "waiting": held.waiting.messages,
                    "is_exact": held.waiting.is_exact,
                    "because": held.because,
                }
                for held in self.held
            ],
            "next_looks": self.next_looks,
            "expiring": [
                {
                    "topic": waiting.topic,
                    "handler": names.get(waiting.topic),
                    "at_most": waiting.expiring,
                    "first": None
                    if waiting.first is None
                    else datetime.fromtimestamp(waiting.first, UTC),
                    "retention": waiting.retention,
                }
                for waiting in self.expiring
            ],
            "hidden": [*map(asdict, self.hidden)],
            "problem": self.problem,
            "supervision": state and asdict(state),
        }


def _ask(
    job: JobConfiguration, question: Callable[[Cluster], Sequence[_Answer]]
) -> Sequence[_Answer]:
    """The broker's answer; empty if it does not answer in time."""
    with Cluster(job.connection) as cluster, suppress(TransientFault):
        return question(cluster)
    return ()


def _hidden(
    job: JobConfiguration, now: Status, reported: SupervisionState | None
) -> Sequence[HiddenRecords]:
    """What is hidden now, and on other topics of the job what it reports."""
    seconds = now.time.timestamp()
    known = () if reported is None or reported.is_dead(seconds) else reported.hidden
    handled = {topic for handler in now.handlers for topic in handler.identity.topics}
    others = [records for records in known if records.topic not in handled or now.instances is None]
    return [*hidden_records(job.connection, now.hidden, known, seconds), *others]


def _title(now: Status, supervision: SupervisionState | None) -> str:
    running = who_runs(now.instances)
    if supervision is not None and supervision.is_dead(now.time.timestamp()):
        # The broker forgets its instance only after a while.
        known, own = now.instances, f":{supervision.pid}"
        running = who_runs(known and [name for name in known if not name.endswith(own)])
    elif supervision is not None and not now.instances:
        # A job that starts, or waits for a topic, is no instance yet.
        cause = f": {supervision.cause}" if supervision.cause else ""
        running = f"process {supervision.pid} is {supervision.state}{cause}"
    # The job's own report may be old; everything else is current.
    age = now.time.timestamp() - supervision.time if supervision is not None else None
    report = "" if age is None else f", its last report {duration(age)} ago"
    return f"{now.application}  ({running}{report})  {clock(now.time)} UTC\n"


def _queues(now: Status) -> Table:
    rows = [_queue(handler, now.time) for handler in now.handlers]
    for column in ("held", "acknowledged"):
        if not any(getattr(handler, column) for handler in now.handlers):
            for row in rows:
                del row[column]
    return table(rows, right=[*rows[0]][2:], folded=["queue"])


def _queue(handler: HandlerStatus, now: datetime) -> dict[str, object]:
    identity, oldest, due = handler.identity, handler.oldest, handler.next_due
    return {
        "handler": identity.name,
        "queue": f"{identity.queue}@{identity.queue_manager}".removesuffix("@"),
        "waiting": "≤ " * (bool(handler.waiting) and not handler.is_exact)
        + _number_text(handler.waiting),
        "parked": _count_text(handler.parked),
        "held": _number_text(handler.held),
        "next due": "" if due is None else due_text(due, now),
        "remaining": _count_text(handler.remaining),
        "acknowledged": _number_text(handler.acknowledged),
        "quarantined": _count_text(handler.quarantined),
        "invalid": _number_text(handler.invalid),
        "oldest": oldest and duration((now - oldest).total_seconds()),
    }


def _waiting(title: str, numbers: Mapping[str, int]) -> Table:
    return table([{title: place, "messages": number} for place, number in numbers.items()])


def _count_text(count: Count) -> str:
    return f"{_SIGNS[count.precision]}{_number_text(count.number)}"


def _number_text(number: int | None) -> str:
    return "?" if number is None else str(number)


def _results(now: Status) -> Table:
    deciders = [(handler.identity.name, handler.results) for handler in now.handlers]
    if now.puts is not None:
        deciders.append(("puts", now.puts.results))
    rows = [
        {
            "handler": name,
            "result": result.value,
            "last minute": results.last_minute.get(result, 0),
            "last hour": results.last_hour.get(result, 0),
            "in all": total,
        }
        for name, results in deciders
        for result in Result
        if (total := results.in_all.get(result, 0))
    ]
    return table(rows)


def _batches(batches: tuple[Batch, ...]) -> Table:
    rows = [
        {
            "last batches (UTC)": clock(batch.time),
            "messages": sum(batch.results.values()),
            "results": ", ".join(f"{number} {result}" for result, number in batch.results.items()),
        }
        for batch in batches
    ]
    return table(rows, folded=["results"])


def _missing(now: Status, state: SupervisionState | None) -> Iterator[str]:
    stopped = state.stopped if state is not None else {}
    for handler in now.handlers:
        if handler.topic_exists is False and handler.identity.topic not in stopped:
            yield f"the dead-letter topic {handler.identity.topic} does not exist yet"


def _handler_as_json(handler: HandlerStatus) -> dict[str, Any]:
    document = asdict(handler)
    identity = document.pop("identity")
    names = {name: identity[name] for name in ("queue_manager", "queue", "topic")}
    return {"handler": identity["name"], **names, **document}
