"""Tracers of puts: the deciders of a job with the definitions at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.configuration.deciders import DeciderFactory, in_states
from redrive.engine.commands import NO_STATES, States
from redrive.engine.facts import Answers, Facts, Questions
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.facts import ClusterFacts
from redrive.operations.network import Network
from redrive.operations.put_trace import PutTracer
from redrive.operations.states import read_states
from redrive.topology.files import Topology


def assuming_tracer(topology: Topology, states: States = NO_STATES) -> PutTracer:
    """A tracer that assumes a cluster in good order."""
    facts = Facts(lambda: 0.0)
    factory = DeciderFactory(_job(topology), facts)
    deciders, triggers = factory.deciders(states), factory.triggers(states)
    return PutTracer.assuming(in_states(topology, states), deciders, facts, triggers)


def cluster_tracer(network: Network, cluster: Cluster) -> PutTracer:
    """A tracer that asks the cluster as the job would, as far as this user can see."""
    job = network.job or _job(network.topology)
    states = read_states(network.job, cluster) if network.job else NO_STATES
    facts = Facts(lambda: 0.0)
    factory = DeciderFactory(replace(job, handlers=(), routes_puts=True), facts)
    cluster_facts = ClusterFacts(cluster)

    def answers(questions: Questions) -> Answers:
        found = cluster_facts.answers(questions)
        # The job's rights count, not the putter's.
        topics = {name: replace(one, may_write=True) for name, one in found.topics.items()}
        return replace(found, topics=topics)

    topology = in_states(network.topology, states)
    return PutTracer(topology, factory.deciders(states), facts, answers, factory.triggers(states))


def _job(topology: Topology) -> JobConfiguration:
    """A job that does nothing but route puts by some definitions."""
    return JobConfiguration(
        application="redrive",
        connection=Connection(bootstrap_servers=""),
        handlers=(),
        directory=Path(),
        ledger=LedgerConfiguration(path=Path(), enabled=False),
        topology=topology.sources,
    )
