"""The minimal set of rights of a job: one table, for people and for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import table_of, topology_of
from redrive.engine.names import instances_group, own_prefix
from redrive.kafka.access import Resource, Right, check_access
from redrive.rules import Action, Rule
from redrive.topology.layout import QueueTopic, Topology, topics_of
from redrive.topology.mq.objects import ModelQueue
from redrive.topology.names import OWN_PREFIX, topic_name

_topic = partial(Right, resource=Resource.TOPIC)
_group = partial(Right, resource=Resource.GROUP)
_id = partial(Right, resource=Resource.TRANSACTIONAL_ID, operation="Write")


def rights_of(job: JobConfiguration, targets: Sequence[str] = ()) -> tuple[Right, ...]:
    """The rights that a job needs, each once, and optional ones.

    ``targets`` are topics that rules put to besides those that tables and definitions name;
    ``orders.*`` stands for all whose names begin with ``orders.``.
    """
    rights = [
        *_own(job.application),
        *_sources(job),
        *_targets(job, targets),
        *_group_topics(job, targets),
        *_orders(job, targets),
        *_depths(job),
        *_dynamic_queues(job),
    ]
    return tuple(
        {(right.resource, right.name, right.operation): right for right in rights}.values()
    )


def rights_to_start(job: JobConfiguration) -> tuple[Right, ...]:
    """The rights without which a job handles no message.

    A target without the right to write only makes the attempts of its own messages fail.
    """
    return tuple(_own(job.application))


def rights_to_read(job: JobConfiguration) -> tuple[Right, ...]:
    """The rights on topics that are read; without one only its own handler stops."""
    return tuple(_sources(job))


def check_start(job: JobConfiguration) -> None:
    """Check that the cluster answers, accepts the job's login, and grants what a start needs.

    Raises:
        UnreachableFault: No broker answers.
        EnvironmentFault: A broker answers and refuses.
    """
    check_access(job.connection, rights_to_start(job), any_of=rights_to_read(job))


def open_targets(job: JobConfiguration) -> tuple[str, ...]:
    """The rules that put to topics named only by messages, as ``orders.rul:3``."""
    if job.topology:
        return ()
    return tuple(
        f"{handler.rules_name}:{rule.line}"
        for handler in job.handlers
        for rule in _putting_rules(handler)
        if _target(rule) is None
    )


def _own(application: str) -> Iterator[Right]:
    prefix = own_prefix(application)
    own = partial(_topic, name=prefix, is_prefix=True)
    yield own(operation="Create", purpose="creates its own topics at the first start")
    yield own(
        operation="Read", purpose="reads retries, remaining messages, outcomes and control entries"
    )
    yield own(
        operation="Write",
        purpose="writes retries, remaining messages, outcomes and control entries",
    )
    yield own(
        operation="DescribeConfigs",
        purpose="without it a wrong cleanup.policy of its own topics is not detected",
        is_needed=False,
    )
    yield own(
        operation="Delete",
        purpose="without it copies of finished retries stay on the disk",
        is_needed=False,
    )
    yield own(
        operation="Alter",
        purpose="without it its own topics cannot grow when a source gets more partitions",
        is_needed=False,
    )
    yield _group(name=application, operation="Read", purpose="commits its progress")
    name = instances_group(application)
    yield _group(name=name, operation="Read", purpose="registers running instances")
    purpose = "without it a start does not see that another application handles its topics"
    yield _topic(
        name=OWN_PREFIX, is_prefix=True, operation="Describe", purpose=purpose, is_needed=False
    )
    yield _group(name="*", operation="Describe", purpose=purpose, is_needed=False)
    purpose = "writes in transactions, with one id for each process"
    yield _id(name=prefix, is_prefix=True, purpose=purpose)


def _sources(job: JobConfiguration) -> Iterator[Right]:
    handled = {handler.identity.topic for handler in job.handlers}
    routed = (
        {topic.topic for topic in _layout(job) if topic.is_read} if job.routes_puts else set[str]()
    )
    for name in sorted(handled | routed):
        yield _topic(name=name, operation="Read", purpose="reads its messages")


def _targets(job: JobConfiguration, further: Iterable[str]) -> Iterator[Right]:
    named = {_target(rule) for handler in job.handlers for rule in _putting_rules(handler)}
    local = set() if job.topology else {name for name in named if name}
    for name in sorted({*local, *further, *(topic.topic for topic in _layout(job))}):
        is_prefix = name.endswith("*")
        on = partial(_topic, name=name.removesuffix("*"), is_prefix=is_prefix)
        yield on(operation="Write", purpose="puts messages to it")
        yield on(
            operation="DescribeConfigs",
            purpose="without it Kafka's default limits are assumed until it refuses a message",
            is_needed=False,
        )


def _group_topics(job: JobConfiguration, targets: Iterable[str]) -> Iterator[Right]:
    if not any(table_of(handler).has_groups for handler in job.handlers):
        return
    for target in targets:
        before, _, after = job.group_topic.partition("{topic}")
        rest = "" if target.endswith("*") else after.partition("{group}")[0]
        name = f"{before}{target.removesuffix('*')}{rest}"
        if "{group}" not in name:
            topics = partial(_topic, name=name, is_prefix=True)
            yield topics(operation="Create", purpose="creates the topics of groups, by TO(GROUP)")
            yield topics(operation="Write", purpose="puts rounds to the topics of groups")


def _orders(job: JobConfiguration, targets: Iterable[str]) -> Iterator[Right]:
    """Rights to see the positions of the targets' consumers, where tables have ORDER(KEY)."""
    if not any(table_of(handler).control.is_ordered for handler in job.handlers):
        return
    purpose = "without it ORDER(KEY) counts a round as over 10 minutes after its put"
    yield _group(name="*", operation="Describe", purpose=purpose, is_needed=False)
    for target in targets:
        on = partial(_topic, name=target.removesuffix("*"), is_prefix=target.endswith("*"))
        yield on(operation="Read", purpose=purpose, is_needed=False)


