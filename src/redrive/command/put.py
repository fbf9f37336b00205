"""``redrive put`` and ``resolve``: a put by MQ names, and its trace through a topology."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.options import (
    choice_option,
    combined,
    network_options,
    number_option,
    repeated_option,
    topology_option,
)
from redrive.diagnostics import did_you_mean
from redrive.errors import EnvironmentFault, RedriveError, UsageError
from redrive.messages.reports import REPORT_OPTIONS
from redrive.operations.network import Network, read_definitions, read_network
from redrive.operations.put import NewMessage, checked_put_topic, putting_user
from redrive.operations.put import put as put_message
from redrive.operations.put_trace import (
    ResolutionTrace,
    TraceStep,
    assuming_tracer,
    cluster_tracer,
    trace_moves,
    trace_open,
)
from redrive.topology.mq.results import Bind, OpenOption, OpenRequest
from redrive.topology.mqe.resolver import Move
from redrive.topology.names import NO_NAMES, Names

_BINDS: Final = {bind.lower().replace("_", "-"): bind for bind in Bind}
_LONGEST: Final = 1 << 30
"""Maximum body length in bytes, more than any topic accepts."""
_PREFIX = "MQRO_"

_put_options = combined(
    click.argument("names", nargs=-1, required=True, metavar="QUEUE[@QM]"),
    click.option("--at", default="", metavar="QM", help="The manager the application connects to."),
    click.option("--persistent/--not-persistent", default=None, help="Default: as the queue says."),
    repeated_option(
        "--report",
        "reports",
        metavar="OPTION",
        help_text="A report option, such as COA, EXCEPTION_WITH_DATA, DISCARD_MSG.",
    ),
    click.option(
        "--reply-to", default="", metavar="QUEUE[@QM]", help="Where reports and replies go."
    ),
)
"""The names of the put, and the message's fields that both commands have."""


def _read_put_names(command: str, arguments: Sequence[str], at: str) -> tuple[Names, str]:
    """Read the arguments of ``resolve`` or ``put``, and ``--at``.

    The older forms ``redrive resolve QM QUEUE`` and ``redrive put QM QUEUE[@QM]`` are accepted with
    a hint on standard error.

    Returns:
        ObjectName and ObjectQMgrName, and the manager that the application is connected to; empty
        if that is not given.

    Raises:
        UsageError: The arguments are not a valid put.
    """
    match arguments:
        case [text]:
            return read_queue_names(text), at
        case [manager, queue] if command == "resolve":
            names, at = Names(queue=queue, queue_manager=manager), at or manager
        case [manager, text]:
            names, at = read_queue_names(text), manager
        case _:
            hint = "such as PAYROLL@QM2 --at QM1"
            raise UsageError(f"redrive {command} takes one QUEUE or QUEUE@QM", hint=hint)
    hint = f"this is the older form of redrive {command} {names}{at and f' --at {at}'}"
    click.echo(f"{click.style('hint:', fg='cyan')} {hint}", err=True)
    return names, at


def read_queue_names(text: str) -> Names:
    """The queue and the queue manager in ``QUEUE`` or ``QUEUE@QM``."""
    queue, at, manager = text.partition("@")
    if not queue or (at and not manager):
        raise UsageError(f"{text!r} is not QUEUE or QUEUE@QM", hint="such as PAYROLL@QM2")
    return Names(queue=queue, queue_manager=manager)


def checked_at(at: str, managers: Collection[str]) -> str:
    """The named manager, or the only one; raises ``UsageError`` if it does not exist."""
    if at in managers:
        return at
    if not at and len(managers) == 1:
        return next(iter(managers))
    problem = f"the topology has no queue manager {at}" if at else "no queue manager is named"
    raise UsageError(problem, hint=f"give --at one of {', '.join(managers) or 'none'}")


def _read_report(names: Sequence[str]) -> int:
    """The field Report from options, also with commas or without ``MQRO_``; else ``UsageError``."""
    value = 0
    for text in ",".join(names).upper().split(","):
        name = text.strip().removeprefix(_PREFIX)
        if name and name not in REPORT_OPTIONS:
            hint = did_you_mean(name, REPORT_OPTIONS) or f"choose from {', '.join(REPORT_OPTIONS)}"
            raise UsageError(f"--report: there is no option {_PREFIX}{name}", hint=hint)
        value |= REPORT_OPTIONS.get(name, 0)
    return value


def _message(
    names: Names,
    *,
    reports: Sequence[str],
    reply_to: str,
    properties: Sequence[str] = (),
    **fields: Any,  # noqa: ANN401 - those of NewMessage
) -> NewMessage:
    """The message that options describe; warns about reports that will not come."""
    message = NewMessage(
        queue=names.queue,
        queue_manager=names.queue_manager,
        report=_read_report(reports),
        reply_to=read_queue_names(reply_to) if reply_to else NO_NAMES,
        properties=[_property(text) for text in properties],
        **fields,
    )
    for warning in message.reports_in_vain():
        click.echo(f"warning: {warning}", err=True)
    return message


