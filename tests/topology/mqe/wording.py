"""How the texts of expectations in test vectors are compared with a resolution.

Managers, objects, names and order must agree exactly. What is free wording - filler words, the
name of an error, whether a queue's mode is repeated - is compared by meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.diagnostics import Diagnostic
from redrive.topology.mqe.objects import MqeRemoteQueue
from redrive.topology.mqe.results import Delivered, Failed, MqeResolution, PutFailure, Stored

_FILLERS = frozenset({"creates", "stores", "from", "to", "the", "queue", "mode", "alias", "for"})
_ACCEPTED = frozenset({"ok", "true", "yes", "accepted", "success"})
_MODES = frozenset({"sync", "async", "direct"})
_KINDS = {"qmalias": "qm-alias", "queuealias": "queue-alias", "saf": "s&f", "connection": "conn"}

_MEANINGS: Sequence[tuple[str, frozenset[PutFailure]]] = (
    (r"no queue|not found|no such", frozenset({PutFailure.NO_QUEUE_ACCEPTS})),
    # A link that is down leaves no usable connection: both words are in use for it.
    (r"no connection", frozenset({PutFailure.NO_CONNECTION, PutFailure.LINK_DOWN})),
    (r"down|unreach|unavailable|not available|link|network", frozenset({PutFailure.LINK_DOWN})),
    (r"too (big|large|long)|size|exceed", frozenset({PutFailure.MESSAGE_TOO_BIG})),
    (r"full|count|depth", frozenset({PutFailure.QUEUE_FULL})),
    (r"duplicate|twice", frozenset({PutFailure.DUPLICATE})),
)
_ROUTE_ERRORS = frozenset(PutFailure)

_CONFIG_CODES: Sequence[tuple[str, frozenset[str]]] = (
    (r"alias.*loop|loop.*alias", frozenset({"ALIAS_LOOP"})),
    (r"via|loop", frozenset({"VIA_LOOP"})),
    (r"s&f|saf|store|target|listed|qme", frozenset({"TARGET_LISTED_TWICE", "PULL_HAS_CONNECTION"})),
    (
        r"duplicate|twice|exists",
        frozenset(
            {
                "DUPLICATE_ALIAS",
                "DUPLICATE_CONNECTION",
                "DUPLICATE_QUEUE",
                "DUPLICATE_QUEUE_ALIAS",
                "DUPLICATE_QUEUE_MANAGER",
                "TARGET_LISTED_TWICE",
            }
        ),
    ),
    (r"name|character", frozenset({"BAD_NAME"})),
)

# Where the way ends at an object that was found but did not take the message, whether the object
# is listed as a step is free.
_FOUND_BUT_REFUSING = frozenset(
    {
        PutFailure.LINK_DOWN,
        PutFailure.MESSAGE_TOO_BIG,
        PutFailure.QUEUE_FULL,
        PutFailure.DUPLICATE,
    }
)


def step_words(text: str) -> tuple[str, ...]:
    """A step in comparable words: manager, kind, objects; without fillers and default modes."""
    manager, kind, *rest = text.split(maxsplit=2)
    kind = _KINDS.get(kind.lower().replace("_", "").replace("-", ""), kind.lower())
    words = re.split(r"->|[\s()]+", " ".join(rest))
    kept = [word.removesuffix(f"@{manager}") for word in words if word]
    return (manager, kind, *(word for word in kept if word.lower() not in _FILLERS | _MODES))


def modes(text: str) -> set[str]:
    """The modes a step names."""
    return {word.lower() for word in re.split(r"[\s()]+", text)} & _MODES


def steps_differ(expected: Sequence[str], resolution: MqeResolution) -> str:
    """What is different between expected and taken steps; empty if nothing is."""
    taken = [str(step) for step in resolution.steps]
    choices = [taken]
    if failure_of(resolution) in _FOUND_BUT_REFUSING and taken:
        choices.append(taken[:-1])
    if any(_same_steps(expected, choice) for choice in choices):
        return ""
    return f"expected steps {list(expected)}, taken {taken}"


def _same_steps(expected: Sequence[str], taken: Sequence[str]) -> bool:
    return len(expected) == len(taken) and all(
        step_words(wanted) == step_words(other) and modes(wanted) <= modes(other)
        for wanted, other in zip(expected, taken, strict=True)
    )


def failure_of(resolution: MqeResolution) -> PutFailure | None:
    """Why the message did not get on, if it did not."""
    match resolution.end:
        case Failed(failure):
            return failure
        case Stored():
            return resolution.end.refused.failure if resolution.end.refused else None
    return None


def final_differs(expected: str, resolution: MqeResolution) -> str:
    """What is different about the final queue; empty if nothing is."""
    end = resolution.end
    names, _, note = expected.partition(" ")
    same = (
        isinstance(end, Delivered)
        and str(end.names) == names
        and end.dead_letter == ("dead" in note.lower())
        and (end.over_bridge or "bridge" not in note.lower())
    )
    return "" if same else f"expected final {expected}, got {end!r}"


def stored_differs(expected: str | None, resolution: MqeResolution) -> str:
    """What is different about where the message waits; empty if nothing is."""
    end = resolution.end
    if expected is None:
        return f"expected nothing stored, got {end}" if isinstance(end, Stored) else ""
    if not isinstance(end, Stored):
        return f"expected stored {expected}, got {end}"
    match = re.match(r"(\S+)\s+(\S+).*?\s(?:on|at|of)\s+(\S+)", expected)
    kind, name, manager = match.groups() if match else ("", "", "")
    is_definition = isinstance(end.queue, MqeRemoteQueue)
    kinds = ("RQD",) if is_definition else ("SAF", "S&F")
    name_here = f"{end.queue.name}@{end.queue.queue_manager}"
    same = (
        kind.upper() in kinds
        and name in ((name_here,) if is_definition else (end.queue.name, name_here))
        and manager == end.queue_manager
    )
    return "" if same else f"expected stored {expected}, got {end}"


def error_differs(expected: str, resolution: MqeResolution) -> str:
    """What is different about the failure; empty if nothing is."""
    failure = failure_of(resolution)
    if failure is None:
        return f"expected error {expected}, got {resolution.end}"
    meant = _meant(expected.lower(), _MEANINGS, _ROUTE_ERRORS)
    return "" if failure in meant else f"expected error {expected}, got {failure!r}"


def config_error_differs(expected: str, errors: Sequence[Diagnostic]) -> str:
    """What is different about the errors of a network's check; empty if nothing is."""
    codes = {error.code for error in errors}
    meant = _meant(expected.lower().removeprefix("config:"), _CONFIG_CODES, frozenset(codes))
    return "" if codes & meant else f"expected {expected}, got {sorted(codes)}"