def _depths(job: JobConfiguration) -> Iterator[Right]:
    counted = [
        (limits.consumer_group, queue)
        for queue, limits in job.limits.items()
        if limits.consumer_group and limits.max_depth is not None
    ]
    if topology := _topology(job):
        bindings = topology.bindings
        counted += [
            (binding.consumer_group, bindings.topic(queue=queue, queue_manager=name))
            for name, manager in bindings.queue_managers.items()
            for queue, binding in manager.queues.items()
            if binding.consumer_group
        ]
    for group, topic in counted:
        yield _group(name=group, operation="Describe", purpose="counts the messages of its queue")
        yield _topic(name=topic, operation="Read", purpose="counts its messages near its limit")


def _dynamic_queues(job: JobConfiguration) -> Iterator[Right]:
    topology = _topology(job)
    managers = topology.mq.queue_managers.values() if topology else ()
    for manager in managers:
        if any(isinstance(queue, ModelQueue) for queue in manager.queues.values()):
            prefix = topic_name(queue="", queue_manager=manager.name)
            on = partial(_topic, name=prefix, is_prefix=True, is_needed=False)
            yield on(operation="Write", purpose="without it puts to dynamic queues fail")
            yield on(
                operation="Delete",
                purpose="without it the topics of dynamic queues are not deleted when their"
                " lease ends",
            )


def _putting_rules(handler: HandlerConfiguration) -> Iterator[Rule]:
    return (rule for rule in table_of(handler).rules if rule.action.can_fail)


def _target(rule: Rule) -> str | None:
    name = rule.forward_topic or rule.forward_queue
    if rule.forward_cluster:
        return ""  # one of our own topics is the target
    return None if rule.action is Action.RETRY or "&" in name else name


def _layout(job: JobConfiguration) -> Iterator[QueueTopic]:
    topology = _topology(job)
    return iter(topics_of(topology) if topology else ())


def _topology(job: JobConfiguration) -> Topology | None:
    return topology_of(job.topology) if job.topology else None
