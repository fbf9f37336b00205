"""The definitions of one queue manager while reading a script, and what ``runmqsc`` refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from redrive.diagnostics import did_you_mean
from redrive.topology.mq import objects as mq
from redrive.topology.mq.parameters import Given, object_name
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.script import CommandFailed, Parameter, ScriptProblem
from redrive.topology.mq.system_objects import (
    DEFAULT_CHANNELS,
    DEFAULT_QUEUES,
    SYSTEM_OBJECTS,
    SYSTEM_QUEUES,
)

_OTHER_OBJECTS: Mapping[type[mq.Definition], str] = {
    mq.Channel: "channels",
    mq.ClientChannel: "client_channels",
    mq.Topic: "topics",
    mq.Namelist: "namelists",
}
"""Kinds of objects other than queues, with the field of a queue manager that holds them."""
_DEFAULT_CHANNEL_NAMES = {kind: name for name, kind in DEFAULT_CHANNELS.items()}


class DefinitionStore:
    """The objects so far, what a DEFINE copies, and which definitions ``runmqsc`` refuses."""

    def __init__(self, base: QueueManager, *, refuses: bool) -> None:
        self._base, self.refuses = base, refuses
        self.attributes = base.attributes
        self.suspended = set(base.suspended_clusters)
        self._objects: dict[str, Any] = {
            name: dict(getattr(base, name))
            for name in ("queues", "shared_queues", *_OTHER_OBJECTS.values())
        }
        """Definitions by name, by field of the queue manager."""

    def queue_manager(self) -> QueueManager:
        """The queue manager after the commands so far."""
        suspended = frozenset(self.suspended)
        attributes = self.attributes
        return replace(
            self._base, attributes=attributes, suspended_clusters=suspended, **self._objects
        )

    def of_kind(self, kind: type[mq.Definition], *, shared: bool = False) -> dict[str, Any]:
        """The objects of a kind by name, without the product's own; all queues are one kind."""
        field = _OTHER_OBJECTS.get(kind, "shared_queues" if shared else "queues")
        objects: dict[str, Any] = self._objects[field]
        return objects

    def find(self, kind: type[mq.Definition], name: str) -> mq.Definition | None:
        """The object of this kind and name, including the product's own."""
        found: mq.Definition | None = self.of_kind(kind).get(name)
        if issubclass(kind, mq.Queue):
            shared_queues = self._objects["shared_queues"]
            found = found or shared_queues.get(name) or SYSTEM_QUEUES.get(name)
        else:
            found = found or SYSTEM_OBJECTS.get(kind, {}).get(name)
        return found if type(found) is kind else None

    def existing(self, kind: type[mq.Definition], subject: Parameter) -> mq.Definition:
        """The object that a command names; raises ``CommandFailed`` (AMQ8147E) without one."""
        name = object_name(kind, subject)
        if (found := self.find(kind, name)) is not None:
            return found
        hint = "another script may define it: QM=FOLDER reads several in order"
        hint = did_you_mean(name, self.of_kind(kind)) or hint
        if kind is mq.Channel and self.find(mq.ClientChannel, name):
            hint = "CHLTABLE(CLNTTAB) or CHLTYPE(CLNTCONN) names the client connection"
        message = f"AMQ8147E: there is no {kind.keyword}({name})"
        raise CommandFailed.at("NOT_FOUND", message, subject, hint=hint)

    def check_free(
        self, kind: type[mq.Definition], name: str, subject: Parameter, given: Given
    ) -> None:
        """Refuse (AMQ8150E) to define an existing object, except with REPLACE and the same type."""
        shared = given.fields.get("is_shared", False)
        existing = self.of_kind(kind, shared=shared).get(name)
        if existing is None:
            return
        if type(existing) is not kind:
            message = f"AMQ8150E: {name} exists as {existing.keyword}"
            raise CommandFailed.at("EXISTS", message, subject)
        if "REPLACE" not in given.options:
            hint = f"it was defined at {existing.location}; add REPLACE to redefine it"
            raise CommandFailed.at("EXISTS", f"AMQ8150E: {existing} exists", subject, hint=hint)

    def model(
        self, kind: type[mq.Definition], subject: Parameter, given: Given
    ) -> mq.Definition | None:
        """The object whose attributes a DEFINE copies; None for the product's defaults."""
        if (like := given.options.get("LIKE")) is not None:
            model = self.find(kind, like.value or "")
            if model is None:
                message = f"AMQ8147E: there is no {kind.keyword}({like.value})"
                raise CommandFailed.at("NOT_FOUND", message, like)
            return model
        if issubclass(kind, mq.Channel):
            channel_type = given.fields.get("channel_type")
            if channel_type is None:
                raise ScriptProblem.at("MISSING", "a channel needs CHLTYPE", subject)
            return self.of_kind(kind).get(_DEFAULT_CHANNEL_NAMES.get(channel_type, ""))
        return self.of_kind(mq.Queue).get(DEFAULT_QUEUES.get(kind, ""))

    def keep(self, definition: mq.Definition, subject: Parameter) -> None:
        """Add or replace a definition, unless ``runmqsc`` refuses it."""
        problem = ""
        match definition:
            case mq.QueueManagerAttributes():
                problem = _refusal_of_queue_manager(definition, self._objects["queues"].values())
            case mq.Channel():
                problem = _refusal_of_channel(definition)
            case mq.Queue():
                problem = _refusal_of_queue(definition, self.attributes.max_message_length)
        if problem and self.refuses:
            raise CommandFailed.at("REFUSED", problem, subject)
        if isinstance(definition, mq.QueueManagerAttributes):
            self.attributes = definition
        else:
            self._home_of(definition)[definition.name] = definition

    def delete(self, definition: mq.Definition) -> None:
        """Remove an existing definition."""
        del self._home_of(definition)[definition.name]

    def _home_of(self, definition: mq.Definition) -> dict[str, Any]:
        shared = getattr(definition, "is_shared", False)
        return self.of_kind(type(definition), shared=shared)


