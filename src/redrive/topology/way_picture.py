"""The way of a put as a picture: queue managers below each other, with their steps, and the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from textwrap import wrap

from redrive.topology.picture import Arrow, Box, Line, Picture, Stroke, Tone
from redrive.topology.ways import Problem, Visit, Way, WayStep

_MARGIN = 40
_GAP = 40
_LONGEST = 80


def picture_of_way(way: Way) -> Picture:
    """Draw the way of a put.

    Args:
        way: The way.

    Returns:
        The picture; the end is green if the message gets where it was meant to go, else red.
    """
    boxes = list(_placed([*map(_visit, way.visits), _end(way)]))
    names = way.visits[0].names if way.visits else "a put"
    managers = ", ".join(visit.queue_manager for visit in way.visits)
    return Picture(
        title=f"The way of {names}",
        description=f"Queue managers: {managers}. End: {_end_in_words(way)}.",
        boxes=tuple(boxes),
        arrows=tuple(_down(above, below) for above, below in pairwise(boxes)),
    )


def _visit(visit: Visit) -> Box:
    lines = [line for step in visit.steps for line in _step(step)]
    return Box(title=visit.queue_manager, subtitle=visit.names, lines=tuple(lines))


def _step(step: WayStep) -> Iterator[Line]:
    yield Line(" ".join(part for part in (step.rule, step.definition) if part), Tone.STRONG)
    told = step.what + (f" → {step.after}" if step.after != step.before else "")
    yield from _wrapped(told, Tone.PLAIN)
    if step.place:
        yield from _wrapped(step.place, Tone.QUIET)


def _wrapped(text: str, tone: Tone) -> Iterator[Line]:
    return (Line(line, tone) for line in wrap(text, _LONGEST))


def _end(way: Way) -> Box:
    lines = [Line(f"topic {way.topic}")] if way.topic else []
    if way.problem is not None:
        lines += _problem(way.problem)
    return Box(
        title=way.end,
        subtitle=way.final,
        lines=tuple(lines),
        tone=Tone.GOOD if way.is_good else Tone.BAD,
    )


def _problem(problem: Problem) -> Iterator[Line]:
    name = " ".join(str(part) for part in (problem.code, problem.name) if part)
    if name:
        yield Line(name, Tone.STRONG)
    yield from _wrapped(problem.detail, Tone.PLAIN)
    if problem.place:
        yield from _wrapped(f"look at: {problem.place}", Tone.QUIET)
    if problem.advice:
        yield from _wrapped(f"to change: {problem.advice}", Tone.QUIET)


def _end_in_words(way: Way) -> str:
    reason = way.problem.name or way.problem.detail if way.problem else ""
    return ", ".join(part for part in (way.end, way.final, reason) if part)


def _placed(boxes: list[Box]) -> Iterator[Box]:
    y = _MARGIN
    for box in boxes:
        yield replace(box, x=_MARGIN, y=y)
        y += box.height + _GAP


def _down(above: Box, below: Box) -> Arrow:
    x = _MARGIN + min(above.width, below.width) // 2
    return Arrow(
        start=(x, above.y + above.height),
        end=(x, below.y),
        leaves=0,
        arrives=0,
        stroke=Stroke.CHANNEL,
        title=f"from {above.title} to {below.title}",
    )
