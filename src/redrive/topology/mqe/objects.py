"""The objects of an MQ Everyplace network, as a file of ``kind: mqe`` declares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from redrive.diagnostics import UNKNOWN_LOCATION
from redrive.forms import Flag, Location, Natural, TableForm, number, text
from redrive.topology.names import Names
from redrive.topology.put import Discovered

FORBIDDEN_CHARACTERS: Final = "{}[]#():;,'\"="
"""Characters that names of queues and queue managers must not contain."""
_Name: TypeAlias = Annotated[str, text(f"text in ASCII without {' '.join(FORBIDDEN_CHARACTERS)}")]
"""``name_problem`` says what else is wrong with a name."""
_Port: TypeAlias = Annotated[int, number("", 0, 65_535)]


class CodeBase(StrEnum):
    """Which of the two implementations of MQ Everyplace a queue manager runs."""

    JAVA = "java"
    C = "c"


class Mode(StrEnum):
    """How a remote queue definition passes messages on."""

    SYNC = "sync"
    ASYNC = "async"


class DeliveryMode(StrEnum):
    """How a store-and-forward queue is meant to pass on its messages.

    The product decides by the existence of a connection; stating it allows the check to find a
    connection that contradicts the intention.
    """

    PUSH = "push"
    PULL = "pull"


class QueuePurpose(StrEnum):
    """The purpose of a local queue."""

    ORDINARY = "ordinary"
    ADMINISTRATION = "administration"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeDefinition(TableForm):
    """Common fields of all objects."""

    name: _Name
    description: str = ""
    location: Location = field(default=UNKNOWN_LOCATION, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security(TableForm):
    """A queue's security attribute: three classes, each empty for none."""

    authenticator: str = ""
    cryptor: str = ""
    compressor: str = ""


