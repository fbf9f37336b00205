"""A console before a client of its application, and the settings of a job whose broker is away."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.configurations import write_settings

from redrive.console.server import console_application
from redrive.settings import read_settings

CONFIG = Path("redrive.toml")
TABLE = "DIALECT(KAFKA)\nTOPIC('no*') ACTION(IGNORE)\nACTION(RETRY)\n"


def settings_file(servers: str, name: str, own: str, other: str) -> None:
    """Settings of a job with two handlers, and their rules tables."""
    handlers = {"orders": own, "billing": other}
    write_settings(Path(), handlers=handlers, rules=TABLE, application=name, servers=servers)
    Path("billing.rul").write_text(TABLE.replace("no*", "HIDDEN*"))


@pytest.fixture
def away(folder: Path) -> None:
    """The settings of a job whose broker is away."""
    settings_file("127.0.0.1:1", "away", "mine.dlq", "other.dlq")


def console(
    access: Any, *, address: str = "https://here", four_eyes_above: int | None = None, **more: Any
) -> TestClient:
    """Somebody's browser, or a script, which follows no redirect."""
    application = console_application(
        CONFIG, access=access, four_eyes_above=four_eyes_above, hosts={"here"}
    )
    return TestClient(application, base_url=address, follow_redirects=False, **more)


def audited() -> list[Any]:
    path = read_settings(CONFIG).job.directory / "console-audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def form_of(browser: TestClient) -> str:
    """The word that a form has to repeat."""
    page = browser.get("/sign-in", headers={"Accept": "text/html"}).text
    (word,) = set(re.findall(r'name="word" value="([^"]+)"', page))
    return str(word)


def answers(address: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(f"http://{address}/static/icon.svg").status)
    return False
