"""One vector of puts, carried out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.topology.mqe.notation import Topology, read_topology
from tests.topology.mqe.wording import config_error_differs, differences

from redrive.diagnostics import Severity
from redrive.topology.mqe.objects import MqeNetwork, identity
from redrive.topology.mqe.reader import check_network
from redrive.topology.mqe.resolver import Move, MqeResolver
from redrive.topology.mqe.results import Conditions, Delivered, MqeResolution, PutMessage, Stored
from redrive.topology.names import Names
from redrive.topology.put import Discovered

_EXAMPLE = re.compile(r"(\S+)@(\S+) on (\S+?)(?: length (\d+))?(?: then (.+))?")
_PUT_FIELDS = {"at", "destQM", "destQ", "then", "repeat", "resend"}
_LENGTH = re.compile(r"len|size|bytes", re.IGNORECASE)
_DEPTH = re.compile(r"depth|count", re.IGNORECASE)


def check_vector(vector: Mapping[str, Any]) -> list[str]:
    """Carry out a vector's put and compare.

    Args:
        vector: An entry of a vector file.

    Returns:
        What differs from the expectation.
    """
    put, expect = vector["put"], vector["expect"]
    sizes = {field for field in put if _LENGTH.search(field) or _DEPTH.search(field)}
    unknown = put.keys() - _PUT_FIELDS - sizes
    if unknown:
        return [f"put fields {sorted(unknown)} are not known"]
    counts = _field(put, _LENGTH) is None
    topology = read_topology(vector["topology"], maxmsg_counts=counts)
    errors = [
        finding for finding in check_network(topology.network) if finding.severity is Severity.ERROR
    ]
    wanted = str(expect.get("error") or "")
    if wanted.startswith("config"):
        return [problem for problem in (config_error_differs(wanted, errors),) if problem]
    if errors:
        return [f"the network has errors: {[error.message for error in errors]}"]
    return differences(expect, carry_out(topology, put))


def carry_out(topology: Topology, put: Mapping[str, Any]) -> MqeResolution:
    """Make a put as often as it says, and what follows the last one.

    Args:
        topology: The network.
        put: The put's fields.

    Returns:
        The way of the last message, with the definitions that any of the puts discovered.
    """
    at = put.get("at") or topology.first
    names = Names(queue=put["destQ"], queue_manager=put.get("destQM") or "")
    message = PutMessage(length=int(_field(put, _LENGTH) or 0), resend=bool(put.get("resend")))
    conditions = replace(topology.conditions, depths=_depths(topology.network, _field(put, _DEPTH)))
    network = topology.network
    discovered: tuple[Discovered, ...] = ()
    for _ in range(put.get("repeat", 1) - 1):
        first = MqeResolver(network).resolve(at, names, message, conditions)
        network = network.with_discovered(first.discovered)
        discovered = (*discovered, *first.discovered)
        conditions = _after(first, conditions)
    resolver = MqeResolver(network)
    resolution = resolver.resolve(at, names, message, conditions)
    for move, manager in _moves(put.get("then")):
        resolution = resolver.follow(resolution, move, manager, message, conditions)
    return replace(resolution, discovered=(*discovered, *resolution.discovered))


def told_and_taken(example: str) -> tuple[list[str], list[str]]:
    """The steps and the end that an example of the documentation tells, and those that a put takes.

    It has the lines of a topology, several in one with ``;``, ``put Q@QM on QM2``, perhaps with
    ``length 5 then push``, the steps, and ``=> `` with the end and why the message waits there.
    """
    topology, _, rest = example.partition("put ")
    put, *lines = rest.splitlines()
    match = _EXAMPLE.fullmatch(put)
    assert match is not None, put
    queue, queue_manager, at, length, then = match.groups()
    resolution = carry_out(
        read_topology(re.split(r"[;\n]", topology.strip())),
        {"at": at, "destQM": queue_manager, "destQ": queue, "length": length or 0, "then": then},
    )
    end = f"=> {resolution.end}"
    if isinstance(resolution.end, Stored) and resolution.end.refused:
        end += f": {resolution.end.refused.failure}"
    return lines, [*(f"  {step}" for step in resolution.steps), end]


def _field(put: Mapping[str, Any], name: re.Pattern[str]) -> Any:
    """The value of the field whose name matches; None if there is none."""
    return next((value for field, value in put.items() if name.search(field)), None)


def _depths(network: MqeNetwork, depth: Any) -> dict[tuple[str, Names], int]:
    """Depths as a vector gives them: by queue name, optionally with ``@manager``, or for all."""
    depths: dict[tuple[str, Names], int] = {}
    for manager in network.queue_managers:
        for queue in manager.queues:
            names = identity(queue, manager.name)
            given = depth
            if isinstance(depth, Mapping):
                given = depth.get(str(names), depth.get(queue.name))
            if given is not None:
                depths[(manager.name, names)] = int(given)
    return depths


def _after(resolution: MqeResolution, conditions: Conditions) -> Conditions:
    """The conditions after a put: one message more where it is."""
    end = resolution.end
    if isinstance(end, Delivered):
        place = (end.names.queue_manager, end.names)
    elif isinstance(end, Stored):
        place = (end.queue_manager, identity(end.queue, end.queue_manager))
    else:
        return conditions
    return replace(
        conditions, depths={**conditions.depths, place: conditions.depths.get(place, 0) + 1}
    )


def _moves(then: str | Sequence[str] | None) -> list[tuple[Move, str]]:
    texts = then.split(",") if isinstance(then, str) else list(then or ())
    return [_move(text.split()) for text in texts]


def _move(words: Sequence[str]) -> tuple[Move, str]:
    match words:
        case ["push", *_]:
            return Move.PUSH, ""
        case ["triggerTransmission"]:
            return Move.TRIGGER, ""
        case ["triggerTransmission", manager]:
            return Move.TRIGGER, manager
        case ["pull", manager]:
            return Move.PULL, manager
    raise ValueError(f"follow-up {words!r} is not known")
