"""A topology as a picture: queue managers as boxes, in columns by their distance from the first.

A line of a box is a queue, a channel or a connection; an arrow from it shows where it leads. Boxes
stand in a grid, so none overlap whatever the network is like, and the same topology always gives
the same picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil, sqrt

from redrive.topology.overview import (
    ConnectionOverview,
    Overview,
    QueueManagerOverview,
    QueueOverview,
    Target,
)
from redrive.topology.picture import (
    OUTLINE,
    Arrow,
    Box,
    Line,
    Picture,
    Stroke,
    Tone,
    shortened,
)

DEFAULT_QUEUES = 15
"""Most queues that are drawn in one box unless more are asked for."""

_GUTTER = 120
_GAP = 40
_MARGIN = 40
_LONGEST = 72
# Colours that people who see few colours can tell apart (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442")
_STROKES = (
    (Stroke.CHANNEL, "channel or connection: messages move along it"),
    (Stroke.DEFINITION, "definition that leads to another queue manager"),
    (Stroke.ALIAS, "alias of a queue of the same queue manager"),
)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A queue manager and its box."""

    manager: QueueManagerOverview
    box: Box
    queues: Mapping[str, int]
    """The line of each queue that is drawn."""
    connections: Sequence[tuple[ConnectionOverview, int]]
    """Its channels, each with its line."""


def picture_of_network(overview: Overview, *, queues: int = DEFAULT_QUEUES) -> Picture:
    """Draw a topology.

    Args:
        overview: The queue managers.
        queues: Most queues in one box; the others are counted.

    Returns:
        The picture.
    """
    colours = {
        cluster.name: colour
        for cluster, colour in zip(overview.clusters, cycle(_COLOURS), strict=False)
    }
    columns = [
        [_drawn(manager, queues, colours) for manager in column] for column in _columns(overview)
    ]
    placed = list(_placed(columns))
    by_name = {one.manager.name: one for one in placed}
    return Picture(
        title="Topology",
        description=_description(overview),
        boxes=tuple(one.box for one in placed),
        arrows=tuple(arrow for one in placed for arrow in _arrows(one, by_name)),
        outlines=tuple((colour, f"cluster {name}") for name, colour in colours.items()),
        strokes=_STROKES,
    )


def _description(overview: Overview) -> str:
    def sentences() -> Iterator[str]:
        yield f"{len(overview.queue_managers)} queue managers."
        for manager in overview.queue_managers:
            for one in manager.connections:
                if one.queue_manager:
                    yield f"{one.name} leads from {manager.name} to {one.queue_manager}."
        for cluster in overview.clusters:
            yield f"Cluster {cluster.name}: {', '.join(cluster.queue_managers)}."

    return " ".join(sentences())


# The text of a box


def _drawn(manager: QueueManagerOverview, queues: int, colours: Mapping[str, str]) -> _Drawn:
    lines: list[Line] = []
    drawn: dict[str, int] = {}
    for queue in manager.queues[:queues]:
        drawn.setdefault(queue.name, len(lines))
        lines.append(_line(_queue_text(queue, manager.name)))
    if len(manager.queues) > queues:
        more = f"... and {len(manager.queues) - queues} more queues"
        lines.append(Line(more, Tone.QUIET))
    connections: list[tuple[ConnectionOverview, int]] = []
    if manager.connections:
        noun = "channels" if manager.kind == "mq" else "connections"
        lines.append(Line(noun, Tone.STRONG))
    for one in manager.connections:
        connections.append((one, len(lines)))
        lines.append(_line(_connection_text(one)))
    outlines = tuple(colours[cluster] for cluster in manager.clusters)
    title = shortened(manager.name, _LONGEST)
    box = Box(title=title, subtitle=_subtitle(manager), lines=tuple(lines), outlines=outlines)
    return _Drawn(manager, box, drawn, connections)


def _line(text: str) -> Line:
    short = shortened(text, _LONGEST)
    return Line(short, full=text if short != text else "")


def _subtitle(manager: QueueManagerOverview) -> str:
    parts = [manager.kind]
    if manager.dead_letter_queue:
        parts.append(f"dead letters: {manager.dead_letter_queue}")
    if manager.clusters:
        parts.append(f"clusters: {', '.join(manager.clusters)}")
    return shortened(" · ".join(parts), _LONGEST)