NO_SECURITY = Security()


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeQueue(MqeDefinition):
    """Common fields of queues of every kind."""

    expiry: Natural | None = None
    """Milliseconds a message stays available; None for no limit."""
    maximum_message_size: Natural | None = None
    """Longest message in bytes; None for no limit."""
    maximum_messages: Natural | None = None
    """Maximum number of messages; None for no limit."""
    priority: Annotated[int, number("", 0, 9)] | None = None
    message_store: str = ""
    security: Annotated[Security, Field(title="a security attribute")] = NO_SECURITY
    active: Flag = True
    """Whether the queue was active when it was described; its first use activates it."""
    creation_date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeLocalQueue(MqeQueue):
    """A queue that holds messages for applications; its queue manager is its owner."""

    kind: Literal["local"] = "local"
    aliases: tuple[_Name, ...] = ()
    role: QueuePurpose = QueuePurpose.ORDINARY


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeRemoteQueue(MqeQueue):
    """A remote queue definition: stands for a queue of another queue manager."""

    kind: Literal["remote"] = "remote"
    queue_manager: _Name
    """Target manager; the definition's name is the target's queue name."""
    mode: Mode = Mode.SYNC
    """Synchronous: each operation is executed on the remote queue at once. Asynchronous: stored
    here and transmitted later, once and only once."""
    aliases: tuple[_Name, ...] = ()
    """Further names, valid with the name of the target manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAndForwardQueue(MqeQueue):
    """Takes every message for the managers it lists and keeps the destination with it."""

    kind: Literal["store_and_forward"] = "store_and_forward"
    queue_manager: _Name
    """The next hop; unused when the queue is pulled from."""
    targets: Annotated[tuple[_Name, ...], Field(min_length=1)]
    """The managers whose messages it accepts: its queue manager entries."""
    delivery: DeliveryMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeServerQueue(MqeQueue):
    """Pulls messages for its own manager from a home server; never holds any."""

    kind: Literal["home_server"] = "home_server"
    queue_manager: _Name
    interval: Natural = 0
    """Milliseconds between polls; 0 polls only on triggerTransmission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeQueue(MqeQueue):
    """A remote definition of an IBM MQ queue, synchronous, reached over the MQ bridge."""

    kind: Literal["bridge"] = "bridge"
    queue_manager: _Name
    aliases: tuple[_Name, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeConnection(MqeDefinition):
    """Common fields of all connections; a connection is named after the remote manager."""

    aliases: tuple[_Name, ...] = ()
    """Queue manager aliases of the connection: names for its manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectConnection(MqeConnection):
    """Leads to the manager it is named after."""

    kind: Literal["direct"] = "direct"
    adapter: str = ""
    address: str = ""
    port: _Port | None = None
    channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViaConnection(MqeConnection):
    """Delegates to another connection of the same manager."""

    kind: Literal["via"] = "via"
    via: _Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasConnection(MqeConnection):
    """Another name for the manager of a real connection or of another alias."""

    kind: Literal["alias"] = "alias"
    of: _Name


@dataclass(frozen=True, slots=True, kw_only=True)
class NullConnection(MqeConnection):
    """A connection whose channel, adapter and options are the word ``null``.

    Its manager accepts the connection's name as its own.
    """

    kind: Literal["null"] = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqConnection(MqeConnection):
    """How the MQ bridge reaches an IBM MQ queue manager."""

    kind: Literal["mq"] = "mq"
    address: str = ""
    port: _Port | None = None
    channel: str = ""
    """Server-connection channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerAlias(MqeDefinition):
    """An extra name for a queue manager, known to the manager that defines it."""

    of: _Name


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeListener(MqeDefinition):
    """Accepts direct connections of other managers."""

    adapter: str = ""
    port: _Port | None = None


AnyQueue: TypeAlias = Annotated[
    Annotated[MqeLocalQueue, Field(title="a local queue")]
    | Annotated[MqeRemoteQueue, Field(title="a remote queue definition")]
    | Annotated[StoreAndForwardQueue, Field(title="a store-and-forward queue")]
    | Annotated[HomeServerQueue, Field(title="a home-server queue")]
    | Annotated[BridgeQueue, Field(title="an MQ bridge queue")],
    Field(title="a queue of any kind", discriminator="kind"),
]
AnyConnection: TypeAlias = Annotated[
    Annotated[DirectConnection, Field(title="a direct connection")]
    | Annotated[ViaConnection, Field(title="a via connection")]
    | Annotated[AliasConnection, Field(title="an alias of a connection")]
    | Annotated[NullConnection, Field(title="a null connection")]
    | Annotated[MqConnection, Field(title="a connection of the MQ bridge")],
    Field(
        title="a connection of any kind, named after the remote queue manager",
        discriminator="kind",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeQueueManager(MqeDefinition):
    """A queue manager with everything it defines."""

    code_base: CodeBase = CodeBase.JAVA
    """Implementation; C has no discovery, alias chains, store-and-forward and bridge queues."""
    local_queuing: Flag = True
    """Without it, only synchronous remote access is possible."""
    queues: tuple[AnyQueue, ...] = ()
    connections: tuple[AnyConnection, ...] = ()
    """Connections of all kinds; at most one per name."""
    aliases: tuple[Annotated[QueueManagerAlias, Field(title="a queue manager alias")], ...] = ()
    listeners: tuple[Annotated[MqeListener, Field(title="a listener")], ...] = ()

    @property
    def dead_letter_queues(self) -> tuple[MqeLocalQueue, ...]:
        """Its dead-letter queues; at most one in a valid network."""
        queues = (queue for queue in self.queues if isinstance(queue, MqeLocalQueue))
        return tuple(queue for queue in queues if queue.role is QueuePurpose.DEAD_LETTER)


class Discovery(StrEnum):
    """Whether queue managers may create remote definitions on their own."""

    OFF = "off"
    JAVA = "java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(TableForm):
    """How to read points that the product leaves open."""

    discovery: Discovery = Discovery.JAVA
    """``java``: managers of the Java code base discover; ``off``: none does."""
    alias_chains: Flag = True
    """False: a queue manager alias is substituted once, as the C code base does everywhere."""
    home_server_names: Flag = False
    """True: a home-server queue pulls only from a store-and-forward queue of its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqeNetwork:
    """All queue managers of an MQ Everyplace network, and how open points are read."""

    queue_managers: tuple[MqeQueueManager, ...] = ()
    options: Options = Options()

    def queue_manager(self, name: str) -> MqeQueueManager | None:
        """The manager of that name, if the network has it."""
        return next((manager for manager in self.queue_managers if manager.name == name), None)

    def with_discovered(self, discovered: Iterable[Discovered]) -> MqeNetwork:
        """The network with discovered definitions, in which the same puts match exactly."""
        managers = {manager.name: manager for manager in self.queue_managers}
        for at, name, target in discovered:
            manager, names = managers.get(at), Names(queue=name, queue_manager=target)
            if manager is not None and all(identity(q, at) != names for q in manager.queues):
                definition = MqeRemoteQueue(name=name, queue_manager=target)
                managers[at] = replace(manager, queues=(*manager.queues, definition))
        return replace(self, queue_managers=tuple(managers.values()))


NO_NETWORK: Final = MqeNetwork()


def identity(queue: MqeQueue, owner: str) -> Names:
    """The identity of a queue: its name with its owner, or with the manager it names."""
    if isinstance(queue, MqeRemoteQueue | StoreAndForwardQueue | HomeServerQueue | BridgeQueue):
        return Names(queue=queue.name, queue_manager=queue.queue_manager)
    return Names(queue=queue.name, queue_manager=owner)


def name_problem(name: str) -> str:
    """Why a queue or queue manager cannot have this name; empty if it can."""
    if not name:
        return "a name has at least one character"
    if not name.isascii():
        return f"name {name!r} contains characters that are not ASCII"
    if not name.isprintable():
        return f"name {name!r} contains control characters"
    forbidden = "".join(character for character in FORBIDDEN_CHARACTERS if character in name)
    if forbidden:
        return f"name {name!r} contains {' '.join(forbidden)}, which are not allowed in names"
    return ""
