"""The files for systemd and for containers, as far as they can be checked without a daemon."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from configparser import ConfigParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from deploy.container.build_image import main as build_image
from deploy.standalone.spark_daemon import main as spark_daemon

from redrive.__main__ import main as redrive
from redrive.java import locked_jars
from redrive.settings import read_settings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "redrive.service"
CONTAINERS = ROOT / "deploy" / "container"
COMPOSE: dict[str, Any] = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
SETTINGS = tomllib.loads((CONTAINERS / "redrive.toml").read_text())


def _parse(program: click.Command, arguments: list[str]) -> dict[str, Any]:
    """What a subcommand of a program takes from its arguments, without carrying it out."""
    assert isinstance(program, click.Group)
    command = program.get_command(click.Context(program), arguments[0])
    assert command is not None, f"no subcommand {arguments[0]}"
    return command.make_context(arguments[0], arguments[1:]).params


def test_the_unit_starts_a_job_again_unless_it_is_done_or_its_command_is_wrong() -> None:
    """75 and signals start it again, and 1 too: no broker may answer yet; 0 is done, 2 is wrong."""
    service = _unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartForceExitStatus"] == "75"
    assert service["RestartPreventExitStatus"].split() == ["2"]


def test_the_unit_leaves_java_and_python_workers_their_orderly_end() -> None:
    """Only the main process gets SIGTERM, and it has more time than the 20 s it may take."""
    service = _unit()["Service"]
    assert (service["KillMode"], service["TimeoutStopSec"]) == ("mixed", "30")


def test_the_unit_calls_what_the_command_line_knows() -> None:
    service = _unit()["Service"]
    start, reload = (shlex.split(service[name]) for name in ("ExecStart", "ExecReload"))
    assert (start[1], reload[1]) == ("run", "restart")
    started, reloaded = _parse(redrive, start[1:]), _parse(redrive, reload[1:])
    assert started["path"] == reloaded["config"] is not None
    assert started["directory"] == reloaded["directory"] is not None


def test_the_unit_has_three_sections() -> None:
    assert set(_unit().sections()) == {"Unit", "Service", "Install"}
    assert "MemoryDenyWriteExecute" not in _unit()["Service"], "Java must be able to compile"


def _unit() -> ConfigParser:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names keep capitals
    unit.read(UNIT)
    return unit


@pytest.mark.parametrize("name", ["master", "worker-1", "worker-2", "job"])
def test_a_container_runs_what_the_project_has(name: str) -> None:
    command = COMPOSE["services"][name]["command"]
    if command[0] == "redrive":
        assert _parse(redrive, command[1:])["path"] == Path("/etc/redrive/redrive.toml")
        return
    assert command[0] == "python"
    assert ROOT.joinpath(command[1].removeprefix("/opt/redrive/")).is_file()
    arguments = _parse(spark_daemon, command[2:])
    assert arguments["foreground"]
    assert arguments["host"] == COMPOSE["services"][name]["hostname"] == name


def test_the_containers_find_each_other() -> None:
    services = COMPOSE["services"]
    master = SETTINGS["job"]["master"]
    port = _parse(spark_daemon, services["master"]["command"][2:])["port"]
    assert master == f"spark://master:{port}"
    for worker in ("worker-1", "worker-2"):
        assert _parse(spark_daemon, services[worker]["command"][2:])["master"] == master
    listener = services["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert listener == f"PLAINTEXT://{SETTINGS['kafka']['bootstrap_servers']}"


def test_the_container_of_the_broker_is_of_the_version_that_is_tested() -> None:
    versions = {
        jar.coordinate.split(":")[2] for jar in locked_jars() if ":kafka_2.13:" in jar.coordinate
    }
    assert {COMPOSE["services"]["broker"]["image"].rpartition(":")[2]} == versions


def test_what_containers_mount_is_there() -> None:
    image = (CONTAINERS / "Containerfile").read_text()
    for service in COMPOSE["services"].values():
        for source, target, *_ in (text.split(":") for text in service.get("volumes", ())):
            if source.startswith("."):
                assert (CONTAINERS / source).is_file()
            else:
                assert source in COMPOSE["volumes"]
            if target.startswith("/var/lib/redrive/"):
                # A volume takes its owner from the folder of the image.
                assert target in image.split()
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])


def test_the_settings_of_the_container_are_right(tmp_path: Path) -> None:
    shutil.copy(CONTAINERS / "redrive.toml", tmp_path)
    shutil.copy(ROOT / "examples" / "orders" / "orders.rul", tmp_path)
    assert read_settings(tmp_path / "redrive.toml").warnings == ()


def test_the_image_is_built_of_files_that_are_there() -> None:
    """Each COPY names something of the project that the ignore file lets through."""
    lines = (CONTAINERS / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split() for line in lines if line and not line.startswith("#")]
    ignore = (CONTAINERS / "Containerfile.dockerignore").read_text().splitlines()
    assert instructions[0][0] == "FROM"
    copied = [
        name
        for verb, *rest in instructions
        if verb == "COPY" and not rest[0].startswith("--from=")
        for name in rest[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignore
    assert COMPOSE["x-redrive"]["build"] == {
        "context": "../..",
        "dockerfile": str((CONTAINERS / "Containerfile").relative_to(ROOT)),
    }


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_of_the_image_fails_where_the_page_does(status: int, code: int) -> None:
    text = (CONTAINERS / "Containerfile").read_text().replace("\\\n", " ")
    (written,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.MULTILINE)
    program, *arguments = json.loads(written)
    assert program == "python"
    port = SETTINGS["observe"]["listen"].rpartition(":")[2]
    assert f"127.0.0.1:{port}/livez" in arguments[-1]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        asked = arguments[-1].replace(f":{port}/", f":{server.server_port}/")
        done = subprocess.run(
            [sys.executable, *arguments[:-1], asked], capture_output=True, check=False
        )
    assert done.returncode == code, done.stderr


def test_without_its_base_or_a_program_the_image_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_image([]) == 0
    assert "neither podman nor buildah is installed" in capsys.readouterr().out
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho no such host >&2\nexit 125\n")
    podman.chmod(0o755)
    assert build_image([]) == 0
    assert "python:3.11-slim is not here and can't be pulled: no such host" in (
        capsys.readouterr().out
    )
