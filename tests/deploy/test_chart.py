"""The chart for Kubernetes: what it renders, and that it takes everything from its one source."""

from __future__ import annotations

import copy
import json
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from redrive.console.command import console
from redrive.console.login_files import read_access
from redrive.settings import read_settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "redrive"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
FULL = Path(__file__).with_name("every-value.yaml")
"""Each value of the chart but flags set to something else than its default."""
CONSOLE = "orders-redrive-console"
OPTIONAL = {
    "persistence.enabled": "PersistentVolumeClaim",
    "podDisruptionBudget.enabled": "PodDisruptionBudget",
    "networkPolicy.enabled": "NetworkPolicy",
    "serviceMonitor.enabled": "ServiceMonitor",
    "prometheusRule.enabled": "PrometheusRule",
}
"""A value and the kind of object that is there if it is true."""
ALWAYS = ["ConfigMap", "ConfigMap", "Deployment", "Service"]
OF_CONSOLE = {
    "console.persistence.enabled": "PersistentVolumeClaim",
    "console.ingress.enabled": "Ingress",
    "networkPolicy.enabled": "NetworkPolicy",
}
"""The same for the console's objects."""
ALWAYS_OF_CONSOLE = ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
FLAGS = tuple(
    dict.fromkeys([*OPTIONAL, "restartOnChange", "watch", "console.enabled", *OF_CONSOLE])
)