def _meant(text: str, meanings: Sequence[tuple[str, Any]], otherwise: Any) -> Any:
    return next((meant for words, meant in meanings if re.search(words, text)), otherwise)


def differences(expect: Mapping[str, Any], resolution: MqeResolution) -> list[str]:
    """Everything in which a resolution differs from an expectation without ``config`` errors."""
    known = {"steps", "final", "stored", "error", "put", "created", "undeliverable", "note"}
    problems = [f"expectation {key!r} is not known" for key in expect.keys() - known]
    if "steps" in expect:
        problems.append(steps_differ(expect["steps"], resolution))
    if expect.get("final") is not None:
        problems.append(final_differs(expect["final"], resolution))
    if "stored" in expect:
        problems.append(stored_differs(expect["stored"], resolution))
    if expect.get("error") is not None:
        problems.append(error_differs(expect["error"], resolution))
    elif isinstance(resolution.end, Failed):
        problems.append(f"no error expected, got {resolution.end!r}")
    if "put" in expect and resolution.accepted != (str(expect["put"]).lower() in _ACCEPTED):
        problems.append(f"expected put {expect['put']}, accepted is {resolution.accepted}")
    if "created" in expect:
        problems.append(_created_differs(expect["created"], resolution))
    if "undeliverable" in expect and bool(expect["undeliverable"]) != bool(failure_of(resolution)):
        problems.append(f"expected undeliverable {expect['undeliverable']}, got {resolution.end!r}")
    return [difference for difference in problems if difference]


def _created_differs(expected: Any, resolution: MqeResolution) -> str:
    wanted = [expected] if isinstance(expected, str) else list(expected or ())
    created = [
        f"RQD {queue}@{queue_manager} sync" for _, queue, queue_manager in resolution.discovered
    ]
    same = len(wanted) == len(created) and all(
        text.split()[:2] == made.split()[:2] and modes(text) <= modes(made)
        for text, made in zip(wanted, created, strict=True)
    )
    return "" if same else f"expected created {expected}, got {created}"