# What runmqsc refuses although the syntax is right, by the references of the commands (DEFINE
# CHANNEL, DEFINE queues, ALTER QMGR) and of the PCF reason codes that the findings name.

_SERVES_QUEUE = frozenset({mq.ChannelType.SDR, mq.ChannelType.SVR})
_CALLS = frozenset(
    {mq.ChannelType.SDR, mq.ChannelType.RQSTR, mq.ChannelType.CLUSSDR, mq.ChannelType.CLNTCONN}
)


def _refusal_of_channel(channel: mq.Channel) -> str:
    if channel.name in DEFAULT_CHANNELS:
        return ""  # it only holds defaults
    kind = channel.channel_type
    if kind in _SERVES_QUEUE and not channel.transmission_queue:
        return f"a channel with CHLTYPE({kind}) needs XMITQ"
    if kind in _CALLS and not channel.connection:
        return f"a channel with CHLTYPE({kind}) needs CONNAME"
    return _refusal_of_clusters(channel)


def _refusal_of_queue(queue: mq.Queue, most: int) -> str:
    if isinstance(queue, mq.HoldingQueue) and queue.max_message_length > most:
        length = queue.max_message_length
        return f"MAXMSGL({length}) is more than the {most} of the queue manager"
    if isinstance(queue, mq.LocalQueue):
        is_transmission_queue = queue.is_transmission_queue
        if queue.is_clustered and is_transmission_queue:
            return "a transmission queue cannot be in a cluster (MQRCCF_CLUSTER_Q_USAGE_ERROR)"
        if queue.cluster_channels and not is_transmission_queue:
            return "CLCHNAME needs USAGE(XMITQ) (MQRCCF_CLUS_XMIT_Q_USAGE_ERROR)"
    return _refusal_of_clusters(queue)


def _refusal_of_clusters(definition: mq.Channel | mq.Queue) -> str:
    if definition.cluster and definition.cluster_namelist:
        return "CLUSTER and CLUSNL exclude each other (MQRCCF_CLUSTER_NAME_CONFLICT)"
    return ""


def _refusal_of_queue_manager(
    queue_manager: mq.QueueManagerAttributes, queues: Iterable[mq.Queue]
) -> str:
    if queue_manager.default_transmission_queue == mq.CLUSTER_TRANSMISSION_QUEUE:
        return f"AMQ8520E: DEFXMITQ cannot be {mq.CLUSTER_TRANSMISSION_QUEUE}"
    if queue_manager.repository_cluster and queue_manager.repository_namelist:
        return "REPOS and REPOSNL exclude each other (MQRCCF_REPOS_NAME_CONFLICT)"
    most = queue_manager.max_message_length
    for queue in queues:
        if isinstance(queue, mq.HoldingQueue) and queue.max_message_length > most:
            return f"MAXMSGL({most}) is less than the {queue.max_message_length} of {queue}"
    return ""
