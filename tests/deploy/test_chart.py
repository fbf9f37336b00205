"""The chart for Kubernetes: what it renders, and that it takes everything from its one source."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from redrive.settings import read_settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "redrive"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
OPTIONAL = {
    "persistence.enabled": "PersistentVolumeClaim",
    "podDisruptionBudget.enabled": "PodDisruptionBudget",
    "networkPolicy.enabled": "NetworkPolicy",
    "serviceMonitor.enabled": "ServiceMonitor",
    "prometheusRule.enabled": "PrometheusRule",
}
"""A value and the kind of object that is there if it is true."""
ALWAYS = ["ConfigMap", "ConfigMap", "Deployment", "Service"]
FLAGS = (*OPTIONAL, "restartOnChange", "watch")


def _flags(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """The dotted names of all boolean values."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flags(value, f"{above}{name}.")
        elif isinstance(value, bool):
            yield f"{above}{name}"


@pytest.fixture(scope="module")
def helm() -> str:
    """Helm, which this project does not bring."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    return program


def render(helm: str, *options: str, release: str = "orders") -> list[dict[str, Any]]:
    """All objects that the chart makes with some options."""
    command = [helm, "template", release, str(CHART), "--kube-version", "1.31", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (document for document in objects if document["kind"] == kind)
    return found


def test_helm_finds_nothing_to_complain_about(helm: str) -> None:
    """The chart is one, with values that its schema takes."""
    done = subprocess.run(
        [helm, "lint", "--strict", "--kube-version", "1.31", str(CHART)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("chosen", [*itertools.product(["true", "false"], repeat=len(FLAGS))])
def test_every_combination_has_its_objects(helm: str, chosen: tuple[str, ...]) -> None:
    """Each flag brings one object or none, and all objects find the one pod."""
    given = dict(zip(FLAGS, chosen, strict=True))
    settings = ",".join(f"{name}={value}" for name, value in given.items())
    objects = render(helm, "--set", settings, "--set", "secrets={kafka,registry.internal}")
    wanted = [kind for name, kind in OPTIONAL.items() if given[name] == "true"]
    assert sorted(document["kind"] for document in objects) == sorted([*ALWAYS, *wanted])
    names = [(document["kind"], document["metadata"]["name"]) for document in objects]
    assert len(set(names)) == len(names)
    pod = one(objects, "Deployment")["spec"]["template"]
    watches = given["watch"] == "true"
    assert (given["restartOnChange"] == "true" and not watches) == (
        "checksum/config" in pod["metadata"]["annotations"]
    )
    assert ("--watch" in pod["spec"]["containers"][0]["args"]) == watches
    for document in objects:
        selector = document["spec"].get("selector", {}) if "spec" in document else {}
        if document["kind"] != "PersistentVolumeClaim":
            labels = selector.get("matchLabels", selector)
            assert labels.items() <= pod["metadata"]["labels"].items()
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert {it["name"] for it in mounts} == {it["name"] for it in pod["spec"]["volumes"]}
    assert {it["mountPath"] for it in mounts} >= {"/run/secrets/kafka"}
    job = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "job")
    assert ("persistentVolumeClaim" in job) == (given["persistence.enabled"] == "true")


def test_pods_share_the_partitions_out(helm: str) -> None:
    """Commands in a pod know of it too; one pod is ended before another starts."""
    env = "env[0].name=TOKEN,env[0].value=x"
    spec = one(render(helm, "--set", f"replicas=3,{env}"), "Deployment")["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    (container,) = spec["template"]["spec"]["containers"]
    instance = {"name": "REDRIVE_APPLICATION__INSTANCE", "value": "auto"}
    assert container["env"] == [instance, {"name": "TOKEN", "value": "x"}]
    alone = one(render(helm), "Deployment")["spec"]
    assert alone["strategy"] == {"type": "Recreate"}
    assert "env" not in alone["template"]["spec"]["containers"][0]


def test_pods_do_not_share_a_volume(helm: str) -> None:
    """The chart says what to do instead."""
    command = [helm, "template", "orders", str(CHART), "--kube-version", "1.31"]
    command += ["--set", "replicas=2,persistence.enabled=true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "replicas: one volume is for one pod" in done.stderr


@pytest.fixture(scope="module")
def kubernetes_schemas() -> Path:
    """Strict schemas of Kubernetes 1.31, from a package that this project does not bring."""
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        pytest.skip("kubernetes-validate, which has Kubernetes' schemas, is not installed")
    return Path(package.origin).with_name("kubernetes-json-schema") / "v1.31.0-local-strict"


@pytest.mark.parametrize("flag", ["true", "false"])
def test_objects_fit_the_schemas_of_kubernetes(
    helm: str, kubernetes_schemas: Path, flag: str
) -> None:
    """No unknown or misspelt field; the Prometheus operator's kinds are not Kubernetes' own."""

    def read(uri: str) -> Resource[Any]:
        text = (kubernetes_schemas / uri.rpartition("/")[2]).read_text()
        return Resource.from_contents(json.loads(text), default_specification=DRAFT7)

    # mypy does not know the alias of this attribute.
    registry = Registry(retrieve=read)  # type: ignore[call-arg]
    settings = ",".join(f"{name}={flag}" for name in FLAGS)
    objects = render(helm, "--set", settings, "--set", "secrets={kafka,registry.internal}")
    for document in objects:
        group, _, version = document["apiVersion"].rpartition("/")
        if group == "monitoring.coreos.com":
            continue
        name = "-".join(filter(None, (document["kind"].lower(), group.split(".")[0], version)))
        schema = read(f"{name}.json").contents
        validator = jsonschema.Draft7Validator(schema, registry=registry)
        assert [error.message for error in validator.iter_errors(document)] == []


def test_the_container_may_do_nothing_that_the_job_does_not_need(helm: str) -> None:
    """No root, no new privileges, no capability, no write to the image, no token."""
    pod = one(render(helm), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    user = pod["securityContext"]["runAsUser"]
    image = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    assert f"USER {user}:{pod['securityContext']['runAsGroup']}\n" in image


def test_probes_ask_the_page_of_the_settings(helm: str, tmp_path: Path) -> None:
    """The port stands in the settings alone; only the readiness asks whether the job handles."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"settings": VALUES["settings"].replace("9464", "8080")}))
    objects = render(helm, "--values", str(values))
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    assert one(objects, "Service")["spec"]["ports"][0]["port"] == 8080
    paths = {
        name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert paths == {
        "startup": {"path": "/livez", "port": "metrics"},
        "liveness": {"path": "/livez", "port": "metrics"},
        "readiness": {"path": "/readyz", "port": "metrics"},
    }


def test_texts_arrive_as_they_were_given(helm: str) -> None:
    """Settings, tables and alerts lose nothing on the way through templates."""
    objects = render(helm, "--set", "prometheusRule.enabled=true")
    texts: dict[str, str] = {}
    for document in objects:
        if document["kind"] == "ConfigMap":
            texts |= document["data"]
    assert texts == {"redrive.toml": VALUES["settings"], **VALUES["files"]}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "redrive.rules.yml").read_text())
    assert one(objects, "PrometheusRule")["spec"] == rules


