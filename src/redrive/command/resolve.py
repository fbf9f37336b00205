"""``redrive resolve``: traces a put through a topology, definition by definition."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Final

import click

from redrive.command.options import choice_option, number_option, topology_option
from redrive.command.put_options import (
    checked_at,
    put_options,
    read_put_names,
    read_reply_to,
    read_report,
)
from redrive.errors import UsageError
from redrive.operations.definitions import read_definitions
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import (
    MOVES,
    Caused,
    ResolutionTrace,
    TraceStep,
    assuming_tracer,
    trace_moves,
    trace_open,
)
from redrive.topology.mq.results import Bind, OpenOption, OpenRequest

_BINDS: Final = {bind.lower().replace("_", "-"): bind for bind in Bind}
_LONGEST: Final = 1 << 30
"""Maximum body length in bytes, more than any topic accepts."""


@click.command()
@put_options
@topology_option
@click.option(
    "--open",
    "options",
    default="",
    metavar="OPTIONS",
    help="Resolve an MQOPEN for INPUT, BROWSE, INQUIRE, SET or OUTPUT instead; separate"
    " several by commas.",
)
@click.option(
    "--then",
    multiple=True,
    type=click.Choice(MOVES),
    help="MQ Everyplace: what happens once the message is stored; may be repeated.",
)
@number_option(
    "--length",
    "Length of the message's body.",
    default=0,
    least=0,
    most=_LONGEST,
    metavar="BYTES",
)
@choice_option(
    "--bind",
    values=_BINDS,
    default="as-q-def",
    help_text="With --open: when an instance of a cluster queue is chosen.",
)
@number_option(
    "--seed",
    "Chooses among equal cluster queues, as the put's offset on the intake does.",
    default=0,
    least=0,
)
@click.option("--json", "as_json", is_flag=True, help="Print the trace as JSON.")
@click.option("--mermaid", is_flag=True, help="Print the trace as a Mermaid flowchart.")
@click.pass_context
def resolve(  # noqa: PLR0917 - click passes the arguments by name
    context: click.Context,
    names: Sequence[str],
    files: Sequence[str],
    at: str,
    options: str,
    then: Sequence[str],
    length: int,
    persistent: bool | None,  # noqa: FBT001 - click passes it by name
    reports: Sequence[str],
    reply_to: str,
    bind: str,
    seed: int,
    as_json: bool,  # noqa: FBT001 - as above
    mermaid: bool,  # noqa: FBT001 - as above
) -> None:
    """Trace a put to QUEUE step by step, as the job resolves it.

    \b
    redrive resolve ORDERS --topology QM1.mqsc
    redrive resolve PAYROLL@QM2 --at QM1 --topology definitions --mermaid > trace.mmd

    QM is the queue manager that the application names with the queue (ObjectQMgrName); without
    it the field is blank. --at is the manager that it is connected to, and is not needed if there
    is only one. redrive put takes the same names, and the same --report and --reply-to.

    The message is resolved hop by hop, as by the job. Each hop shows the definitions used and
    what the job does, with the reports that the message asks for. Assumptions about the cluster
    are listed at the end.

    Exit codes: 0 the message reaches a queue, 1 it does not, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    target, at = read_put_names("resolve", names, at)
    topology = read_definitions(files)
    at = checked_at(at, topology.manager_names)
    if then and at in topology.mq:
        raise UsageError(
            f"--then: {at} is of IBM MQ, where channels run by themselves",
            hint="--then is for MQ Everyplace",
        )
    if options and at in topology.mq:
        opened = OpenRequest(
            queue=target.queue,
            queue_manager=target.queue_manager,
            options=_open_options(options),
            bind=_BINDS[bind],
            seed=seed,
        )
        trace = trace_open(topology, at, opened)
    elif then:
        trace = trace_moves(topology, at, target, length=length, moves=then)
    else:
        message = NewMessage(
            queue=target.queue,
            queue_manager=target.queue_manager,
            persistent=persistent,
            report=read_report(reports),
            reply_to=read_reply_to(reply_to),
        )
        for warning in message.reports_in_vain():
            click.echo(f"warning: {warning}", err=True)
        trace = assuming_tracer(topology).trace(at, message, bytes(length), offset=seed)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(trace), indent=2))
    elif mermaid:
        click.echo("\n".join(_flowchart(trace)))
    else:
        click.echo("\n".join(_tree(trace)))
    context.exit(0 if trace.is_good else 1)


