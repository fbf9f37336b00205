"""The definitions of one queue manager while a script is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redrive.topology.mq.objects import (
    Channel,
    Definition,
    Disposition,
    Namelist,
    Queue,
    QueueManagerAttributes,
    Topic,
)
from redrive.topology.mq.parameters import Given, did_you_mean, failure_at, object_name, problem_at
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.refusals import refusal_of, refusal_of_queue_manager
from redrive.topology.mq.script import Parameter
from redrive.topology.mq.system_objects import (
    DEFAULT_CHANNELS,
    DEFAULT_QUEUES,
    SYSTEM_OBJECTS,
    SYSTEM_QUEUES,
)

_DEFAULT_CHANNEL_NAMES = {kind: name for name, kind in DEFAULT_CHANNELS.items()}


class DefinitionStore:
    """The definitions of one queue manager, as the commands so far leave them.

    This class is responsible for: which objects exist, the product's own included; what a DEFINE
    copies; and what ``runmqsc`` refuses to keep.
    """

    def __init__(self, base: QueueManager, *, refuses: bool) -> None:
        """Take a queue manager.

        Args:
            base: Where the commands begin; it is not changed.
            refuses: Whether definitions are refused that contradict themselves.
        """
        self._base = base
        self._refuses = refuses
        self.attributes = base.attributes
        self.suspended = set(base.suspended_clusters)
        """Clusters from which the queue manager is suspended."""
        self._queues = dict(base.queues)
        self._shared = dict(base.shared_queues)
        self._others: dict[type[Definition], dict[str, Any]] = {
            Channel: dict(base.channels),
            Topic: dict(base.topics),
            Namelist: dict(base.namelists),
        }

    def queue_manager(self) -> QueueManager:
        """The queue manager as the commands so far leave it."""
        return replace(
            self._base,
            attributes=self.attributes,
            queues=self._queues,
            shared_queues=self._shared,
            channels=self._others[Channel],
            topics=self._others[Topic],
            namelists=self._others[Namelist],
            suspended_clusters=frozenset(self.suspended),
        )

    def of_kind(self, kind: type[Definition], *, shared: bool = False) -> dict[str, Any]:
        """The objects of a kind by name, the product's own left out; all queues are of one kind.

        Args:
            kind: The kind.
            shared: Whether queues are meant that a queue-sharing group has in common.
        """
        if issubclass(kind, Queue):
            return self._shared if shared else self._queues
        if kind is QueueManagerAttributes:
            return {}
        return self._others[kind]

    def find(self, kind: type[Definition], name: str) -> Definition | None:
        """The object of this kind and name, the product's own included."""
        found: Definition | None = self.of_kind(kind).get(name)
        if issubclass(kind, Queue):
            found = found or self._shared.get(name) or SYSTEM_QUEUES.get(name)
        else:
            found = found or SYSTEM_OBJECTS.get(kind, {}).get(name)
        return found if type(found) is kind else None

    def existing(self, kind: type[Definition], subject: Parameter) -> Definition:
        """The object that a command is about.

        Args:
            kind: Its kind.
            subject: The parameter that names it.

        Raises:
            CommandFailed: There is none (AMQ8147E).
        """
        name = object_name(kind, subject)
        found = self.find(kind, name)
        if found is None:
            similar = did_you_mean(name, self.of_kind(kind))
            raise failure_at(
                "NOT_FOUND",
                f"AMQ8147E: there is no {kind.keyword}({name})",
                subject,
                hint=similar or "another script may define it: QM=FOLDER reads several in order",
            )
        return found

    def check_free(
        self, kind: type[Definition], name: str, subject: Parameter, given: Given
    ) -> None:
        """Refuse to define what exists, unless REPLACE is given and the type is the same.

        Args:
            kind: The kind of the definition.
            name: Its name.
            subject: The parameter that names it.
            given: All parameters.

        Raises:
            CommandFailed: It exists (AMQ8150E).
        """
        shared = given.fields.get("disposition") is Disposition.SHARED
        existing = self.of_kind(kind, shared=shared).get(name)
        if existing is None:
            return
        if type(existing) is not kind:
            message = f"AMQ8150E: {name} exists as {existing.keyword}"
            raise failure_at("EXISTS", message, subject)
        if "REPLACE" not in given.options:
            hint = f"it was defined at {existing.location}; add REPLACE to define it anew"
            raise failure_at("EXISTS", f"AMQ8150E: {existing} exists", subject, hint=hint)

    def model(self, kind: type[Definition], subject: Parameter, given: Given) -> Definition | None:
        """The object whose attributes a DEFINE copies; None for the product's defaults.

        Args:
            kind: The kind of the definition.
            subject: The parameter that names it.
            given: All parameters.

        Raises:
            CommandFailed: The object that LIKE names does not exist.
            ScriptProblem: A channel has no CHLTYPE.
        """
        like = given.options.get("LIKE")
        if like is not None:
            model = self.find(kind, like.value or "")
            if model is None:
                message = f"AMQ8147E: there is no {kind.keyword}({like.value})"
                raise failure_at("NOT_FOUND", message, like)
            return model
        if kind is Channel:
            channel_type = given.fields.get("channel_type")
            if channel_type is None:
                raise problem_at("MISSING", "a channel needs CHLTYPE", subject)
            return self._others[Channel].get(_DEFAULT_CHANNEL_NAMES.get(channel_type, ""))
        return self._queues.get(DEFAULT_QUEUES.get(kind, ""))

    def keep(self, definition: Definition, subject: Parameter) -> None:
        """Takes a definition in place of what had its name.

        Args:
            definition: It.
            subject: The parameter that names it.

        Raises:
            CommandFailed: It contradicts itself.
        """
        if isinstance(definition, QueueManagerAttributes):
            self._check(refusal_of_queue_manager(definition, self._queues.values()), subject)
            self.attributes = definition
            return
        self._check(refusal_of(definition, self.attributes), subject)
        self._home_of(definition)[definition.name] = definition

    def delete(self, definition: Definition) -> None:
        """Takes a definition away, which is there."""
        del self._home_of(definition)[definition.name]

    def _home_of(self, definition: Definition) -> dict[str, Any]:
        shared = getattr(definition, "disposition", None) is Disposition.SHARED
        return self.of_kind(type(definition), shared=shared)

    def _check(self, problem: str, subject: Parameter) -> None:
        if problem and self._refuses:
            raise failure_at("REFUSED", problem, subject)
