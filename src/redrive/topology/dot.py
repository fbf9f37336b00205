"""A topology as a graph in DOT, the language of Graphviz (``dot -Tsvg``).

Each queue manager is a table with a row for each queue and channel; an edge leads from the row of a
definition to its target. The output is deterministic.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

from redrive.topology.overview import Overview, QueueManagerOverview, QueueOverview

DEFAULT_QUEUES = 15
"""Default for the maximum queues to list in one queue manager."""

_HEAD = """digraph topology {
  rankdir=LR
  node [shape=plain, fontname=monospace, fontsize=11]
  edge [color="#37474f"]"""
# Colours that colour-blind people can distinguish (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442")
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def dot(overview: Overview, *, queues: int = DEFAULT_QUEUES) -> str:
    """Write a topology as a graph.

    Channels and connections are solid edges, definitions that name another queue manager dashed
    ones, aliases dotted ones. A cluster is a node with an edge to each member.
    """
    nodes = {manager.name: f"m{at}" for at, manager in enumerate(overview.queue_managers)}
    lines = [_HEAD]
    for manager in overview.queue_managers:
        lines += _node(nodes[manager.name], manager, queues)
    for manager in overview.queue_managers:
        lines += _edges(nodes, manager, manager.queues[:queues])
    for at, (cluster, colour) in enumerate(zip(overview.clusters, cycle(_COLOURS), strict=False)):
        style = f'shape=ellipse, color="{colour}"'
        lines.append(f"  c{at} [label=<cluster {_text(cluster.name)}>, {style}]")
        members = (one.name for one in overview.queue_managers if cluster.name in one.clusters)
        lines += (f'  c{at} -> {nodes[name]} [dir=none, color="{colour}"]' for name in members)
    return "\n".join([*lines, "}\n"])


def _node(node: str, manager: QueueManagerOverview, most: int) -> Iterator[str]:
    about = [manager.kind]
    if manager.dead_letter_queue:
        about.append(f"dead letters: {manager.dead_letter_queue}")
    if manager.clusters:
        about.append(f"clusters: {', '.join(manager.clusters)}")
    yield f'  {node} [label=<<table border="0" cellborder="1" cellspacing="0">'
    title = f"<b>{_text(manager.name)}</b><br/>{_text(' · '.join(about))}"
    yield f'    <tr><td port="head" bgcolor="#eceff1">{title}</td></tr>'
    for at, queue in enumerate(manager.queues[:most]):
        yield _row(f"q{at}", _queue(queue, manager.name))
    if len(manager.queues) > most:
        yield _row("more", f"... and {len(manager.queues) - most} more queues")
    for at, one in enumerate(manager.connections):
        leads = f" → {one.queue_manager}" if one.queue_manager else ""
        yield _row(f"c{at}", f"{one.name} · {one.kind}{leads}")
    yield "  </table>>]"


def _row(port: str, text: str) -> str:
    return f'    <tr><td port="{port}" align="left">{_text(text)}</td></tr>'


def _queue(queue: QueueOverview, owner: str) -> str:
    targets = (
        one.queue if one.queue_manager == owner and one.queue else str(one) for one in queue.targets
    )
    leads = f" → {', '.join(targets)}" if queue.targets else ""
    return f"{queue.name} · {queue.kind}{leads}" + ("" if queue.put_enabled else " · PUT(DISABLED)")


def _edges(
    nodes: Mapping[str, str], manager: QueueManagerOverview, listed: Sequence[QueueOverview]
) -> Iterator[str]:
    here = nodes[manager.name]
    for at, connection in enumerate(manager.connections):
        there = nodes.get(connection.queue_manager, here)
        if there != here:
            yield f"  {here}:c{at} -> {there}:head"
    ports = {queue.name: f"q{at}" for at, queue in enumerate(listed)}
    for at, queue in enumerate(listed):
        for target in queue.targets:
            there = nodes.get(target.queue_manager, "")
            if there == here and target.queue in ports and target.queue != queue.name:
                yield f"  {here}:q{at} -> {here}:{ports[target.queue]} [style=dotted]"
            elif there not in {here, ""}:
                yield f"  {here}:q{at} -> {there}:head [style=dashed]"


def _text(text: str) -> str:
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)) or " "