@click.command()
@_put_options
@network_options
@click.option("--data", metavar="TEXT", help="The body; by default it is read from --file.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    metavar="FILE",
    help="File with the body as bytes; - and the default are standard input.",
)
@click.option("--key", metavar="TEXT", help="Key of the record; equal keys keep their order.")
@repeated_option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    help_text="A message property, or a field as JMS_IBM_MQMD_ReplyToQ=ANSWERS.",
)
@number_option(
    "--priority", "Priority of the message. Default: as the queue says.", least=0, most=9
)
@number_option(
    "--expiry",
    "Tenths of a second after which the message is dropped. Default: never.",
    most=2**31 - 1,
    metavar="TENTHS",
)
@click.option(
    "--bind",
    default="",
    metavar="OPEN",
    help="Name of an open whose puts go to one instance of a cluster queue. Default: each put"
    " chooses.",
)
@click.option("--new-msg-id", is_flag=True, help="A new MsgId in place of the given one.")
@click.option("--new-correl-id", is_flag=True, help="A new CorrelId for each message.")
@click.option(
    "--set-identity",
    "sets_identity",
    is_flag=True,
    help="UserIdentifier, AccountingToken and ApplIdentityData are those of --property.",
)
@number_option("--count", "How often the message is put.", default=1)
def put(
    names: Sequence[str],
    at: str,
    *,
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    data: str | None,
    body_file: Path,
    count: int,
    **fields: Any,  # noqa: ANN401 - the options of a message
) -> None:
    """Put a message to QUEUE, as an application does.

    \b
    redrive put ORDERS --at QM1 --data 'two chairs' --property colour=blue
    redrive put PAYROLL@QM2 --at QM1 --file salaries.bin --persistent
    redrive put ORDERS --at QM1 --data 'a lamp' --report COA --reply-to ANSWERS

    QM is the queue manager that the application names with the queue (ObjectQMgrName); without it
    the field is blank. --at is the manager that it is connected to, and is not needed if there is
    only one. The running job resolves the names and delivers the message. redrive resolve with the
    same names shows where it would go; a warning says if that is not a queue.

    Prints topic:partition:offset of each message once the cluster has it: the ID for redrive
    history.

    Exit codes: 0 put, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    target, at = _read_put_names("put", names, at)
    message = _message(target, **fields)  # reports usage errors before asking the cluster
    network = read_network(config, bootstrap_server, files)
    at = at or checked_at("", network.topology.manager_names)
    message = replace(message, user=putting_user(network))
    topic = checked_put_topic(network, at)
    body = _body(data, body_file)
    for problem in _problems(network, at, message, body):
        click.echo(f"warning: {problem}", err=True)
    delivery = put_message(network, topic, message, body, count=count)
    for position in delivery.positions:
        click.echo(position)
    if delivery.refusal:
        raise EnvironmentFault(
            f"{len(delivery.positions)} of {count} messages are on {topic}: {delivery.refusal}",
            hint="the body is longer than MAXMSGL of the queue manager and max.message.bytes allow"
            if delivery.is_too_large
            else "put the missing messages again",
        )


def _problems(network: Network, at: str, message: NewMessage, body: bytes) -> Iterator[str]:
    try:
        with network.cluster() as cluster:
            trace = cluster_tracer(network, cluster).trace(at, message, body)
    except RedriveError as problem:
        yield f"whether the message will reach its queue is not known: {problem.message}"
        return
    if not trace.is_good:
        end = f"{trace.end} {trace.final}".strip()
        yield f"as far as this user can see, the message will not reach its queue: {end}"
        if trace.problem is not None:
            why = f"{trace.problem.code or ''} {trace.problem.detail}".strip()
            yield f"{why}; redrive resolve with the same names shows the way"


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--property {text} has no value", hint="write --property NAME=VALUE")
    return name, value


def _body(data: str | None, file: Path) -> bytes:
    if data is not None:
        return data.encode()
    if str(file) != "-":
        return file.read_bytes()
    if sys.stdin.isatty():
        click.echo("Type the body and end it with Ctrl+D.", err=True)
    return sys.stdin.buffer.read()


# -- resolve -------------------------------------------------------------------------------------


@click.command()
@_put_options
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
    type=click.Choice([*map(str, Move)]),
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
def resolve(
    context: click.Context,
    /,
    names: Sequence[str],
    at: str,
    *,
    files: Sequence[str],
    options: str,
    then: Sequence[str],
    length: int,
    bind: str,
    seed: int,
    as_json: bool,
    mermaid: bool,
    **fields: Any,  # noqa: ANN401 - the options of a message
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
    target, at = _read_put_names("resolve", names, at)
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
        message = _message(target, **fields)
        trace = assuming_tracer(topology).trace(at, message, bytes(length), offset=seed)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(trace), indent=2))
    elif mermaid:
        click.echo("\n".join(_flowchart(trace)))
    else:
        click.echo("\n".join(_tree(trace)))
    context.exit(0 if trace.is_good else 1)


def _open_options(text: str) -> OpenOption:
    options = OpenOption(0)
    for word in text.upper().split(","):
        if word.strip() not in OpenOption.__members__:
            known = ", ".join(OpenOption.__members__)
            raise UsageError(f"{word!r} is not an MQOPEN option", hint=f"choose from {known}")
        options |= OpenOption[word.strip()]
    return options


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
    for caused in trace.caused:
        place = f": {caused.final}" if caused.final else ""
        topic = f" (topic {caused.topic})" if caused.topic else ""
        because = caused.detail and f", because {caused.detail}"
        yield f"   and {caused.what}: {caused.end}{place}{topic}{because}"
    for move in trace.moves:
        yield f"   --then {move} lets it go on"
    for sentence in trace.assumed:
        yield f"   assumed: {sentence}"


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