def _queue_text(queue: QueueOverview, owner: str) -> str:
    text = f"{queue.name} · {queue.kind}"
    if queue.targets:
        text += " → " + ", ".join(_target_text(target, owner) for target in queue.targets)
    return text if queue.put_enabled else f"{text} · PUT(DISABLED)"


def _target_text(target: Target, owner: str) -> str:
    return target.queue if target.queue_manager == owner and target.queue else str(target)


def _connection_text(one: ConnectionOverview) -> str:
    text = f"{one.name} · {one.kind}"
    return f"{text} → {one.queue_manager}" if one.queue_manager else text


# Where boxes stand


def _columns(overview: Overview) -> Iterator[list[QueueManagerOverview]]:
    """The managers by their distance from the first one; long columns become several."""
    managers = {manager.name: manager for manager in overview.queue_managers}
    layers: dict[int, list[QueueManagerOverview]] = {}
    for name, distance in _distances(managers).items():
        layers.setdefault(distance, []).append(managers[name])
    most = max(2, ceil(sqrt(len(managers))))
    for distance in sorted(layers):
        layer = layers[distance]
        yield from (layer[start : start + most] for start in range(0, len(layer), most))


def _distances(managers: Mapping[str, QueueManagerOverview]) -> dict[str, int]:
    """Channels between each manager and the first one of its part of the network."""
    near: dict[str, dict[str, None]] = {name: {} for name in managers}
    for manager in managers.values():
        for one in manager.connections:
            if one.queue_manager in near:
                near[manager.name][one.queue_manager] = None
                near[one.queue_manager][manager.name] = None
    found: dict[str, int] = {}
    for name in managers:
        waiting = [name] if name not in found else []
        found.setdefault(name, 0)
        for here in waiting:  # grows while it is walked: breadth first
            for there in near[here]:
                if there not in found:
                    found[there] = found[here] + 1
                    waiting.append(there)
    return found


def _placed(columns: Sequence[Sequence[_Drawn]]) -> Iterator[_Drawn]:
    drawn = [one for column in columns for one in column]
    border = OUTLINE * max((len(one.box.outlines) for one in drawn), default=0)
    x = _MARGIN + border
    for column in columns:
        y = _MARGIN + border
        for one in column:
            yield replace(one, box=replace(one.box, x=x, y=y))
            y += one.box.height + _GAP + 2 * border
        x += max(one.box.width for one in column) + _GUTTER + 2 * border


# Arrows


def _arrows(here: _Drawn, by_name: Mapping[str, _Drawn]) -> Iterator[Arrow]:
    for one, line in here.connections:
        if (there := by_name.get(one.queue_manager)) is not None and there is not here:
            title = f"{one.kind} {one.name} leads to {one.queue_manager}"
            yield _between((here, line), (there, None), Stroke.CHANNEL, title)
    for queue in here.manager.queues:
        line_of_queue = here.queues.get(queue.name)
        if line_of_queue is None:
            continue
        for target in queue.targets:
            there = by_name.get(target.queue_manager)
            title = f"{queue.kind} {queue.name} leads to {target}"
            if there is here and target.queue in here.queues and target.queue != queue.name:
                yield _inside(here, line_of_queue, here.queues[target.queue], title)
            elif there is not None and there is not here:
                end = there.queues.get(target.queue)
                yield _between((here, line_of_queue), (there, end), Stroke.DEFINITION, title)


def _between(
    start: tuple[_Drawn, int], end: tuple[_Drawn, int | None], stroke: Stroke, title: str
) -> Arrow:
    """From a line to another box: over the gutter between them, or beside boxes of one column."""
    (here, line), (there, there_line) = start, end
    leaves = -1 if there.box.x < here.box.x else 1
    arrives = 1 if there.box.x <= here.box.x else -1
    return Arrow(
        start=(_edge(here.box, leaves), here.box.middle_of(line)),
        end=(_edge(there.box, arrives), there.box.middle_of(there_line)),
        leaves=leaves,
        arrives=arrives,
        stroke=stroke,
        title=title,
    )


def _inside(here: _Drawn, line: int, end: int, title: str) -> Arrow:
    return Arrow(
        start=(here.box.x, here.box.middle_of(line)),
        end=(here.box.x, here.box.middle_of(end)),
        leaves=-1,
        arrives=-1,
        stroke=Stroke.ALIAS,
        title=title,
    )


def _edge(box: Box, side: int) -> int:
    return box.x + box.width if side > 0 else box.x
