"""Inserts in MQSC scripts, and the files of ``crtmqm -ii`` that define them.

Scripts of automatic configuration (``crtmqm -ic``) serve several queue managers: ``+QMNAME+``
stands for the manager, ``+AUTOCL+`` for the cluster of the AutoCluster stanza, and each attribute
of the Variables stanza (``crtmqm -iv``) for its value ("Using automatic cluster configuration",
q133780).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.topology.mq.forms import ValueProblem, check_name
from redrive.topology.mq.objects import QueueManagerAttributes
from redrive.topology.mq.script import Parameter

_INSERT = re.compile(r"\+(\w+)\+")
_STANZA = re.compile(r"\s*(\w+)\s*:\s*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*$")
_CLUSTER, _VARIABLES = "AUTOCLUSTER", "VARIABLES"
_REPOSITORIES = frozenset(
    {"REPOSITORY1NAME", "REPOSITORY2NAME", "REPOSITORYNAME1", "REPOSITORYNAME2"}
)
"""The spelling of samples, and that of the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The clusters and variables of ``qm.ini`` files."""

    cluster: str = ""
    """ClusterName of AutoCluster; empty without the stanza."""
    repositories: tuple[str, ...] = ()
    """Names of the queue managers that hold its full repositories."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the Variables stanza, names in upper case."""

    def over(self, other: Configuration) -> Configuration:
        """This configuration combined with another one, which it overrides."""
        return Configuration(
            cluster=self.cluster or other.cluster,
            repositories=self.repositories or other.repositories,
            variables={**other.variables, **self.variables},
        )

    def inserts(self, queue_manager: str) -> Mapping[str, str]:
        """The inserts of a queue manager's scripts with their values, names in upper case."""
        cluster = {"AUTOCL": self.cluster} if self.cluster else {}
        return {**self.variables, "QMNAME": queue_manager, **cluster}

    def applied(self, attributes: QueueManagerAttributes) -> QueueManagerAttributes:
        """The attributes of a queue manager; a named one holds a full repository."""
        if attributes.name not in self.repositories:
            return attributes
        return replace(attributes, repository_cluster=self.cluster)


NO_CONFIGURATION = Configuration()


def read_configuration(text: str, file: str) -> tuple[Configuration, list[Diagnostic]]:
    """Read the stanzas of a ``qm.ini`` file that concern MQSC scripts; others are ignored."""
    cluster, repositories, variables = "", [], {}
    findings = []
    for stanza, key, value, location in _attributes(text, file):
        if stanza == _VARIABLES:
            variables[key] = value
        elif stanza == _CLUSTER and key in {"CLUSTERNAME", *_REPOSITORIES}:
            try:
                name = check_name(value)
            except ValueProblem as problem:
                message = f"{value!r} {problem.problem}"
                findings.append(
                    location.finding(
                        Severity.ERROR, problem.code, message, expected=problem.expected
                    )
                )
                continue
            if key == "CLUSTERNAME":
                cluster = name
            else:
                repositories.append(name)
    found = Configuration(cluster=cluster, repositories=tuple(repositories), variables=variables)
    return found, findings


def _attributes(text: str, file: str) -> Iterator[tuple[str, str, str, SourceLocation]]:
    """Stanza, attribute and value of every line with an attribute."""
    stanza = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(("#", ";")):
            continue
        if found := _STANZA.match(line):
            stanza = found[1].upper()
        elif found := _ATTRIBUTE.match(line):
            where = SourceLocation(file, number, found.start(2) + 1, max(1, len(found[2])), line)
            yield stanza, found[1].upper(), found[2], where


def with_inserts(parameter: Parameter, values: Mapping[str, str]) -> Parameter:
    """A parameter with inserts replaced by their values; unknown ones are kept."""
    if parameter.value is None:
        return parameter
    value = _INSERT.sub(lambda it: values.get(it[1].upper(), it[0]), parameter.value)
    return parameter._replace(value=value)


def hint_for_insert(value: str) -> str:
    """The hint about a value that still has an insert; empty if it has none."""
    found = _INSERT.search(value)
    if found is None:
        return ""
    return f"{found[0]} has no value: name the file of crtmqm -ii too, such as QM=qm.ini"
