"""Read MQ Everyplace networks from YAML text, reporting all findings at once.

Errors are definitions that contradict each other, so that a put would depend on chance, or that the
product refuses. Warnings are definitions that work as documented but are probably mistakes: puts
that use them fail or never match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from redrive.diagnostics import Diagnostic, Severity, has_errors, in_order
from redrive.forms import FileForm, KeyPath, TableForm
from redrive.topology.document import DefinitionDocument, read_document
from redrive.topology.mqe.objects import (
    AnyQueue,
    BridgeQueue,
    CodeBase,
    DeliveryMode,
    DirectConnection,
    HomeServerQueue,
    Mode,
    MqeConnection,
    MqeDefinition,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueueManager,
    MqeRemoteQueue,
    NullConnection,
    Options,
    StoreAndForwardQueue,
    ViaConnection,
    identity,
    name_problem,
)
from redrive.topology.mqe.resolver import (
    ManagerTables,
    MqeLink,
    MqeResolver,
    NetworkTables,
    collecting_queue,
    link_to,
    manager_aliases,
)
from redrive.topology.mqe.results import Failed, PutFailure, Stored
from redrive.topology.names import Names


@dataclass(frozen=True, kw_only=True)
class _NetworkFile(TableForm):
    kind: Literal["mqe"]
    options: Annotated[Options, Field(title="options")] = field(default_factory=Options)
    queue_managers: tuple[Annotated[MqeQueueManager, Field(title="a queue manager")], ...]


_REMOVED: Final = {"rule": "no class is called: queues go by their attributes and their defaults"}
FORM: Final = FileForm(_NetworkFile, "an MQ Everyplace network", removed=_REMOVED)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading a network."""

    network: MqeNetwork | None
    diagnostics: tuple[Diagnostic, ...]


def read_network(text: str | bytes, name: str = "<input>") -> ReadResult:
    """Read a network from YAML text, of which ``name`` is the name in findings.

    Never raises on a bad text: every error in its form and its meaning is a finding. There is no
    network if there is an error.
    """
    if isinstance(text, bytes):
        # Bytes that are not UTF-8 become a character that YAML does not allow, which is reported.
        text = text.decode("utf-8", "surrogateescape")
    document = read_document(text, name)
    findings = list(document.diagnostics)
    if document.data is None and findings:
        return ReadResult(None, tuple(findings))
    flaws = FORM.flaws(document.data)
    findings += map(document.flaw, flaws)
    network = network_from(document, [flaw.path for flaw in flaws])
    findings += [
        finding
        for finding in check_network(network)
        if not (has_errors(findings) and finding.code in REFERENCES)
    ]
    return ReadResult(None if has_errors(findings) else network, in_order(findings))


def network_from(document: DefinitionDocument, flawed: Collection[KeyPath] = ()) -> MqeNetwork:
    """The network of a text without what has flaws, at these paths.

    A definition with a flaw is left out, but not its manager if that has a name.
    """
    data = _sound(document, document.data, (), {_left_out(path) for path in flawed})
    if not isinstance(data, dict):
        return MqeNetwork()
    file = FORM.value({"queue_managers": [], **data, "kind": "mqe"})
    return MqeNetwork(queue_managers=file.queue_managers, options=file.options)


def _left_out(path: KeyPath) -> KeyPath:
    """The path of what to leave out because of a flaw."""
    if path[:1] == ("options",):
        return path[:1]
    # Definitions are elements of lists of a manager, which is one of the list of all.
    return path[:2] if path[2:] == ("name",) else path[:4]


def _sound(
    document: DefinitionDocument,
    data: Any,  # noqa: ANN401 - YAML
    path: KeyPath,
    left_out: Collection[KeyPath],
) -> Any:  # noqa: ANN401 - YAML
    """A copy without what is left out, in which each definition has its location."""
    match data:
        case dict():
            copy = {
                key: _sound(document, value, (*path, key), left_out)
                for key, value in data.items()
                if (*path, key) not in left_out
            }
            location = document.location((*path, "name"))
            return copy | {"location": location} if "name" in copy else copy
        case list():
            return [
                _sound(document, value, (*path, index), left_out)
                for index, value in enumerate(data)
                if (*path, index) not in left_out
            ]
    return data


