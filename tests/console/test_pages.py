"""The console's pages and its JSON: what they show, who may do what, and what no request can do."""

from __future__ import annotations

import html
import json
import re
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient
from tests.command.test_terminal import EVIL
from tests.commands import redrive
from tests.configurations import write_settings
from tests.conftest import PATIENCE, KafkaClient, eventually, send_records
from tests.console.conftest import CONFIG, TABLE, answers, audited, console
from tests.outcomes.samples import append, remaining, rows

from redrive.broker.configuration import free_port
from redrive.console.access import EVERYTHING, Grant, Role, Scope, User
from redrive.console.rendering import curve
from redrive.console.server import open_listener
from redrive.operations.retention import Waiting
from redrive.outcomes.inventory import State
from redrive.settings import read_settings

HOSTILE = f"<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{{{7*7}}}}{EVIL}"
"""A script, an attribute, a template, and what a terminal obeys."""
BODY = json.dumps({"note": HOSTILE}).encode()
ERROR_MESSAGE = "__connect.errors.exception.message"
BY_SCRIPT = {"HX-Request": "true"}
"""What a page adds when it asks for its list."""


@dataclass
class SomeUser:
    """Everybody is one user, whose role a test chooses."""

    role: Role = Role.ADMIN
    name: str = "ann"
    scope: Scope = EVERYTHING

    async def user_of(self, request: Request) -> User:  # noqa: ARG002 - one for all
        return User(self.name, (Grant(self.role, self.scope),))


@pytest.fixture
def user() -> SomeUser:
    return SomeUser()


@pytest.fixture
def topic(kafka: KafkaClient, folder: Path) -> str:
    """The dead-letter topic of a job with three messages that remain, two with hostile texts."""
    name = kafka.unique_name("console").replace("_", "-")
    dead = kafka.topic("dlq", config={"max.message.bytes": str(16 << 20)})
    headers = [(ERROR_MESSAGE, HOSTILE.encode())]
    kafka.produce(dead, [{"value": BODY, "key": HOSTILE.encode(), "headers": headers}] * 3)
    write_settings(
        folder, handlers={"orders": dead}, rules=TABLE, application=name,
        servers=kafka.bootstrap_servers, more='[mask]\npatterns = ["secret"]\n',
    )  # fmt: skip
    letters = [
        remaining(
            dead, number, detail=HOSTILE if number else "secret", consumer_group=HOSTILE,
            error_class=f"com.{HOSTILE}" if number else "com.secret", size=len(BODY),
            key=b64encode(HOSTILE.encode()).decode(), fields={"DESTQ": HOSTILE, "REASON": 2195},
        )
        for number in range(3)
    ]  # fmt: skip
    append(read_settings(CONFIG).job.ledger.path, rows(letters, partitions=1))
    return str(dead)


@pytest.fixture
def browser(topic: str, user: SomeUser) -> Iterator[TestClient]:
    with console(user, four_eyes_above=2, headers={"Accept": "text/html"}) as client:
        yield client


def post(browser: TestClient, path: str, **form: str) -> Any:
    """Sends a form as a page holds it."""
    page = browser.get("/").text
    (word,) = set(re.findall(r'name="word" value="([^"]+)"', page)) or {
        browser.cookies["redrive-form"]
    }
    return browser.post(path, data={"word": word, **form})


def command(*arguments: str) -> Any:
    done = redrive(*arguments, "--json", code=0)
    return json.loads(done.stdout)


