"""The search for a queue on one manager: steps 1 to 4 of the procedure (specification A.2)."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.topology.mqe.objects import CodeBase, Options, StoreAndForwardQueue
from redrive.topology.mqe.results import Step, StepKind
from redrive.topology.mqe.tables import Addressable, Tables
from redrive.topology.names import Names


@dataclass(frozen=True, slots=True)
class Match:
    """What one manager's own objects say about a put."""

    steps: tuple[Step, ...]
    """The substitutions and the match."""
    names: Names
    """The put's names now; the earlier ones are forgotten."""
    queue: Addressable | StoreAndForwardQueue | None
    """The queue that takes the put; None if steps 1 to 4 found none."""
    alias_loop: bool = False
    """Whether the search ended in a loop of queue manager aliases."""


def match(tables: Tables, names: Names, options: Options) -> Match:
    """Look for the queue that takes a put, with the objects of one manager.

    Args:
        tables: The manager's definitions.
        names: The put's names.
        options: How open points are read.

    Returns:
        The match, or the names after alias substitution and no queue.
    """
    here = tables.manager.name
    steps, names, looping = _substitute_manager_aliases(tables, names, options)
    if looping:
        return Match(steps, names, None, alias_loop=True)
    if (exact := tables.queues.get(names)) is not None:
        step = Step(here, StepKind.EXACT, exact, names, names)
        return Match((*steps, step), names, exact)
    if (aliased := tables.queue_aliases.get(names)) is not None:
        real = Names(queue=aliased.name, queue_manager=names.queue_manager)
        step = Step(here, StepKind.QUEUE_ALIAS, aliased, names, real)
        return Match((*steps, step), real, aliased)
    if (keeping := tables.store_and_forward.get(names.queue_manager)) is not None:
        step = Step(here, StepKind.STORE_AND_FORWARD, keeping, names, names)
        return Match((*steps, step), names, keeping)
    return Match(steps, names, None)


def _substitute_manager_aliases(
    tables: Tables, names: Names, options: Options
) -> tuple[tuple[Step, ...], Names, bool]:
    """Step 1; the last value says that the aliases form a loop."""
    steps: list[Step] = []
    seen = {names.queue_manager}
    while (alias := tables.aliases.get(names.queue_manager)) is not None:
        name, definition = alias
        after = Names(queue=names.queue, queue_manager=name)
        steps.append(
            Step(tables.manager.name, StepKind.QUEUE_MANAGER_ALIAS, definition, names, after)
        )
        names = after
        if not chains_aliases(tables, options):
            break
        if name in seen:
            return tuple(steps), names, True
        seen.add(name)
    return tuple(steps), names, False


def chains_aliases(tables: Tables, options: Options) -> bool:
    """Whether an alias of an alias is followed on a manager.

    The Java documentation follows it, the C reference says that aliases cannot be chained (A.3,
    reading O1).
    """
    return options.alias_chains and tables.manager.code_base is CodeBase.JAVA