_ENDS: Mapping[PutFailure, str] = {
    PutFailure.NO_QUEUE_ACCEPTS: "PUT_FAILS",
    PutFailure.ROUTE_LOOP: "ROUTE_LOOP",
}
"""Ends of a put that no other finding covers; connections and aliases have their own findings."""

MQ_NAME_LENGTH = 48
"""Longest name in IBM MQ; advised for names that cross the bridge."""

REFERENCES = {
    "ALIAS_TARGET_UNKNOWN",
    "ATTRIBUTES_DIFFER",
    "NOT_STORED_FOR",
    "NO_CONNECTION",
    "NO_LISTENER",
    "PULLS_NOTHING",
    "PUT_FAILS",
    "ROUTE_LOOP",
    "UNKNOWN_QUEUE_MANAGER",
    "UNREACHABLE",
    "VIA_MISSING",
}
"""Findings about one definition that another one may cause."""


def check_network(network: MqeNetwork) -> Iterator[Diagnostic]:
    """The findings in a network, in the order of the definitions."""
    tables, resolver = NetworkTables(network), MqeResolver(network)
    yield from _duplicates("DUPLICATE_QUEUE_MANAGER", "queue manager", network.queue_managers)
    for manager in network.queue_managers:
        own = ManagerTables(manager)
        yield from _names(manager)
        yield from _duplicates("DUPLICATE_CONNECTION", "connection", manager.connections)
        yield from _duplicates("DUPLICATE_LISTENER", "listener", manager.listeners)
        yield from _queues(manager)
        yield from _queue_aliases(manager, own)
        yield from _manager_aliases(manager, own)
        yield from _code_base(manager)
        yield from _store_and_forward(manager, own)
        yield from _links(network, tables, manager)
        yield from _agreement(tables, manager)
        yield from _puts(resolver, manager)
    yield from _reachability(network, tables)


def _finding(
    severity: Severity, code: str, of: MqeDefinition, message: str, hint: str
) -> Diagnostic:
    return of.location.finding(severity, code, message, hint=hint, subject=of.name)


_error = partial(_finding, Severity.ERROR)
_warning = partial(_finding, Severity.WARNING)
_note = partial(_finding, Severity.NOTE)


# Names


def _names(manager: MqeQueueManager) -> Iterator[Diagnostic]:
    hint = "choose a name with other characters"
    for definition, names in _all_names(manager):
        for name in names:
            problem = name_problem(name)
            if problem:
                yield _error("BAD_NAME", definition, problem, hint)
    for queue in manager.queues:
        if isinstance(queue, BridgeQueue):
            for name in (queue.name, queue.queue_manager):
                if len(name) > MQ_NAME_LENGTH:
                    message = f"name {name!r} is longer than IBM MQ's {MQ_NAME_LENGTH} characters"
                    yield _warning("LONG_NAME", queue, message, "use a shorter name")


def _all_names(manager: MqeQueueManager) -> Iterator[tuple[MqeDefinition, Iterable[str]]]:
    yield manager, (manager.name,)
    for queue in manager.queues:
        yield queue, _names_of(queue)
    for connection in manager.connections:
        yield connection, (connection.name, *connection.aliases)
    for alias in manager.aliases:
        yield alias, (alias.name, alias.of)


def _names_of(queue: AnyQueue) -> Iterable[str]:
    match queue:
        case MqeLocalQueue():
            return (queue.name, *queue.aliases)
        case MqeRemoteQueue() | BridgeQueue():
            return (queue.name, queue.queue_manager, *queue.aliases)
        case StoreAndForwardQueue():
            return (queue.name, queue.queue_manager, *queue.targets)
    return (queue.name, queue.queue_manager)


