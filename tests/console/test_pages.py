"""The console's pages and its JSON: what they show, who may do what, and what no request can do."""

from __future__ import annotations

import contextlib
import html
import json
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.testclient import TestClient
from tests.command.test_terminal import EVIL
from tests.conftest import PATIENCE, eventually, send_records
from tests.outcomes.samples import append, outcome, rows

from redrive.broker.ports import free_port
from redrive.command import main
from redrive.console.access import Role, User
from redrive.console.server import console_application
from redrive.outcomes.inventory import State
from redrive.settings import read_settings

HOSTILE = f"<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{{{7*7}}}}{EVIL}"
"""A script, an attribute, a template, and what a terminal obeys."""
SETTINGS = """\
[application]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[[handlers]]
name = "orders"
queue = "{topic}"
rules = "orders.rul"
[mask]
patterns = ["secret"]
"""
CONFIG = Path("redrive.toml")


@dataclass
class SomeUser:
    """Everybody is one user, whose role a test chooses."""

    role: Role = Role.ADMIN
    name: str = "ann"

    async def user_of(self, request: Request) -> User:  # noqa: ARG002 - one for all
        """The user."""
        return User(self.name, self.role)


@pytest.fixture
def user() -> SomeUser:
    return SomeUser()


@pytest.fixture
def topic(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bootstrap_servers: str,
    unique_name: Callable[[str], str],
    topics: Callable[..., Any],
) -> str:
    """The dead-letter topic of a job with three messages that remain, two with hostile texts."""
    monkeypatch.chdir(tmp_path)
    name = unique_name("console").replace("_", "-")
    dead = topics("dlq")
    send_records(
        bootstrap_servers,
        dead,
        [
            {
                "value": json.dumps({"note": HOSTILE}).encode(),
                "key": HOSTILE.encode(),
                "headers": [("__connect.errors.exception.message", HOSTILE.encode())],
            }
        ]
        * 3,
    )
    Path("orders.rul").write_text("DIALECT(KAFKA)\nTOPIC('no*') ACTION(IGNORE)\nACTION(RETRY)\n")
    CONFIG.write_text(SETTINGS.format(name=name, servers=bootstrap_servers, topic=dead))
    letters = [
        {
            **outcome(
                number, origin=place, outcome=place, message=place, result="remains",
                handler="orders", action="IGNORE", rule_line=2, source_topic=dead,
                source_offset=number, message_offset=number, detail=HOSTILE if number else "secret",
                error_class=f"com.{HOSTILE}" if number else "com.secret", consumer_group=HOSTILE,
                form="connect", reason=0, reason_name="", attempt=0, hop=0, size=9, key=None,
            ),
            "fields": {"DESTQ": HOSTILE, "REASON": 2195},
        }
        for number, place in enumerate(f"{dead}:0:{number}" for number in range(3))
    ]  # fmt: skip
    append(read_settings(CONFIG).job.ledger.path, rows(letters, partitions=1))
    return str(dead)


@pytest.fixture
def browser(topic: str, user: SomeUser) -> Iterator[TestClient]:
    """Somebody's browser, without scripts."""
    application = console_application(CONFIG, access=user, four_eyes_above=2, hosts={"here"})
    with TestClient(
        application, base_url="http://here", headers={"Accept": "text/html"}, follow_redirects=False
    ) as client:
        yield client


def post(browser: TestClient, path: str, **form: str) -> Any:
    """Sends a form as a page holds it."""
    page = browser.get("/").text
    (word,) = set(re.findall(r'name="word" value="([^"]+)"', page)) or {
        browser.cookies["redrive-form"]
    }
    return browser.post(path, data={"word": word, **form})


