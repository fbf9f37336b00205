"""Rules: the hooks by which a solution changes what queue managers and queues do.

A rule is a Python class; a definition names it as ``module:Class``. Every hook has the product's
default, so a rule overrides only what it wants to change. Hooks that may forbid something return a
bool, and False is the veto. A hook that raises counts as not called: the default applies.
"""

# ruff: noqa: ARG002  the defaults look at nothing

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from redrive.diagnostics import Diagnostic, Severity
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.message import Message
from redrive.topology.mqe.results import Failure
from redrive.topology.names import Names

_Answer = TypeVar("_Answer")


class QueueRule:
    """The hooks of a queue with the product's defaults; ``queue`` is its identity."""

    def put(self, queue: Names, message: Message) -> bool:
        """A message is put; False refuses it. Java code base only."""
        return True

    def message_expired(self, queue: Names, message: Message) -> None:
        """A message expired and will be deleted: the hook can copy it, not keep it."""

    def duplicate_message(self, queue: Names, message: Message) -> bool:
        """A message was already put; True accepts it anyway, the default refuses it."""
        return False

    def transmit(self, queue: Names) -> bool:
        """The queue is about to transmit; False keeps its messages. Called after the manager's."""
        return True


class QueueManagerRule:
    """The hooks of a queue manager with the product's defaults."""

    def trigger_transmission(self, queue_manager: str, waiting: int) -> bool:
        """Transmission was triggered while messages wait; False keeps everything."""
        return True

    def undeliverable(
        self, queue_manager: str, message: Message, names: Names, failure: Failure
    ) -> bool:
        """A pulled message finds no queue.

        True sends it to the dead-letter queue, if there is one; False leaves it on the home
        server.
        """
        return True


_QUEUE_DEFAULT = QueueRule()
_QUEUE_MANAGER_DEFAULT = QueueManagerRule()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force, by the entry point that definitions name."""

    queues: Mapping[str, QueueRule] = field(default_factory=dict)
    queue_managers: Mapping[str, QueueManagerRule] = field(default_factory=dict)

    def of_queue(self, entry_point: str) -> QueueRule:
        """The rule a queue names, or the default."""
        return self.queues.get(entry_point, _QUEUE_DEFAULT)

    def of_queue_manager(self, entry_point: str) -> QueueManagerRule:
        """The rule a queue manager names, or the default."""
        return self.queue_managers.get(entry_point, _QUEUE_MANAGER_DEFAULT)


DEFAULT_RULES = Rules()


def ask(hook: Callable[[], _Answer], *, default: _Answer) -> _Answer:
    """Call a hook; if it raises, it counts as not called, and the default is the answer."""
    try:
        return hook()
    except Exception:  # noqa: BLE001  whatever a rule raises, the documented answer is the default
        return default


def load_rules(network: mqe.Network) -> tuple[Rules, tuple[Diagnostic, ...]]:
    """Create every rule that a network names; an unusable entry point is an error."""
    findings: list[Diagnostic] = []
    queues: dict[str, QueueRule] = {}
    queue_managers: dict[str, QueueManagerRule] = {}
    for manager in network.queue_managers:
        _load(manager, QueueManagerRule, queue_managers, findings)
        for queue in manager.queues:
            _load(queue, QueueRule, queues, findings)
    return Rules(queues, queue_managers), tuple(findings)


_Rule = TypeVar("_Rule", QueueRule, QueueManagerRule)


def _load(
    definition: mqe.Queue | mqe.QueueManager,
    kind: type[_Rule],
    rules: dict[str, _Rule],
    findings: list[Diagnostic],
) -> None:
    if not definition.rule:
        return
    module, _, name = definition.rule.partition(":")
    try:
        rule = getattr(importlib.import_module(module), name)()
        if not isinstance(rule, kind):
            raise TypeError(f"{name} is not derived from {kind.__name__}")  # noqa: TRY301
    except Exception as problem:  # noqa: BLE001  importing runs the user's code
        finding = definition.location.finding(
            Severity.ERROR,
            "RULE_UNUSABLE",
            f"rule {definition.rule!r} of {definition.name!r} cannot be used: {problem}",
            expected="module:Class, a class that is derived from QueueRule or QueueManagerRule",
            subject=definition.name,
        )
        findings.append(finding)
        return
    rules[definition.rule] = rule
