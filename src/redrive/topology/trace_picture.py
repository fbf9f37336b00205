"""The trace of a put as a picture: queue managers and their steps, and below them the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from textwrap import wrap

from redrive.topology.picture import Arrow, Box, Line, Picture, Stroke, Tone
from redrive.topology.trace import Problem, ResolutionTrace, TraceStep, Visit

_MARGIN = 40
_GAP = 40
_LONGEST = 80


def picture_of_trace(trace: ResolutionTrace) -> Picture:
    """Draw the trace of a put.

    Args:
        trace: The trace.

    Returns:
        The picture; the end is green if the message gets where it was meant to go, else red.
    """
    boxes = list(_placed([*map(_visit, trace.visits), _end(trace)]))
    names = trace.visits[0].names if trace.visits else "a put"
    managers = ", ".join(visit.queue_manager for visit in trace.visits)
    return Picture(
        title=f"The way of {names}",
        description=f"Queue managers: {managers}. End: {_end_in_words(trace)}.",
        boxes=tuple(boxes),
        arrows=tuple(_down(above, below) for above, below in pairwise(boxes)),
    )


def _visit(visit: Visit) -> Box:
    lines = [line for step in visit.steps for line in _step(step)]
    return Box(title=visit.queue_manager, subtitle=visit.names, lines=tuple(lines))


def _step(step: TraceStep) -> Iterator[Line]:
    yield Line(" ".join(part for part in (step.rule, step.definition) if part), Tone.STRONG)
    told = step.what + (f" → {step.after}" if step.after != step.before else "")
    yield from _wrapped(told, Tone.PLAIN)
    if step.location:
        yield from _wrapped(step.location, Tone.QUIET)


def _wrapped(text: str, tone: Tone) -> Iterator[Line]:
    return (Line(line, tone) for line in wrap(text, _LONGEST))


def _end(trace: ResolutionTrace) -> Box:
    lines = [Line(f"topic {trace.topic}")] if trace.topic else []
    if trace.problem is not None:
        lines += _problem(trace.problem)
    if (job := trace.intake) is not None:
        words = (job.end, job.final, job.detail)
        lines += _wrapped(f"by the job: {', '.join(filter(None, words))}", Tone.PLAIN)
    if trace.tries:
        lines += _wrapped(trace.tries, Tone.QUIET)
    for one in trace.caused:
        words = (one.end, one.final, one.detail)
        lines += _wrapped(f"and {one.what}: {', '.join(filter(None, words))}", Tone.PLAIN)
    if trace.moves:
        lines += _wrapped(f"goes on with {' or '.join(trace.moves)}", Tone.QUIET)
    return Box(
        title=trace.end,
        subtitle=trace.final,
        lines=tuple(lines),
        tone=Tone.GOOD if trace.is_good else Tone.BAD,
    )


def _problem(problem: Problem) -> Iterator[Line]:
    name = " ".join(str(part) for part in (problem.code, problem.name) if part)
    if name:
        yield Line(name, Tone.STRONG)
    yield from _wrapped(problem.detail, Tone.PLAIN)
    if problem.location:
        yield from _wrapped(f"look at: {problem.location}", Tone.QUIET)
    if problem.advice:
        yield from _wrapped(f"to change: {problem.advice}", Tone.QUIET)


def _end_in_words(trace: ResolutionTrace) -> str:
    reason = trace.problem.name or trace.problem.detail if trace.problem else ""
    return ", ".join(part for part in (trace.end, trace.final, reason) if part)


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