def command(*arguments: str) -> Any:
    """What a command says in JSON."""
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def api(browser: TestClient, path: str, **parameters: str) -> Any:
    """A document."""
    answer = browser.get(f"/api{path}", params=parameters, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def by_example(groups: list[Any]) -> list[Any]:
    """Groups in an order of their own: equally large ones have none."""
    return sorted(groups, key=lambda one: str(one["example"]))


def test_every_figure_is_that_of_the_command(browser: TestClient, topic: str) -> None:
    """Of status, groups, ls and show, for each state."""
    found = api(browser, "/status")
    told = command("status")
    assert told["handlers"] == found["handlers"]
    assert told["outcomes"] == found["outcomes"]
    for state in [one.value for one in State]:
        shown = api(browser, "/groups", status=state)
        told = command("groups", "--status", state)
        assert told["total"] == shown["total"]
        assert by_example(told["groups"]) == [
            {name: one[name] for name in one if name not in {"condition", "trend"}}
            for one in by_example(shown["groups"])
        ]
        assert all(sum(one["trend"]) == one["count"] for one in shown["groups"])
        listed = command("ls", "--status", state)
        assert listed["dead_letters"] == api(browser, "/messages", status=state)["dead_letters"]
    place = f"{topic}:0:1"
    told, shown = command("show", place), api(browser, f"/messages/{place}")
    assert told == {name: shown[name] for name in told}


def test_a_group_leads_to_its_messages_unless_that_would_show_a_secret(
    browser: TestClient,
) -> None:
    groups = api(browser, "/groups")["groups"]
    assert sorted((one["count"], bool(one["condition"])) for one in groups) == [
        (1, False), (2, True)
    ]  # fmt: skip
    for one in groups:
        if one["condition"]:
            found = api(browser, "/messages", where=one["condition"])
            assert found["total"] == one["count"]


def test_hostile_texts_are_shown_and_harmless(browser: TestClient, topic: str) -> None:
    """No script, no attribute, no control character, no secret, on any page."""
    pages = ("/", "/groups", "/messages", f"/messages/{topic}:0:1", "/plans",
             f"/groups?where={quote(HOSTILE)}", f"/messages/{quote(HOSTILE, safe='')}",
             f"/plans/{quote(HOSTILE, safe='')}")  # fmt: skip
    for page in pages:
        text = browser.get(page).text
        assert text.startswith("<!doctype html>")
        assert "<script>" not in text
        assert "<img" not in text
        assert not {"\x1b", "\u202e", "\x07"} & {*text}
        assert "secret" not in html.unescape(text)
    shown = html.unescape(browser.get(f"/messages/{topic}:0:1").text)
    assert "<script>alert(1)" in shown
    assert "{{7*7}}" in shown


def test_every_answer_forbids_scripts_of_others_and_frames(browser: TestClient) -> None:
    for path in ("/", "/api/status", "/static/console.js", "/nothing", "/api/plans/x"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    for page in ("/", "/groups"):
        text = browser.get(page).text
        assert not re.search(r"(src|href)=\"(https?:)?//", text)
        assert not re.search(r"<[^>]+ (on[a-z]+|style)=", text)


def test_a_name_that_is_not_the_consoles_is_refused(browser: TestClient) -> None:
    """A page of another site can't have its own name lead here."""
    assert browser.get("/", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example"}])
def test_a_form_of_another_site_is_refused(browser: TestClient, headers: dict[str, str]) -> None:
    """Without the word of a page, and with the origin of another one."""
    browser.get("/")
    word = browser.cookies["redrive-form"] if headers else "guessed"
    done = browser.post("/api/plans", data={"word": word}, headers=headers)
    assert done.status_code == 403
    assert api(browser, "/plans")["plans"] == []


def test_each_role_may_do_what_the_document_says(browser: TestClient, user: SomeUser) -> None:
    """Every route of the OpenAPI document, for each role."""
    paths = api(browser, "/openapi.json")["paths"]
    assert len(paths) >= 11
    for path, methods in paths.items():
        for method, described in methods.items():
            needed = Role[described["x-role"].upper()]
            assert (method == "get") == (needed is Role.VIEWER)
            for user.role in Role:
                answer = browser.request(method, path, headers={"Accept": "application/json"})
                refusal = f"{user.name} is {user.role.name.lower()}, and this takes"
                is_refused = answer.json().get("error", "").startswith(refusal)
                assert is_refused == (user.role < needed), (method, path, user.role, answer.text)
                assert answer.status_code == 403 or not is_refused


def test_nobody_sees_no_page(browser: TestClient, user: SomeUser) -> None:
    user.role = Role.NOBODY
    for path in ("/", "/groups", "/messages", "/messages/x", "/plans", "/plans/x", "/live"):
        assert browser.get(path).status_code == 403


def test_a_large_plan_takes_two_people(browser: TestClient, user: SomeUser, topic: str) -> None:
    """Who makes it may not apply it, an operator may not, and a discarded one is gone."""
    made = post(browser, "/api/plans", status="open", to="queue", queue="orders.repair")
    assert made.status_code == 303
    page = made.headers["Location"]
    assert "3 messages to orders.repair" in browser.get(page).text
    plan = page.removeprefix("/plans/")
    refused = post(browser, f"/api{page}/apply", because="ticket 1")
    assert refused.status_code == 403
    assert "somebody other than ann" in html.unescape(refused.text)
    user.name, user.role = "bob", Role.OPERATOR
    assert "applied by an approver" in html.unescape(browser.get(page).text)
    assert post(browser, f"/api{page}/apply").status_code == 403
    user.role = Role.APPROVER
    assert "Apply to 3 messages" in browser.get(page).text
    (waiting,) = api(browser, "/plans")["plans"]
    assert (waiting["plan"], waiting["planned_by"]) == (plan, "ann")
    kept = read_settings(CONFIG).job.directory / "plans" / f"{plan}.json"
    content = json.loads(kept.read_bytes())
    assert content["messages"]["orders"] == {f"{topic}:0": [0, 1, 2]}
    assert post(browser, f"/api{page}/discard").headers["Location"] == "/plans"
    assert not kept.exists()
    assert browser.get(page).status_code == 400


def test_a_plan_of_nothing_is_not_kept(browser: TestClient) -> None:
    found = post(browser, "/api/plans", status="open", where="rule_line = 77")
    assert found.status_code == 200
    assert "Nothing to do" in found.text
    assert api(browser, "/plans")["plans"] == []


@pytest.mark.parametrize(
    ("path", "form", "status", "problem"),
    [
        ("/api/plans", {"status": "lost"}, 400, "'lost' is not a state"),
        ("/api/plans", {"rate": "fast"}, 400, "is no rate"),
        ("/api/plans", {"to": "queue"}, 400, "names no queue"),
        ("/api/plans", {"where": "no_column = 1"}, 400, "no_column"),
        ("/api/plans/../apply", {}, 404, ""),
        ("/api/plans/0123456789ab/apply", {}, 400, "there is no plan"),
        ("/api/acknowledgements", {"until": "7d"}, 400, "missing or wrong: note"),
        ("/api/acknowledgements", {"until": "soon", "note": "x"}, 400, "not a time to come"),
    ],
)
def test_a_wrong_form_says_what_is_wrong(
    browser: TestClient, path: str, form: dict[str, str], status: int, problem: str
) -> None:
    found = post(browser, path, **form)
    assert found.status_code == status
    assert problem in html.unescape(found.text)


def test_what_is_acknowledged_is_marked(browser: TestClient) -> None:
    done = post(browser, "/api/acknowledgements", until="7d", note="audit", status="open")
    assert done.headers["Location"] == "/groups"
    assert sum(one["acknowledged"] for one in api(browser, "/groups")["groups"]) == 3
    (one,) = command("ack", "--list")
    assert (one["operator"], one["note"]) == ("ann", "audit")


def test_both_languages_have_every_text(browser: TestClient) -> None:
    """German has each text of the templates, each state, each result, and each role."""
    folder = files("redrive.console")
    german = tomllib.loads(folder.joinpath("texts", "de.toml").read_text(encoding="utf-8"))
    english = {*State, *(one.name.lower() for one in Role)}
    for template in folder.joinpath("templates").iterdir():
        english |= {*re.findall(r"_\([\"']([^\"']+)[\"']", template.read_text(encoding="utf-8"))}
    assert english - {*german} == set()
    page = browser.get("/groups", headers={"Accept-Language": "fr, de-AT;q=0.8"}).text
    assert '<html lang="de">' in page
    assert "Gruppen von Dead Letters" in page
    browser.get("/language/en")
    assert '<html lang="en">' in browser.get("/", headers={"Accept-Language": "de"}).text


@pytest.mark.parametrize("listen", ["0.0.0.0:8470", "192.0.2.1:8470", "shop.example:8470", "8470"])
def test_an_address_that_others_reach_is_refused(tmp_path: Path, listen: str) -> None:
    """There is no login: everyone who reaches the console may do everything."""
    (tmp_path / "redrive.toml").touch()
    arguments = ("console", "-c", str(tmp_path / "redrive.toml"), "--listen", listen)
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2
    assert f"--listen {listen}" in found.stderr


def test_a_table_is_tried_before_it_goes_live(browser: TestClient, user: SomeUser) -> None:
    """Errors with their place; the difference in meaning and the messages under it, as commands."""
    shown = browser.get("/tables/orders").text
    assert "TOPIC(&#39;no*&#39;) ACTION(IGNORE)" in shown
    broken = post(browser, "/api/tables/orders/check", text="ACTION(RETRI)\r\n").text
    assert "RETRI" in broken, broken
    assert "error" in broken, broken
    text = "DIALECT(KAFKA)\nTOPIC('no*') ACTION(DISCARD)\nACTION(RETRY)\n"
    Path("new.rul").write_text(text)
    headers = {"Accept": "application/json", "X-Redrive-Form": browser.cookies["redrive-form"]}
    tried = browser.post("/api/tables/orders/try", data={"text": text}, headers=headers).json()
    told = CliRunner().invoke(main, ["diff", "orders.rul", "new.rul"])
    assert told.stdout.splitlines() == tried["difference"]
    planned = ("plan", "new.rul", "--over", "remaining", "--over", "parked", "--json")
    told = json.loads(CliRunner().invoke(main, planned).stdout)
    kept = {"messages", "changed", "changes", "matrix", "rules", "newly_discarded"}
    assert {name: told[name] for name in kept} == {name: tried["what_if"][name] for name in kept}
    user.role = Role.APPROVER
    assert post(browser, "/api/tables/orders/live", text=text).status_code == 403
    user.role = Role.ADMIN
    refused = post(browser, "/api/tables/orders/live", text=text)
    assert refused.status_code >= 400
    assert "DISCARD" not in Path("orders.rul").read_text()


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_0_and_an_address_in_use_is_named(number: signal.Signals) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = [sys.executable, "-m", "redrive", "console", "--listen", address]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == f"http://{address}/  (Ctrl+C ends it)\n"
            second = subprocess.run(line, capture_output=True, text=True, check=False)
            assert second.returncode == 1
            assert f"{address} can't be listened on: Address already in use" in second.stderr
            assert "Traceback" not in second.stderr
            eventually(lambda: answers(address), "the console answers")
        finally:
            first.send_signal(number)
        assert first.wait(PATIENCE) == 0


def answers(address: str) -> bool:
    """Whether the console answers."""
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(f"http://{address}/static/icon.svg").status)
    return False


def test_groups_that_differ_in_an_empty_field_only_are_shown(
    browser: TestClient, topic: str
) -> None:
    """Outcomes of earlier versions have no exception, later ones an empty one."""
    letters = [
        outcome(
            number, origin=place, outcome=place, message=place, result="remains", action="IGNORE",
            handler="orders", form="connect", reason_name="", error_class=error, fields={},
        )
        for number, place, error in ((7, f"{topic}:0:7", None), (8, f"{topic}:0:8", ""))
    ]  # fmt: skip
    later = [
        {**row, "outcomes_offset": row["outcomes_offset"] + 3}
        for row in rows(letters, partitions=1)
    ]
    append(read_settings(CONFIG).job.ledger.path, later)
    assert browser.get("/groups").status_code == 200
    found = [one for one in api(browser, "/groups")["groups"] if not one["error_class"]]
    assert [one["count"] for one in found] == [1, 1]