def _open_options(text: str) -> OpenOption:
    found = OpenOption(0)
    for word in text.upper().split(","):
        if word.strip() not in OpenOption.__members__:
            known = ", ".join(OpenOption.__members__)
            raise UsageError(f"{word!r} is not an MQOPEN option", hint=f"choose from {known}")
        found |= OpenOption[word.strip()]
    return found


# Trees and flowcharts


def _tree(trace: ResolutionTrace) -> Iterator[str]:
    cells = [_cells(step) for visit in trace.visits for step in visit.steps]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for depth, visit in enumerate(trace.visits):
        arrow = "" if not depth else "-> "
        yield f"{'  ' * depth}{arrow}{visit.queue_manager}: {visit.names or 'no names'}"
        for step in visit.steps:
            line = "  ".join(map(str.ljust, _cells(step), widths))
            yield f"{'  ' * (depth + 2)}{line}".rstrip()
        if visit.decision:
            yield f"{'  ' * (depth + 2)}job: {visit.decision}"
    end = trace.end + (f": {trace.final}" if trace.final else "")
    yield f"=> {end}" + (f" (topic {trace.topic})" if trace.topic else "")
    if trace.problem is not None:
        code = f"{trace.problem.code} " if trace.problem.code else ""
        parts = (f"{code}{trace.problem.name}", trace.problem.detail)
        yield f"   {': '.join(part for part in parts if part)}"
        if trace.problem.location:
            yield f"   look at: {trace.problem.location}"
        if trace.problem.advice:
            yield f"   to change: {trace.problem.advice}"
    for one in trace.caused:
        yield f"   and {one.what}: {_caused_text(one)}"
    for move in trace.moves:
        yield f"   --then {move} lets it go on"
    for sentence in trace.assumed:
        yield f"   assumed: {sentence}"


def _caused_text(end: Caused) -> str:
    place = f": {end.final}" if end.final else ""
    topic = f" (topic {end.topic})" if end.topic else ""
    return f"{end.end}{place}{topic}{end.detail and f', because {end.detail}'}"


def _cells(step: TraceStep) -> tuple[str, str, str, str]:
    change = f" -> {step.after}" if step.after != step.before else ""
    return step.rule, step.definition, f"{step.what}{change}", step.location


def _flowchart(trace: ResolutionTrace) -> Iterator[str]:
    yield "flowchart TD"
    node = 0
    yield f'    n0(["{_escaped(trace.visits[0].names if trace.visits else "")}"])'
    for number, visit in enumerate(trace.visits):
        yield f'    subgraph m{number}["{_escaped(visit.queue_manager)}"]'
        first = node + 1
        for step in visit.steps:
            node += 1
            rule, definition, *more = _cells(step)
            label = "<br/>".join(map(_escaped, filter(None, (f"{rule} {definition}", *more))))
            yield f'        n{node}["{label}"]'
        yield "    end"
        for at in range(first, node + 1):
            yield f"    n{at - 1} --> n{at}"
    problem = trace.problem
    words = [trace.end, trace.final, trace.topic and f"topic {trace.topic}"]
    if problem is not None:
        words.append(" ".join(str(part) for part in (problem.code, problem.name) if part))
    label = "<br/>".join(_escaped(word) for word in words if word)
    yield f'    n{node + 1}(["{label}"])'
    yield f"    n{node} --> n{node + 1}"
    yield f"    class n{node + 1} {'good' if trace.is_good else 'bad'}"
    yield "    classDef good stroke:#2e7d32"
    yield "    classDef bad stroke:#c62828"


def _escaped(text: str) -> str:
    return "".join(
        character
        if character.isalnum() or character in " .,:;@->_/%=*()'"
        else f"#{ord(character)};"
        for character in text
    )