def _duplicates(code: str, noun: str, definitions: Iterable[MqeDefinition]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for definition in definitions:
        if definition.name in seen:
            message = f"{noun} {definition.name!r} is defined before"
            yield _error(code, definition, message, "keep one of the two definitions")
        seen.add(definition.name)


# Queues and their aliases


def _queues(manager: MqeQueueManager) -> Iterator[Diagnostic]:
    seen: set[Names] = set()
    for queue in manager.queues:
        names = identity(queue, manager.name)
        if names in seen:
            message = f"queue {names} is already defined on {manager.name!r}"
            yield _error("DUPLICATE_QUEUE", queue, message, "keep one of the two definitions")
        seen.add(names)
    for queue in manager.dead_letter_queues[1:]:
        first = manager.dead_letter_queues[0].name
        message = f"{manager.name!r} already has a dead-letter queue: {first!r}"
        yield _error("TWO_DEAD_LETTER_QUEUES", queue, message, "give the role to one queue only")
    for queue in manager.queues if not manager.local_queuing else ():
        if isinstance(queue, MqeLocalQueue | StoreAndForwardQueue) or (
            isinstance(queue, MqeRemoteQueue) and queue.mode is Mode.ASYNC
        ):
            message = f"{queue.name!r} stores messages, but {manager.name!r} has no local queuing"
            hint = "use synchronous remote queue definitions, or allow local queuing"
            yield _error("NO_LOCAL_QUEUING", queue, message, hint)


def _queue_aliases(manager: MqeQueueManager, tables: ManagerTables) -> Iterator[Diagnostic]:
    for queue in manager.queues:
        if not isinstance(queue, MqeLocalQueue | MqeRemoteQueue | BridgeQueue):
            continue
        own = identity(queue, manager.name)
        for alias, count in Counter(queue.aliases).items():
            names = Names(queue=alias, queue_manager=own.queue_manager)
            if count > 1:
                message = f"queue {queue.name!r} has alias {alias!r} {count} times"
                yield _warning("ALIAS_REPEATED", queue, message, "write it once")
            other = tables.queue_aliases.get(names, queue)
            if identity(other, manager.name) != own:
                message = f"alias {names} already belongs to queue {other.name!r}"
                hint = "give the alias to one of the two queues"
                yield _error("DUPLICATE_QUEUE_ALIAS", queue, message, hint)
            if names in tables.queues:
                message = f"alias {names} never applies: a queue of that name takes precedence"
                yield _warning("ALIAS_HIDDEN", queue, message, "remove the alias or the queue")


# Queue manager aliases


def _manager_aliases(manager: MqeQueueManager, tables: ManagerTables) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for alias, _, definition in manager_aliases(manager):
        if alias in seen:
            message = f"queue manager alias {alias!r} is already defined on {manager.name!r}"
            hint = "keep one of the two definitions"
            yield _error("DUPLICATE_ALIAS", definition, message, hint)
        seen.add(alias)
    for alias, (name, definition) in tables.aliases.items():
        loop = _alias_loop(tables, alias)
        if loop:
            message = f"queue manager aliases form a loop: {' -> '.join(loop)}"
            hint = "make one of them name a real queue manager"
            yield _error("ALIAS_LOOP", definition, message, hint)
        elif name not in _known_names(tables):
            message = f"queue manager alias {alias!r} stands for {name!r}, which is unknown"
            hint = f"define a connection {name!r}, or correct the name"
            yield _warning("ALIAS_TARGET_UNKNOWN", definition, message, hint)
        elif manager.code_base is CodeBase.C and name in tables.aliases:
            message = f"{name!r} is also an alias, and the C code base substitutes only once"
            yield _warning("ALIAS_CHAIN", definition, message, "name the real queue manager")
        real = tables.connections.get(alias)
        if isinstance(real, DirectConnection | ViaConnection):
            message = f"connection {alias!r} takes no puts for its name: an alias replaces it"
            yield _warning("ALIAS_HIDES_CONNECTION", real, message, "rename one of the two")
    for connection in manager.connections:
        if isinstance(connection, NullConnection) and connection.name == manager.name:
            message = f"{manager.name!r} answers to its own name without a null connection"
            yield _warning("NULL_CONNECTION_UNUSED", connection, message, "remove the connection")


def _alias_loop(tables: ManagerTables, alias: str) -> list[str]:
    way = [alias]
    while way[-1] in tables.aliases and way[-1] not in way[:-1]:
        way.append(tables.aliases[way[-1]][0])
    return way if len(way) > 1 and way[-1] == alias else []


def _known_names(tables: ManagerTables) -> set[str]:
    targets = {names.queue_manager for names in tables.queues}
    return {
        tables.manager.name,
        *targets,
        *tables.store_and_forward,
        *tables.connections,
        *tables.aliases,
    }


# Code base, store-and-forward, links


def _code_base(manager: MqeQueueManager) -> Iterator[Diagnostic]:
    if manager.code_base is not CodeBase.C:
        return
    for queue in manager.queues:
        if isinstance(queue, BridgeQueue | StoreAndForwardQueue):
            message = f"the C code base has no queue of this kind: {queue.name!r}"
            hint = "move the queue to a manager of the Java code base; here it is ignored"
            yield _warning("NOT_IN_CODE_BASE", queue, message, hint)


def _store_and_forward(manager: MqeQueueManager, tables: ManagerTables) -> Iterator[Diagnostic]:
    listed: dict[str, str] = {}
    for queue in manager.queues:
        if not isinstance(queue, StoreAndForwardQueue):
            continue
        for target in queue.targets:
            if target in listed:
                message = f"queue manager {target!r} is already listed by {listed[target]!r}"
                hint = "list it in one store-and-forward queue only"
                yield _error("TARGET_LISTED_TWICE", queue, message, hint)
            listed.setdefault(target, queue.name)
            if target == manager.name:
                message = f"{queue.name!r} stores messages for its own manager {target!r}"
                yield _warning("STORES_FOR_ITSELF", queue, message, "remove the entry")
            if target in tables.aliases:
                message = f"entry {target!r} never matches: it is an alias and replaced earlier"
                yield _warning("ENTRY_IS_ALIAS", queue, message, "list the real queue manager")
            definition = tables.queues.get(Names(queue=queue.name, queue_manager=target))
            if isinstance(definition, MqeRemoteQueue) and definition.mode is Mode.ASYNC:
                message = f"{queue.name!r} has the topic of remote definition {queue.name}@{target}"
                hint = "give the store-and-forward queue another name"
                yield _error("ONE_TOPIC", queue, message, hint)


def _delivery(queue: StoreAndForwardQueue, *, has_connection: bool) -> Iterator[Diagnostic]:
    if queue.delivery is DeliveryMode.PULL and has_connection:
        message = (
            f"{queue.name!r} should be pulled from, but has connection {queue.queue_manager!r}"
        )
        hint = "give the queue a queue manager name without a connection"
        yield _error("PULL_HAS_CONNECTION", queue, message, hint)
    if queue.delivery is DeliveryMode.PUSH and not has_connection:
        message = f"{queue.name!r} should push, but there is no connection {queue.queue_manager!r}"
        hint = f"define connection {queue.queue_manager!r}"
        yield _error("PUSH_HAS_NO_CONNECTION", queue, message, hint)


def _links(
    network: MqeNetwork, tables: NetworkTables, manager: MqeQueueManager
) -> Iterator[Diagnostic]:
    if manager is not network.queue_manager(manager.name):
        return  # defined twice: the first is checked
    for connection in manager.connections:
        if isinstance(connection, DirectConnection | ViaConnection):
            yield from _connection(tables, manager, connection)
    for queue in manager.queues:
        if not isinstance(queue, MqeRemoteQueue | HomeServerQueue | StoreAndForwardQueue):
            continue
        link = link_to(tables, manager.name, queue.queue_manager)
        if isinstance(queue, StoreAndForwardQueue):
            yield from _delivery(queue, has_connection=link.is_defined)
        elif not link.is_defined:
            message = f"no connection of {manager.name!r} leads to {queue.queue_manager!r}"
            hint = f"define connection {queue.queue_manager!r}"
            yield _warning("NO_CONNECTION", queue, message, hint)
        if isinstance(queue, HomeServerQueue):
            yield from _pulls(tables, manager, queue, link)


def _pulls(
    tables: NetworkTables, manager: MqeQueueManager, queue: HomeServerQueue, link: MqeLink
) -> Iterator[Diagnostic]:
    server = link.receiver or queue.queue_manager
    far, names = tables.of(server), Names(queue_manager=manager.name)
    store = far.store_and_forward.get(manager.name) if far else None
    if link.receiver and not link.is_one_hop:
        message = f"{queue.name!r} pulls nothing: connection {queue.queue_manager!r} is not direct"
        hint = f"make {queue.queue_manager!r} a direct connection, as a pull takes one hop"
        yield _warning("PULLS_NOTHING", queue, message, hint)
    elif far is not None and store is None:
        message = f"no store-and-forward queue of {server!r} lists {manager.name!r}"
        hint = f"define one on {server!r} that lists {manager.name!r}"
        yield _warning("NOT_STORED_FOR", queue, message, hint)
    elif store and link.receiver and not collecting_queue(tables, Stored(server, store, names)):
        message = f"{queue.name!r} pulls nothing from {store.name!r} of {server!r}: names differ"
        hint = "give the two queues one name, or set options.home_server_names to false"
        yield _warning("PULLS_NOTHING", queue, message, hint)


def _connection(
    tables: NetworkTables, manager: MqeQueueManager, connection: MqeConnection
) -> Iterator[Diagnostic]:
    link = link_to(tables, manager.name, connection.name)
    failure = link.failed.failure if link.failed else None
    last = link.steps[-1].definition
    if failure is PutFailure.VIA_LOOP:
        message = f"connection {connection.name!r} leads back to itself or into a loop"
        hint = "make the last via connection name a direct one"
        yield _error("VIA_LOOP", connection, message, hint)
    elif failure is PutFailure.NO_CONNECTION and isinstance(last, ViaConnection):
        message = f"connection {connection.name!r} goes via {last.via!r}, which is not defined"
        yield _warning("VIA_MISSING", connection, message, f"define connection {last.via!r}")
    elif failure is PutFailure.UNKNOWN_QUEUE_MANAGER and last is connection:
        message = f"connection {connection.name!r} leads to a queue manager that is not described"
        yield _warning("UNKNOWN_QUEUE_MANAGER", connection, message, "add the queue manager")
    elif failure is None and isinstance(connection, DirectConnection):
        far, port = tables.of(link.receiver), connection.port
        ports = {listener.port for listener in far.manager.listeners} if far else set()
        if port is not None and ports and port not in ports:
            hint = "correct the port, or add a listener"
            message = f"no listener of {link.receiver!r} has port {port}"
            yield _warning("NO_LISTENER", connection, message, hint)


# Definitions and the real queues


def _agreement(tables: NetworkTables, manager: MqeQueueManager) -> Iterator[Diagnostic]:
    """Attributes of an asynchronous definition should agree with those of the real queue."""
    for queue in manager.queues:
        if not isinstance(queue, MqeRemoteQueue) or queue.mode is Mode.SYNC:
            continue
        far = tables.of(queue.queue_manager)
        real = far.queues.get(identity(queue, manager.name)) if far else None
        if not isinstance(real, MqeLocalQueue):
            continue
        longest = real.maximum_message_size
        if longest is not None and (queue.maximum_message_size or longest + 1) > longest:
            message = f"{queue.name!r} admits messages longer than the real queue's {longest} bytes"
            hint = "longer messages would be accepted here and stay here; set the same limit"
            yield _warning("ATTRIBUTES_DIFFER", queue, message, hint)
        if queue.security != real.security:
            message = f"the security attribute of {queue.name!r} differs from the real queue's"
            hint = "set the same classes; only synchronous use negotiates them"
            yield _warning("ATTRIBUTES_DIFFER", queue, message, hint)


def _puts(resolver: MqeResolver, manager: MqeQueueManager) -> Iterator[Diagnostic]:
    for queue in manager.queues:
        if not isinstance(queue, MqeRemoteQueue):
            continue
        names = identity(queue, manager.name)
        end = resolver.resolve(manager.name, names).end
        if isinstance(end, Stored):
            end = resolver.transmit(end).end
        match end:
            case Failed(failure=failure) if failure in _ENDS:
                message = f"a put to {names} fails on {end.queue_manager!r}: {failure}"
                yield _warning(_ENDS[failure], queue, message, failure.advice)
            case Stored(refused=Failed(failure=failure)) if failure in _ENDS:
                message = f"a message put to {names} stays on {end.queue_manager!r}: {failure}"
                yield _warning(_ENDS[failure], queue, message, failure.advice)


def _reachability(network: MqeNetwork, tables: NetworkTables) -> Iterator[Diagnostic]:
    reached = {
        tables.receiver(connection.name)
        for manager in network.queue_managers
        for connection in manager.connections
        if isinstance(connection, DirectConnection)
    }
    for manager in network.queue_managers:
        pulls = any(isinstance(queue, HomeServerQueue) for queue in manager.queues)
        if manager.name not in reached and not pulls and len(network.queue_managers) > 1:
            message = f"no other queue manager can send messages to {manager.name!r}"
            hint = "define a connection that leads to it, or a home-server queue on it"
            yield _note("UNREACHABLE", manager, message, hint)