def api(browser: TestClient, path: str, **parameters: str) -> Any:
    answer = browser.get(f"/api{path}", params=parameters, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def append_letter(number: int, topic: str, error: str | None, **more: Any) -> None:
    """Appends a dead letter to the ledger of ``topic``: at an offset from 3 on."""
    (row,) = rows([remaining(topic, number, error_class=error, **more)], partitions=1)
    append(read_settings(CONFIG).job.ledger.path, [row._replace(outcomes_offset=number)])


def test_every_figure_is_that_of_the_command(browser: TestClient, topic: str) -> None:
    answer = api(browser, "/status")
    printed = command("status")
    assert printed["handlers"] == answer["handlers"]
    assert printed["outcomes"] == answer["outcomes"]
    for state in [member.value for member in State]:
        shown = api(browser, "/groups", status=state)
        printed = command("groups", "--status", state)
        assert printed["total"] == shown["total"]
        assert printed["groups"] == [
            {name: group[name] for name in group if name not in {"condition", "trend"}}
            for group in shown["groups"]
        ]
        assert all(sum(group["trend"]) == group["count"] for group in shown["groups"])
        listed = command("ls", "--status", state)
        assert listed["dead_letters"] == api(browser, "/messages", status=state)["dead_letters"]
    place = f"{topic}:0:1"
    printed, shown = command("show", place), api(browser, f"/messages/{place}")
    assert printed == {name: shown[name] for name in printed}


def test_now_has_what_is_held_and_what_is_deleted_soon(
    browser: TestClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = browser.get("/").text
    assert "behind others" not in page
    assert "deleted soon" not in page
    append_letter(3, topic, "", result="parked", attempt=0)
    append_letter(4, topic, "", result="parked", attempt=1)
    soon = Waiting(
        topic=topic, is_own=False, messages=9, retention=604_800.0, expiring=1204, first=2e9
    )
    monkeypatch.setattr("redrive.command.status.expiring_of", lambda *_: (soon,))
    eventually(lambda: "behind others" in browser.get("/").text, "the console looks again")
    page = browser.get("/").text
    printed = command("status")
    (handler,) = printed["handlers"]
    assert (handler["parked"]["number"], handler["held"]) == (2, 1)
    assert api(browser, "/status")["expiring"] == printed["expiring"]
    assert printed["expiring"][0]["handler"] == handler["handler"]
    assert 'href="/groups?handler=orders&amp;status=held">1 behind others of their key' in page
    assert f"><p>up to 1,204 of {topic}<br>" in page
    shown = redrive("status").stdout
    assert "held" in shown


def test_curves_are_those_of_the_last_hour_and_day(browser: TestClient, topic: str) -> None:
    now = time.time()
    for number, age in enumerate((600, 5 * 3600, 2 * 86400), start=3):
        append_letter(number, topic, "", time=int(1000 * (now - age)))
    eventually(lambda: api(browser, "/status")["outcomes"] == 6, "the console looks again")
    rates = api(browser, "/status")["rates"]
    for span, seconds, ages in (("hour", 75, [600]), ("day", 1800, [600, 5 * 3600])):
        shown = rates[span]
        assert shown["seconds"] == seconds
        began = datetime.fromisoformat(shown["since"]).timestamp()
        wanted = [0] * 48
        for age in ages:
            wanted[int((now - age - began) // seconds)] += 1
        assert shown["came"] == shown["results"]["remains"] == wanted
    (handler,) = command("status")["handlers"]
    assert handler["results"]["last_hour"] == {"remains": 1}


def test_each_hour_leads_to_the_failures_that_it_counts(browser: TestClient, topic: str) -> None:
    now = int(1000 * time.time())
    for number, hours in enumerate((0, 5, 5, 47, 49), start=3):
        append_letter(number, topic, "com.secret", time=now, failed_at=now - hours * 3_600_000)
    failures = api(browser, "/failures")
    assert (failures["total"], failures["exceptions"]) == (4, [{"name": "com.***", "count": 4}])
    assert [hour["count"] for hour in failures["hours"] if hour["count"]] == [1, 2, 1]
    svg = browser.get("/failures").text.partition("</svg>\n<details")[0]
    links = map(html.unescape, re.findall(r'<a id="at-.*?" href="(.*?)"', svg))
    assert [browser.get(f"/api{link}").json()["total"] for link in links] == [1, 2, 1]


def test_without_failures_the_chart_is_a_sentence(browser: TestClient) -> None:
    assert "No dead letter failed in the last 48 hours." in browser.get("/failures").text


@pytest.mark.usefixtures("away")
def test_what_happened_is_not_nothing_if_nobody_knows_it(user: SomeUser) -> None:
    with console(user, headers={"Accept": "text/html"}) as client:
        page = client.get("/").text
    assert page.count("It is not known what happened") == 2
    assert "Nothing happened" not in page


def test_a_curve_has_a_bar_for_each_number_but_0() -> None:
    assert 'd="M60.0 24v-24.0h59.4V24z"' in curve([0, 5], "came")
    assert curve([1, 2, 0, 3], "came").count("M") == 3
    assert 'd=""' in curve([0], "came")


@given(
    filters=st.fixed_dictionaries(
        {},
        optional={
            "status": st.sampled_from([state.value for state in State]),
            "rule": st.sampled_from(["2", "3"]),
            "handler": st.sampled_from(["orders", "nobody"]),
            "since": st.sampled_from(["1d", "2020-01-01"]),
            "older_than": st.sampled_from(["1d", "2020-01-01"]),
            "looked_since": st.sampled_from(["1d", "2020-01-01"]),
            "limit": st.sampled_from(["1", "2"]),
            "where": st.sampled_from(["hop = 0", "detail = 'secret'", "error_class LIKE 'com%'"]),
        },
    )
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_choice_of_messages_is_that_of_the_command(
    browser: TestClient, filters: dict[str, str]
) -> None:
    options = [
        part for item in filters.items() for part in (f"--{item[0].replace('_', '-')}", item[1])
    ]
    shown = api(browser, "/messages", **filters)
    printed = command("ls", *options)
    assert printed == {name: shown[name] for name in printed}
    shown = api(browser, "/messages", **filters, page="2")
    printed = command("ls", *options, "--page", "2")
    assert printed == {name: shown[name] for name in printed}
    shown = api(browser, "/groups", **filters)
    printed = command("groups", *options)
    assert printed["total"] == shown["total"]
    assert sorted(group["count"] for group in printed["groups"]) == sorted(
        group["count"] for group in shown["groups"]
    )
    is_cut = len(shown["groups"]) == int(filters.get("limit", "0"))
    assert is_cut or sum(group["count"] for group in shown["groups"]) == shown["total"]


def test_a_list_is_asked_for_by_its_page(browser: TestClient, topic: str) -> None:
    for path in ("/groups", "/messages"):
        place = f"{path}?status=all&destq={quote(HOSTILE)}"
        page = browser.get(place).text
        assert 'aria-busy="true"' in page
        assert 'hx-trigger="load, ' in page
        assert topic not in page
        assert "Make a plan" in page
        (link,) = re.findall(r'<noscript>.*href="([^"]+)"', page)
        whole = browser.get(html.unescape(link))
        for response in (whole, browser.get(place, headers=BY_SCRIPT)):
            assert topic in response.text
            assert "aria-busy" not in response.text


@pytest.mark.parametrize(
    ("page", "again"),
    [
        ("/", ", every 5s"),
        ("/plans", ", every 5s"),
        ("/network", ", every 5s"),
        ("/groups", ""),
        ("/groups?since=2h", ", every 60s"),
        ("/messages?older_than=2h", ", every 60s"),
    ],
)
def test_what_changes_without_the_job_is_asked_for_again(
    browser: TestClient, page: str, again: str
) -> None:
    text = browser.get(page, headers=BY_SCRIPT).text
    assert f'hx-trigger="changed from:body{again}"' in text


def test_a_list_that_fails_says_why_in_its_place(browser: TestClient) -> None:
    assert 'aria-busy="true"' in browser.get("/groups?where=no_column").text
    response = browser.get("/groups?where=no_column", headers=BY_SCRIPT)
    assert response.status_code == 400
    assert re.search(r'<div id="live">\s*<p class="bad" role="alert">[^<]*no_column', response.text)


def test_bodies_are_searched_as_by_the_command_and_once(browser: TestClient) -> None:
    shown = api(browser, "/messages", body_text="ALERT(1)", key=HOSTILE)
    printed = command("ls", "--body-text", "ALERT(1)", "--key", HOSTILE)
    assert printed == {name: shown[name] for name in printed}
    page = browser.get("/messages?body_text=ALERT(1)", headers=BY_SCRIPT).text
    assert "3 bodies looked at: 3 match." in page
    assert 'hx-trigger="never"' in page
    assert [(line["action"], line["about"]) for line in audited()] == [
        ("search bodies", "ALERT(1)")
    ] * 2


@pytest.mark.parametrize(
    "choice", ["since=tomorrow", "older_than=9w9", "key=0xz", "rule=x", "reason=no", "body=17"]
)
def test_a_wrong_filter_is_marked_in_its_field(browser: TestClient, choice: str) -> None:
    name, _, value = choice.partition("=")
    page = browser.get(f"/groups?{choice}&topic=orders*")
    assert page.status_code == 400
    assert "busy" not in page.text
    [(marked, said)] = re.findall(
        '<input name="([^"]+)"[^>]* aria-inv.*?<span.*?>(.*?)<', page.text
    )
    assert (marked, value in said) == (name, True)


def test_a_group_leads_to_its_messages_unless_that_would_show_a_secret(browser: TestClient) -> None:
    groups = api(browser, "/groups")["groups"]
    assert sorted((group["count"], bool(group["condition"])) for group in groups) == [
        (1, False), (2, True)
    ]  # fmt: skip
    for group in groups:
        if group["condition"]:
            answer = api(browser, "/messages", where=group["condition"])
            assert answer["total"] == group["count"]


def test_a_message_leads_to_all_with_its_cause(browser: TestClient, topic: str) -> None:
    groups = {group["count"]: group for group in api(browser, "/groups")["groups"]}
    answer = api(browser, f"/messages/{topic}:0:1")["group"]
    assert answer == groups[2]["condition"]
    assert api(browser, "/messages", where=answer)["total"] == 2
    assert api(browser, f"/messages/{topic}:0:0")["group"] == ""


def test_ten_megabytes_of_json_are_shown_and_harmless(
    kafka: KafkaClient, browser: TestClient, topic: str
) -> None:
    body = json.dumps({"notes": [HOSTILE] * (10_000_000 // len(HOSTILE))}).encode()
    kafka.produce(topic, [{"value": body}])
    page = browser.get(f"/messages/{topic}:0:3")
    assert page.status_code == 200
    assert len(page.content) < 1_000_000
    assert "<script>" not in page.text
    assert "<script>alert(1)" in html.unescape(page.text)
    assert browser.get(f"/api/messages/{topic}:0:3/body").content == body


def test_hostile_texts_are_shown_and_harmless(browser: TestClient, topic: str) -> None:
    pages = ("/", "/groups", "/messages", f"/messages/{topic}:0:1", "/plans", "/network",
             "/acknowledgements",
             f"/groups?where={quote(HOSTILE)}", f"/messages/{quote(HOSTILE, safe='')}",
             f"/plans/{quote(HOSTILE, safe='')}")  # fmt: skip
    for page in (*pages, *(f"{listing}?whole=1" for listing in ("/groups", "/messages"))):
        text = browser.get(page).text
        assert text.startswith("<!doctype html>")
        assert "<script>" not in text
        assert "<img" not in text
        assert not {"\x1b", "\u202e", "\x07"} & {*text}
        assert "secret" not in html.unescape(text)
    shown = html.unescape(browser.get(f"/messages/{topic}:0:1").text)
    assert "<script>alert(1)" in shown
    assert "{{7*7}}" in shown


def test_long_names_are_cut_with_the_whole_as_a_tooltip(browser: TestClient, topic: str) -> None:
    """One dead letter may name a topic, a group or an exception of 20,000 characters."""
    name = "n" * 20_000
    append_letter(3, topic, f"com.{name}", fields={"DESTQ": name}, consumer_group=name)
    eventually(lambda: name in browser.get("/groups?whole=1").text, "the console looks again")
    for page in ("/groups?whole=1", "/messages?whole=1", "/network"):
        text = browser.get(page).text
        assert f'title="{name}"' in text
        assert not [shown for shown in re.findall(r">([^<]*)<", text) if len(shown) > 1_000]


def test_each_cell_of_a_list_names_its_column(browser: TestClient) -> None:
    for page in ("/", "/groups?whole=1", "/messages?whole=1"):
        text = browser.get(page).text
        rows = re.search(r'<table class="cards">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
        assert rows
        assert ' data-label="' in rows[1]
        unnamed = re.findall(r"<td>(.*?)</td>", rows[1], re.DOTALL)
        assert not [cell for cell in unnamed if cell and "#back" not in cell]


TEMPLATES = [template for template in files("redrive.console").joinpath("templates").iterdir()
             if "<table" in template.read_text()]  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_rows_of_every_list_are_cards(template: Traversable) -> None:
    text = template.read_text()
    assert {*re.findall("<table.*?>", text)} == {'<table class="cards">'}
    assert text.count("<td>") == 2 * text.count("<td></td>")  # of columns without a name


@pytest.mark.parametrize("where", ["__consumer_offsets", "live", "control"])
def test_topics_that_are_no_dead_letters_are_not_shown(
    browser: TestClient, kafka: KafkaClient, where: str
) -> None:
    job = read_settings(CONFIG).job
    names = {"live": kafka.unique_name("live"), "control": job.control_topic}
    if where in names:
        kafka.create(names[where])
        kafka.produce(names[where], [{"value": b"private"}])
    for path in ("/messages/{}:0:0", "/api/messages/{}:0:0", "/api/messages/{}:0:0/body"):
        answer = browser.get(path.format(names.get(where, where)))
        assert answer.status_code == 404
        assert "private" not in answer.text


@pytest.mark.parametrize(
    "choice",
    [
        {"limit": "-5"}, {"limit": "0"}, {"limit": "9" * 20}, {"page": "9" * 20}, {"page": "0"},
        {"rule": "9" * 20}, {"rule": "9" * 5000}, {"reason": "9" * 20}, {"reason": "9" * 5000},
        {"since": "9" * 20}, {"older_than": "999999w"}, {"key": "0xz"}, {"status": "?"},
        {"where": "1"}, {"where": "reason = 'x'"}, {"where": "("}, {"handler": "\0"},
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_is_an_error_of_the_user(
    browser: TestClient, choice: dict[str, str]
) -> None:
    answer = browser.get("/api/messages", params=choice, headers={"Accept": "application/json"})
    assert answer.status_code in ({200} if "handler" in choice else {400}), answer.text
    assert "rebuild" not in answer.text


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


def test_nobody_sees_no_page(browser: TestClient, user: SomeUser) -> None:
    user.role = Role.NOBODY
    for path in ("/", "/groups", "/messages", "/messages/x", "/plans", "/plans/x", "/live"):
        assert browser.get(path).status_code == 403


def test_a_large_plan_takes_two_people(browser: TestClient, user: SomeUser, topic: str) -> None:
    made = post(browser, "/api/plans", status="open", to="queue", queue="orders.repair")
    assert made.status_code == 303
    page = made.headers["Location"]
    assert "3 messages to orders.repair" in browser.get(page).text
    plan = page.removeprefix("/plans/")
    refused = post(browser, f"/api{page}/apply", because="ticket 1")
    assert refused.status_code == 403
    assert "another user than ann" in html.unescape(refused.text)
    user.name, user.role = "bob", Role.OPERATOR
    assert "needs an approver" in html.unescape(browser.get(page).text)
    assert post(browser, f"/api{page}/apply").status_code == 403
    user.role = Role.APPROVER
    assert "Apply to 3 messages" in browser.get(page).text
    (waiting,) = api(browser, "/plans")["plans"]
    assert (waiting["plan"], waiting["planned_by"]) == (plan, "ann")
    kept = read_settings(CONFIG).job.directory / "plans" / f"{plan}.json"
    assert kept.stat().st_mode & 0o777 == 0o600, "for its owner alone"
    content = json.loads(kept.read_bytes())
    assert content["messages"]["orders"] == {f"{topic}:0": [0, 1, 2]}
    assert post(browser, f"/api{page}/discard").headers["Location"] == "/plans"
    assert not kept.exists()
    assert browser.get(page).status_code == 400


def test_an_acknowledgement_leads_to_the_messages_of_its_selection(browser: TestClient) -> None:
    chosen = {"status": "remaining", "rule": "2", "where": "hop = 0", "destq": HOSTILE}
    chosen |= {"key": f"0x{HOSTILE.encode().hex()}", "since": "2020-01-01T00:00:00Z"}
    form = {"until": "7d", "note": "x"}
    for more in ({}, {"where": "detail <> 'secret'"}):
        done = post(browser, "/api/acknowledgements", **chosen | more, **form)
        assert done.status_code == 303, done.text
    answers = [
        acknowledgement["chosen"]
        for acknowledgement in api(browser, "/acknowledgements")["acknowledgements"]
    ]
    assert sorted(answers, key=bool) == [None, chosen]
    assert api(browser, "/messages", **chosen)["total"] == 3


def test_condition_is_completed_by_values_in_quotes(browser: TestClient) -> None:
    where = "detail = '"
    [completion] = api(browser, "/completions", where=where)["completions"]
    assert completion == where + HOSTILE.replace("'", "''") + "'"
    assert api(browser, "/messages", where=completion)["total"] > 0


FIXED = '[{"op": "replace", "path": "/note", "value": "fixed"}]'


@pytest.mark.parametrize(
    ("form", "options"),
    [
        (
            {"set_headers": "checked=yes\nby=ann"},
            ["--set-header", "checked=yes", "--set-header", "by=ann"],
        ),
        ({"drop_headers": ERROR_MESSAGE}, ["--drop-header", ERROR_MESSAGE]),
        ({"json_patch": FIXED}, ["--json-patch", "patch.json"]),
    ],
)
def test_a_plan_changes_messages_as_that_of_the_command(
    kafka: KafkaClient, browser: TestClient, form: dict[str, str], options: list[str]
) -> None:
    Path("patch.json").write_text(form.get("json_patch", ""))
    repair = kafka.topic("repair")
    made = post(browser, "/api/plans", to="queue", queue=repair, **form)
    assert made.status_code == 303, made.text
    shown = api(browser, made.headers["Location"])["plan"]
    printed = command("replay", "plan", "--to", repair, *options)
    for name in ("count", "changes", "warnings", "by_target"):
        assert printed[name] == shown[name], name
    assert all(
        change_of_message["lines"] or "nothing" in change_of_message["problem"]
        for change_of_message in printed["changes"]
    )
    page = browser.get(made.headers["Location"]).text
    assert "What changes in the messages" in page
    kept = read_settings(CONFIG).job.directory / f"{made.headers['Location'][1:]}.json"
    assert json.loads(kept.read_bytes())["edit"] == printed["edit"]


def test_a_plan_whose_edit_applies_to_no_message_says_so(
    kafka: KafkaClient, browser: TestClient
) -> None:
    patch = '[{"op": "remove", "path": "/nothing"}]'
    made = post(browser, "/api/plans", to="queue", queue=kafka.topic("repair"), json_patch=patch)
    assert "Nothing to do" in made.text
    assert "the edit applies to 0 of " in made.text


def test_one_message_is_edited_as_a_text(
    kafka: KafkaClient, browser: TestClient, topic: str
) -> None:
    bodies = (b'{"note": 1}', b"two\r\nlines")
    kafka.produce(topic, [{"value": body} for body in bodies])
    for number, body in enumerate(bodies, start=3):
        append_letter(number, topic, None, size=len(body))
    message = f"{topic}:0:3"
    order = {"message": message, "to": "queue", "queue": kafka.topic("repair")}
    text = page_text(post(browser, "/api/plans/text", **order).text)
    refused = post(browser, "/api/plans", edited=text.replace("\n", "\r\n"), **order)
    assert "is unchanged" in refused.text
    made = post(browser, "/api/plans", edited=text.replace('"note"', '"noted"'), **order)
    assert made.status_code == 303, made.text
    (changed,) = api(browser, made.headers["Location"])["plan"]["changes"]
    assert changed["message"] == message
    assert any("noted" in line for line in changed["lines"] if line.startswith("+"))
    other = post(browser, "/api/plans/text", **order | {"message": f"{topic}:0:4"})
    assert other.status_code == 400
    assert "line ends that a form does not keep" in other.text
    CONFIG.write_text(CONFIG.read_text().replace('"secret"', '"note"'))
    refused = post(browser, "/api/plans/text", **order)
    assert refused.status_code == 400
    assert "has values hidden by [mask]" in refused.text


def page_text(page: str) -> str:
    match = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert match is not None, page
    return html.unescape(match[1])


def test_a_body_that_is_no_text_is_shown_in_hexadecimal(
    browser: TestClient, topic: str, bootstrap_servers: str
) -> None:
    send_records(bootstrap_servers, topic, [{"value": b"\xff\x00redrive", "key": b"\xfe"}])
    page = browser.get(f"/messages/{topic}:0:3")
    assert page.status_code == 200
    assert "00000000  ff 00 72 65" in page.text


TOPOLOGY = '[topology]\nfiles = ["."]\n'
MQ = """\
DEFINE QLOCAL(ORDERS)
DEFINE QALIAS(OLD) TARGET(ORDERS)
DEFINE QLOCAL(B) USAGE(XMITQ)
DEFINE CHANNEL(TO/B) CHLTYPE(SDR) CONNAME('b') XMITQ(B)
"""


@pytest.fixture
def manager(kafka: KafkaClient, folder: Path) -> str:
    """The queue manager A of a job that moves puts, beside B; its name."""
    name = kafka.queue_manager()
    Path(f"{name}.mqsc").write_text(MQ)
    Path("B.mqsc").write_text("DEFINE QLOCAL(PAYROLL)\nDEFINE CHANNEL(TO/B) CHLTYPE(RCVR)\n")
    write_settings(folder, application=f"app{name}", servers=kafka.bootstrap_servers, more=TOPOLOGY)
    return name


@pytest.fixture
def clerk(manager: str, user: SomeUser) -> Iterator[TestClient]:
    with console(user, headers={"Accept": "text/html"}) as client:
        yield client


def test_channels_and_puts_are_stopped_and_started(
    clerk: TestClient, manager: str, user: SomeUser
) -> None:
    user.role = Role.VIEWER
    names = {"queue_manager": manager, "name": "TO/B"}
    assert post(clerk, "/api/channels/stop", **names).status_code == 403
    assert "/api/channels" not in clerk.get(f"/network?queue_manager={manager}").text
    user.role = Role.OPERATOR
    for word, state in (("stop", "stopped"), ("start", "running")):
        done = post(clerk, f"/api/channels/{word}", **names)
        assert done.headers["Location"] == f"/network?queue_manager={manager}"
        (channel,) = command("channel", "status", manager)
        assert channel["state"] == state
    names = {"queue_manager": manager, "name": "ORDERS"}
    for word, is_good in (("disable", False), ("enable", True)):
        assert post(clerk, f"/api/queues/{word}", **names).status_code == 303
        assert api(clerk, "/resolve", put="OLD", at=manager)["is_good"] is is_good
        (shown_manager,) = command("topology", "show", "--queue-manager", manager)["queue_managers"]
        (orders,) = (queue for queue in shown_manager["queues"] if queue["name"] == "ORDERS")
        assert orders["put_enabled"] is is_good
    wrong = post(clerk, "/api/channels/stop", queue_manager=manager, name="TO.C")
    assert wrong.status_code == 400
    assert "has no channel TO.C" in wrong.text
    actions = [(entry["action"], entry["about"]) for entry in audited()]
    assert actions[:2] == [
        (f"{verb} a channel", f"TO/B of {manager}") for verb in ("stop", "start")
    ]


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    """Every connection that is accepted sends at once (TCP_NODELAY)."""
    with (
        open_listener("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_table_is_tried_before_it_goes_live(browser: TestClient, user: SomeUser) -> None:
    shown = browser.get("/tables/orders").text
    assert "TOPIC(&#39;no*&#39;) ACTION(IGNORE)" in shown
    broken = post(browser, "/api/tables/orders/check", text="ACTION(RETRI)\r\n").text
    assert "RETRI" in broken, broken
    assert "error" in broken, broken
    text = "DIALECT(KAFKA)\nTOPIC('no*') ACTION(DISCARD)\nACTION(RETRY)\n"
    Path("new.rul").write_text(text)
    headers = {"Accept": "application/json", "X-Redrive-Form": browser.cookies["redrive-form"]}
    tried = browser.post("/api/tables/orders/try", data={"text": text}, headers=headers).json()
    (trial,) = tried["trials"]
    result = redrive("diff", "orders.rul", "new.rul")
    assert result.stdout.splitlines() == tried["difference"]
    assert any("orders.rul, as edited" in line for line in trial["plan"])
    planned = ("plan", "new.rul", "--over", "remaining", "--over", "parked", "--json")
    result = json.loads(redrive(*planned).stdout)
    kept = {"messages", "changed", "changes", "matrix", "rules", "newly_discarded"}
    assert {name: result[name] for name in kept} == {name: trial["what_if"][name] for name in kept}
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
            assert f"{address} cannot be bound: Address already in use" in second.stderr
            assert "Traceback" not in second.stderr
            eventually(lambda: answers(address), "the console answers")
        finally:
            first.send_signal(number)
        assert first.wait(PATIENCE) == 0


def test_groups_that_differ_in_an_empty_field_only_are_shown(
    browser: TestClient, topic: str
) -> None:
    append_letter(7, topic, None)
    append_letter(8, topic, "")
    assert browser.get("/groups").status_code == 200
    groups = [group for group in api(browser, "/groups")["groups"] if not group["error_class"]]
    assert [group["count"] for group in groups] == [1, 1]