def test_wrong_values_are_refused(helm: str) -> None:
    """A misspelt value and settings without a page, which probes could not ask."""
    for wrong in ("persistance.enabled=true", "settings=[application]"):
        done = subprocess.run(
            [helm, "template", "orders", str(CHART), "--kube-version", "1.31", "--set", wrong],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "values don't meet the specifications of the schema" in done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    """The defaults are valid, one more value at any place is not, and each has a type."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for name in ("image", "persistence", "networkPolicy", "serviceMonitor", "prometheusRule"):
        wrong = copy.deepcopy(VALUES)
        wrong[name]["other"] = 1
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_the_flags_of_the_values_are_those_that_are_combined() -> None:
    """A new boolean value has to join the combinations."""
    assert set(_flags(VALUES)) == set(FLAGS)


def test_the_settings_of_the_values_are_right(tmp_path: Path) -> None:
    """No finding, with the files beside them as the pod has them."""
    for name, text in {"redrive.toml": VALUES["settings"], **VALUES["files"]}.items():
        (tmp_path / name).write_text(text)
    assert read_settings(tmp_path / "redrive.toml").warnings == ()


def test_the_chart_takes_versions_and_alerts_from_the_project() -> None:
    """Its version is the project's, and its alerts are a link to those of Prometheus."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    alerts = ROOT / "deploy" / "prometheus" / "redrive.rules.yml"
    assert (CHART / "files" / alerts.name).resolve() == alerts
