"""The chart on an API server of Kubernetes: what it refuses, its admission of pods included.

Nothing runs here that would start a pod, so a pod of each Deployment's template is created too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import RSAKey
from tests.conftest import eventually
from tests.deploy.test_chart import CHART, FLAGS, FULL, choices, chosen, render

from redrive.broker.configuration import free_port

Object = dict[str, Any]

NAMESPACE = "restricted"
RESTRICTED: list[Object] = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    },
    # A controller that does not run here makes the first in each namespace.
    *(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        for name in ("default", "redrive")
    ),
]


def _stand_in(kind: str) -> Object:
    """A definition for a kind of the Prometheus operator that takes any content."""
    plural, group = f"{kind.lower()}s", "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server that runs."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """What clients find the server by."""
        return self.folder / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """That of clients, which keep what they learn of a server in the home folder."""
        return {**os.environ, "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """What a client prints.

        Raises:
            AssertionError: It failed; with what it said.
        """
        done = subprocess.run(
            [name, *arguments],
            input=given,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, objects: list[Object], *options: str) -> int:
        """How many objects the server took, all of them by its own account."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        command = ["apply", "--server-side", "--validate=strict", "--filename=-", *options]
        return len(self.run("kubectl", *command, given=document).splitlines())

    def is_ready(self) -> bool:
        """Whether the server answers and has done what it does at a start."""
        command = ["kubectl", "get", "--raw=/readyz"]
        asked = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        return asked.returncode == 0


def _write_kubeconfig(path: Path, port: int) -> None:
    """The settings of a client that is in the group that may do everything."""
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    settings = {
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": "token"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(settings))
    path.chmod(0o600)  # helm warns of others


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without nodes and controllers, with a namespace for restricted pods."""
    folder = tmp_path_factory.mktemp("kubernetes")
    store, peers, port = (free_port() for _ in range(3))
    key, tokens = folder / "key.pem", folder / "tokens.csv"
    key.write_bytes(RSAKey.generate_key(2048).as_pem(private=True))
    tokens.write_text('token,test,test,"system:masters"\n')
    commands = {
        "etcd": [
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{store}",
            f"--advertise-client-urls=http://127.0.0.1:{store}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
        ],
        "kube-apiserver": [
            f"--etcd-servers=http://127.0.0.1:{store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            # A controller that does not run here lets go of a volume claim that is deleted.
            "--disable-admission-plugins=StorageObjectInUseProtection",
        ],
    }
    running = Cluster(folder)
    _write_kubeconfig(running.kubeconfig, port)
    with ExitStack() as stack:
        processes = {}
        for name, arguments in commands.items():
            output = stack.enter_context((folder / f"{name}.log").open("wb"))
            command = [name, *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes[name] = process

        def ready_or_ended() -> bool:
            ended = any(process.poll() is not None for process in processes.values())
            return ended or running.is_ready()

        eventually(ready_or_ended, "the API server is ready")
        for name, process in processes.items():
            assert process.poll() is None, (folder / f"{name}.log").read_text()
        running.apply([*RESTRICTED, _stand_in("ServiceMonitor"), _stand_in("PrometheusRule")])
        running.run(
            "kubectl", "wait", "--for=condition=Established", "--timeout=4m", "crd", "--all"
        )
        yield running


def _pods(objects: list[Object]) -> list[Object]:
    """Pods as the Deployments would start them."""
    pods = []
    for deployment in objects:
        if deployment["kind"] == "Deployment":
            template = deployment["spec"]["template"]
            metadata = {"name": deployment["metadata"]["name"], **template["metadata"]}
            spec = template["spec"]
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pods


def test_the_server_takes_every_combination_of_values(cluster: Cluster) -> None:
    objects: list[Object] = []
    scheduled = ("--set=schedule=0 2 * * *",)
    options = [*map(chosen, choices()), scheduled, (f"--values={FULL}",)]
    for number, values in enumerate(options):
        # The last with a name that YAML would take for a truth value.
        name = f"orders-{number}" if number < len(options) - 1 else "true"
        rendered = render(*values, release=name)
        objects += [*rendered, *_pods(rendered)]
    where = f"--namespace={NAMESPACE}"
    # No pod is admitted, nor would be, before its account is there.
    cluster.apply([item for item in objects if item["kind"] == "ServiceAccount"], where)
    assert cluster.apply(objects, where, "--dry-run=server") == len(objects)
    assert cluster.apply(objects, where) == len(objects)


def test_the_server_refuses_a_pod_that_is_root(cluster: Cluster) -> None:
    (pod,) = _pods(render())
    del pod["spec"]["securityContext"]["runAsNonRoot"]
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        cluster.apply([pod], f"--namespace={NAMESPACE}", "--dry-run=server")


def test_a_release_is_upgraded_and_leaves_nothing(cluster: Cluster) -> None:
    everything = chosen(dict.fromkeys(FLAGS, "true"))
    little = chosen(dict.fromkeys(FLAGS, "false"))
    # A volume claim keeps its size and its class.
    others = (f"--values={FULL}", "--set=console.persistence.enabled=false")
    release = ("orders", f"--namespace={NAMESPACE}")
    kinds = (
        "deployment,service,configmap,pvc,pdb,networkpolicy,servicemonitor,prometheusrule,"
        "serviceaccount,ingress"
    )
    ours = ("get", kinds, f"--namespace={NAMESPACE}", "--output=name")
    selected = (*ours, "--selector=app.kubernetes.io/instance=orders")
    cluster.run("helm", "install", *release, str(CHART), *everything)
    assert len(cluster.run("kubectl", *selected).splitlines()) == 16
    steps = ((little, 4), ((*little, "--set=replicas=3"), 4), (others, 14))
    for values, objects in (*steps, (everything, 16)):
        cluster.run("helm", "upgrade", *release, str(CHART), *values)
        assert len(cluster.run("kubectl", *selected).splitlines()) == objects
    cluster.run("helm", "uninstall", *release)
    assert cluster.run("kubectl", *selected) == ""