def _flags(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """The dotted names of all boolean values."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flags(value, f"{above}{name}.")
        elif isinstance(value, bool):
            yield f"{above}{name}"


def choices() -> Iterator[dict[str, str]]:
    """Values of the flags in which any three of them have all their combinations.

    All are false but one, or none, and all are true but one, or none.
    """
    for most, least in (("false", "true"), ("true", "false")):
        for different in (None, *FLAGS):
            yield {name: least if name == different else most for name in FLAGS}


def chosen(flags: Mapping[str, str]) -> tuple[str, ...]:
    """Options of helm for flags, with what the console has to have, and two Secrets."""
    settings = ",".join(f"{name}={value}" for name, value in flags.items())
    needed = "console.host=redrive.example,console.certificateSecret=tls"
    ledger = "env[0].name=REDRIVE_LEDGER__PATH,env[0].value=s3://team/ledger"
    secrets = "secrets={kafka,registry.internal}"
    access = "console.access=[[roles]]"
    return tuple(f"--set={value}" for value in (settings, needed, ledger, secrets, access))


def render(*options: str, release: str = "orders") -> list[dict[str, Any]]:
    """All objects that the chart makes with some options."""
    command = ["helm", "template", release, str(CHART), "--kube-version", "1.31", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def refusal(**values: Any) -> str:
    """What helm says of values that the chart refuses."""
    command = ["helm", "template", "orders", str(CHART), "--kube-version=1.31", "--values=-"]
    given = yaml.safe_dump(values)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


def is_of_console(document: dict[str, Any]) -> bool:
    """Whether an object is the console's, and not the job's."""
    name: str = document["metadata"]["labels"]["app.kubernetes.io/name"]
    return name == "redrive-console"


def one(objects: list[dict[str, Any]], kind: str, *, console: bool = False) -> dict[str, Any]:
    """The job's object of a kind, or the console's."""
    (chosen,) = (
        document
        for document in objects
        if document["kind"] == kind and is_of_console(document) == console
    )
    return chosen


def test_helm_finds_nothing_to_complain_about() -> None:
    done = subprocess.run(
        ["helm", "lint", "--strict", "--kube-version", "1.31", str(CHART)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("flags", [*choices()])
def test_every_combination_of_three_flags_has_its_objects(flags: dict[str, str]) -> None:
    objects = render(*chosen(flags))
    wanted = [kind for name, kind in OPTIONAL.items() if flags[name] == "true"]
    of_job = [document for document in objects if not is_of_console(document)]
    assert sorted(document["kind"] for document in of_job) == sorted([*ALWAYS, *wanted])
    wanted = [kind for name, kind in OF_CONSOLE.items() if flags[name] == "true"]
    wanted = sorted([*ALWAYS_OF_CONSOLE, *wanted]) if flags["console.enabled"] == "true" else []
    of_console = [document for document in objects if is_of_console(document)]
    assert sorted(document["kind"] for document in of_console) == wanted
    names = [(document["kind"], document["metadata"]["name"]) for document in objects]
    assert len(set(names)) == len(names)
    pod = one(objects, "Deployment")["spec"]["template"]
    watches = flags["watch"] == "true"
    assert (flags["restartOnChange"] == "true" and not watches) == (
        "checksum/config" in pod["metadata"]["annotations"]
    )
    assert ("--watch" in pod["spec"]["containers"][0]["args"]) == watches
    pods = [
        document["spec"]["template"] for document in objects if document["kind"] == "Deployment"
    ]
    for document in objects:
        spec = document.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector", {})
        if labels := selector.get("matchLabels", selector):
            assert [labels.items() <= pod["metadata"]["labels"].items() for pod in pods].count(
                True
            ) == 1
    for pod in pods:
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounts} == {
            volume["name"] for volume in pod["spec"]["volumes"]
        }
        assert {mount["mountPath"] for mount in mounts} >= {"/run/secrets/kafka"}
    one_of_job = one(objects, "Deployment")["spec"]["template"]["spec"]
    (job,) = (volume for volume in one_of_job["volumes"] if volume["name"] == "job")
    assert ("persistentVolumeClaim" in job) == (flags["persistence.enabled"] == "true")


def test_pods_share_the_partitions_out() -> None:
    env = "env[0].name=TOKEN,env[0].value=x"
    spec = one(render("--set", f"replicas=3,{env}"), "Deployment")["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    (container,) = spec["template"]["spec"]["containers"]
    instance = {"name": "REDRIVE_APPLICATION__INSTANCE", "value": "auto"}
    assert container["env"] == [instance, {"name": "TOKEN", "value": "x"}]
    alone = one(render(), "Deployment")["spec"]
    assert alone["strategy"] == {"type": "Recreate"}
    assert "env" not in alone["template"]["spec"]["containers"][0]


def test_pods_do_not_share_a_volume() -> None:
    refused = refusal(replicas=2, persistence={"enabled": True})
    assert "replicas: one volume is for one pod" in refused


@pytest.mark.parametrize("console", [False, True])
def test_the_container_may_do_nothing_that_is_not_needed(*, console: bool) -> None:
    objects = render(*chosen({"console.enabled": "true"}))
    pod = one(objects, "Deployment", console=console)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == (CONSOLE if console else "default")
    user = pod["securityContext"]["runAsUser"]
    image = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    assert f"USER {user}:{pod['securityContext']['runAsGroup']}\n" in image


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ('# listen = "0.0.0.0:1"\n[observe]\nlisten = "0.0.0.0:9464"', 9464),
        ("[observe]\nlisten = '0.0.0.0:8080'", 8080),
        ('[observe]\n"listen"="[::]:65535" # "0.0.0.0:1"', 65535),
        ('observe.listen = "0.0.0.0:9464"', 9464),
        ('observe = {listen = "0.0.0.0:9464"}', 9464),
        ('[other]\nlisten = "0.0.0.0:1"\n[observe]\nlisten = """0.0.0.0:9464"""', 9464),
        ('[observe]\nlisten = "\\u0030.0.0.0:9464"', 9464),
    ],
)
def test_the_port_is_that_of_the_settings_as_toml(text: str, port: int) -> None:
    assert tomllib.loads(text)["observe"]["listen"].endswith(f":{port}")
    objects = render("--set-json", f"settings={json.dumps(text)}")
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": port}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('#listen = "0.0.0.0:9464"', 'listen of [observe] is ""'),
        ('[observe]\nlisten = "0.0.0.0:99999"', "a port from 1 to 65535"),
        ('[observe]\nlisten = "0.0.0.0:0"', "a port from 1 to 65535"),
        ('[observe]\nlisten = "127.0.0.1:9464"', "at all addresses of the pod"),
        ('[observe]\nlisten = "0.0.0.0"', "at all addresses of the pod"),
        ('[other]\nlisten = "0.0.0.0:9464"', 'listen of [observe] is ""'),
        ("[observe]\nlisten = 9464", "at all addresses of the pod"),
        ('[observe\nlisten = "0.0.0.0:9464"', "settings: toml: line"),
    ],
)
def test_settings_that_probes_could_not_ask_are_refused(text: str, problem: str) -> None:
    assert problem in refusal(settings=text).replace('\\"', '"')


def test_the_port_of_the_probes_is_not_for_variables() -> None:
    env = [{"name": "REDRIVE_OBSERVE__LISTEN", "value": "0.0.0.0:1"}]
    assert "REDRIVE_OBSERVE__LISTEN is not for env" in refusal(env=env)


def test_pods_are_spread_and_have_a_class() -> None:
    (spread,) = _pod(render("--set=priorityClassName=high"))["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    labels = one(render(), "Deployment")["spec"]["selector"]
    assert spread["labelSelector"] == labels
    own: list[Any] = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    own[0]["labelSelector"] = {}
    values = f"topologySpreadConstraints={json.dumps(own)}"
    assert _pod(render("--set-json", values))["topologySpreadConstraints"] == own
    flags = chosen({"console.enabled": "true"})
    for document in render(*flags, "--set=priorityClassName=high"):
        if document["kind"] == "Deployment":
            assert document["spec"]["template"]["spec"]["priorityClassName"] == "high"


def _pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def test_metrics_are_read_from_any_namespace() -> None:
    (rule,) = one(render(), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}}]
    named = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    peers = f"networkPolicy.metricsFrom={json.dumps([named])}"
    (rule,) = one(render("--set-json", peers), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [named]


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("env=null", "set path of [ledger] to an object store"),
        ("console.access=", "nobody could sign in"),
        ("console.certificateSecret=", "cross the network in plain text"),
        ("console.host=", "set console.host"),
    ],
)
def test_a_console_that_nobody_could_use_is_refused(missing: str, problem: str) -> None:
    flags = chosen({"console.enabled": "true", "console.ingress.enabled": "true"})
    command = ["helm", "template", "orders", str(CHART), "--kube-version=1.31", *flags]
    done = subprocess.run(
        [*command, f"--set={missing}"], capture_output=True, text=True, check=False
    )
    assert problem in done.stderr


def test_the_console_is_started_with_options_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = render(f"--values={FULL}")
    (container,) = one(objects, "Deployment", console=True)["spec"]["template"]["spec"][
        "containers"
    ]
    texts = one(objects, "ConfigMap", console=True)["data"]
    program, subcommand, *arguments = container["args"]
    assert (program, subcommand) == ("redrive", "console")
    places = {
        "/etc/redrive-console/access.toml": texts["access.toml"],
        "/etc/redrive/redrive.toml": yaml.safe_load(FULL.read_text())["settings"],
        "/run/secrets/tokens/tokens.toml": "",
        "/run/secrets/tls/tls.crt": "",
        "/run/secrets/tls/tls.key": "",
    }
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for place, text in places.items():
        assert str(Path(place).parent) in mounted
        (tmp_path / Path(place).name).write_text(text)
        arguments = [word.replace(place, str(tmp_path / Path(place).name)) for word in arguments]
    served: list[Any] = []
    monkeypatch.setattr("redrive.console.command.read_settings", lambda _: None)
    monkeypatch.setattr(
        "redrive.console.server.serve_console", lambda *words, **_: served.append(words)
    )
    done = CliRunner().invoke(console, arguments)
    assert done.exit_code == 0, done.output
    assert served == [(tmp_path / "redrive.toml", "::", 8470)]
    assert container["ports"] == [{"name": "console", "containerPort": 8470}]
    grants, _ = read_access(tmp_path / "access.toml")
    assert grants.of("bob", frozenset())
    for name in ("startup", "liveness", "readiness"):
        question = container[f"{name}Probe"]["httpGet"]
        assert (question["path"], question["scheme"]) == ("/livez", "HTTPS")
        assert question["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_probes_ask_the_page_of_the_settings(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"settings": VALUES["settings"].replace("9464", "8080")}))
    objects = render("--values", str(values))
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


def test_texts_arrive_as_they_were_given() -> None:
    objects = render("--set", "prometheusRule.enabled=true")
    texts: dict[str, str] = {}
    for document in objects:
        if document["kind"] == "ConfigMap":
            texts |= document["data"]
    assert texts == {"redrive.toml": VALUES["settings"], **VALUES["files"]}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "redrive.rules.yml").read_text())
    assert one(objects, "PrometheusRule")["spec"] == rules


def test_wrong_values_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"persistance": {"enabled": True}}, {"replicas": "two"}]
    for values in wrong:
        refused = refusal(**values)
        assert "values don't meet the specifications of the schema" in refused


def test_the_schema_knows_every_value_and_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for path in (
        "image", "persistence", "networkPolicy", "serviceMonitor", "prometheusRule",
        "console", "console.persistence", "console.ingress",
    ):  # fmt: skip
        wrong = copy.deepcopy(VALUES)
        table = wrong
        for name in path.split("."):
            table = table[name]
        table["other"] = 1
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_the_flags_of_the_values_are_those_that_are_combined() -> None:
    assert set(_flags(VALUES)) == set(FLAGS)


def test_every_value_but_flags_is_set_to_something_else() -> None:
    """In the file that is applied to an API server: a new value has to join.

    All but the schedule, which replaces the pod that others are about.
    """
    full = yaml.safe_load(FULL.read_text())
    jsonschema.validate(full, SCHEMA)
    assert set(_same(VALUES, full)) <= {*FLAGS, "schedule"}


def test_a_schedule_makes_runs_of_what_is_due_instead_of_a_pod_that_stays() -> None:
    objects = render("--set=schedule=0 2 * * *", "--set=persistence.enabled=true")
    kinds = {document["kind"] for document in objects}
    assert not kinds & {"Deployment", "PodDisruptionBudget"}
    runs = one(objects, "CronJob")["spec"]
    assert (runs["schedule"], runs["concurrencyPolicy"]) == ("0 2 * * *", "Forbid")
    pod = runs["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["args"][:4] == ["redrive", "run", "--wait", "--once"]
    assert not [name for name in container if name.endswith("Probe")]
    said = refusal(schedule="0 2 * * *", replicas=2, persistence={"enabled": False})
    assert "schedule: one pod is a run of what is due" in said


def _same(defaults: dict[str, Any], others: dict[str, Any], above: str = "") -> Iterator[str]:
    """The dotted names of values that are missing or as by default."""
    for name, value in defaults.items():
        if isinstance(value, dict) and value and name != "files":
            yield from _same(value, others[name], f"{above}{name}.")
        elif name not in others or others[name] == value:
            yield f"{above}{name}"


def test_the_settings_of_the_values_are_right(tmp_path: Path) -> None:
    for name, text in {"redrive.toml": VALUES["settings"], **VALUES["files"]}.items():
        (tmp_path / name).write_text(text)
    assert read_settings(tmp_path / "redrive.toml").warnings == ()


def test_the_chart_takes_versions_and_alerts_from_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    alerts = ROOT / "deploy" / "prometheus" / "redrive.rules.yml"
    assert (CHART / "files" / alerts.name).resolve() == alerts
