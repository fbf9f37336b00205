"""What no request can do: come in by force or by a trick, or reach what is out of scope."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from kafka.admin import NewTopic
from starlette.testclient import TestClient
from tests.commands import redrive
from tests.conftest import PATIENCE, KafkaClient, eventually
from tests.console.conftest import CONFIG, TABLE, audited, console, form_of, settings_file
from tests.console.test_pages import SomeUser, api, command, post
from tests.outcomes.samples import append, remaining, rows

from redrive.checkpoints.tables import KeptTable, Layout
from redrive.command import restart as restart_command
from redrive.console import documents, security, tables
from redrive.console.access import EVERYTHING, Grant, Role, Scope, SignedInBy, User
from redrive.console.documents import Live
from redrive.console.logins import Limit, Logins
from redrive.console.server import console_application, open_listener
from redrive.engine.breaker import BreakerState
from redrive.engine.commands import Replay, Span
from redrive.listener import BACKLOG
from redrive.messages import TopicPartition
from redrive.operations.restart import RestartAnswer
from redrive.operations.states import ensure_topics, write_states
from redrive.operations.supervision import Activity, SupervisionState, supervision_file
from redrive.operations.supervision import write as report
from redrive.outcomes.open_letters import write_open_letters
from redrive.settings import read_settings
from redrive.what_if import Question, WhatIf
from redrive.what_if.answer import TableActions

SCRIPT = {"Accept": "application/json"}
TOKENS = {
    hashlib.sha256(name.encode()).hexdigest(): User(name, (Grant(Role.ADMIN),), SignedInBy.TOKEN)
    for name in ("ann", "bob")
}
MARKS = ("com.Hidden", "hidden-group", "HIDDEN*", "hidden body")
"""What is known of the handler that is out of scope."""


# Coming in


async def ask(*hosts: bytes) -> int:
    """The status of a request with these headers ``Host``, as they are."""
    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http", "method": "GET", "path": "/static/icon.svg", "raw_path": b"", "scheme":
        "http", "query_string": b"", "headers": [(b"host", host) for host in hosts],
        "client": ("192.0.2.1", 1), "server": ("here", 80), "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    application = console_application(CONFIG, access=SomeUser(), hosts={"here", "::1"})
    await application(scope, receive, send)
    return statuses[0]


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("host", [b"here", b"HERE", b"here:8470", b"[::1]", b"[::1]:8470"])
def test_the_names_of_the_console_are_taken(host: bytes) -> None:
    assert asyncio.run(ask(host)) == 200


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    "hosts",
    [
        (b"evil@here",), (b"",), (b"here:80@evil",), (b"here ",), (b" here",), (b"here.",), (),
        (b"here", b"here"), (b"here", b"evil"), (b"evil#here",), (b"here/evil",), (b"here:",),
        (b"here:123456",), (b"here:evil",), (b"here\x00",), (b"here\n",), (b"::1",), (b"evil",),
        (b"here,evil",), (b"h\xe9re",),
    ],
)  # fmt: skip
def test_any_other_header_host_is_refused(hosts: tuple[bytes, ...]) -> None:
    assert asyncio.run(ask(*hosts)) == 421


@pytest.mark.usefixtures("away")
def test_guesses_of_tokens_end_by_address() -> None:
    now = [0.0]
    logins = Logins(TOKENS, failures=Limit(3, lambda: now[0]))
    browser = console(logins, client=("192.0.2.1", 1))
    word = form_of(browser)
    for number in range(2):
        response = browser.post("/sign-in", data={"word": word, "token": f"guess {number}"})
        assert response.status_code == 401
    guess = {**SCRIPT, "Authorization": "Bearer guess"}
    assert browser.get("/api/tables/orders", headers=guess).status_code == 401
    for answer in (
        browser.get("/api/tables/orders", headers=guess),
        browser.post("/sign-in", data={"word": word, "token": "guess"}),
    ):
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "60"
    right = {**SCRIPT, "Authorization": "Bearer ann"}
    assert browser.get("/api/tables/orders", headers=right).status_code == 200
    assert browser.post("/sign-in", data={"word": word, "token": "ann"}).status_code == 303
    now[0] = 60.0
    assert browser.get("/api/tables/orders", headers=guess).status_code == 401


@pytest.mark.usefixtures("away")
def test_clients_guess_by_address_or_ipv6_network_or_as_an_ingress_names_them() -> None:
    """A customer has 2**64 addresses to guess from."""
    networks = (ipaddress.ip_network("10.0.0.0/24"),)
    logins = Logins(TOKENS, failures=Limit(1), forwarded_from=networks)
    guess = {**SCRIPT, "Authorization": "Bearer guess", "X-User": "ann"}
    for peer, client, status in (
        ("10.0.0.7", "192.0.2.1", 401), ("10.0.0.7", "192.0.2.1", 429),
        ("10.0.0.7", "192.0.2.2", 401), ("198.51.100.1", "192.0.2.3", 401),
        ("198.51.100.1", "192.0.2.4", 429), ("2001:db8::1", "", 401),
        ("2001:db8::2", "", 429), ("2001:db8:0:1::1", "", 401),
    ):  # fmt: skip
        script = console(logins, client=(peer, 1))
        forwarded = {"X-Forwarded-For": f"ann, {client}"}
        answer = script.get("/api/status", headers=guess | forwarded)
        assert answer.status_code == status, (peer, client)


@pytest.mark.usefixtures("away")
def test_a_user_signs_in_so_often_and_no_more() -> None:
    logins = Logins(TOKENS, sign_ins=Limit(2))
    for number, (token, status) in enumerate(
        [("ann", 303), ("ann", 303), ("ann", 429), ("bob", 303)]
    ):
        browser = console(logins, client=(f"192.0.2.{number}", 1))
        response = browser.post("/sign-in", data={"word": form_of(browser), "token": token})
        assert response.status_code == status
        assert ("Retry-After" in response.headers) == (status == 429)


def test_limits_forget_the_oldest_rather_than_fill_the_memory() -> None:
    limit = Limit(1, lambda: 0.0)
    for number in range(10_002):
        limit.count(str(number))
    assert limit.wait("0") == limit.wait("1") == 0
    assert limit.wait("10001") == 60


@pytest.mark.usefixtures("away")
def test_a_form_of_another_site_is_refused_before_and_after_the_sign_in() -> None:
    browser = console(Logins(TOKENS))
    assert browser.post("/sign-in", data={"token": "ann"}).status_code == 403
    word = form_of(browser)
    foreign = {"Origin": "https://evil.example"}
    sent = {"word": word, "token": "ann"}
    assert browser.post("/sign-in", data=sent, headers=foreign).status_code == 403
    assert browser.post("/sign-in", data=sent).status_code == 303
    paths = browser.get("/api/openapi.json").json()["paths"]
    actions = [path for path, methods in paths.items() if "post" in methods]
    assert len(actions) >= 12
    for path in [*actions, "/sign-out"]:
        for form, headers in (({}, {}), ({"word": "guessed"}, {}), ({"word": word}, foreign)):
            response = browser.post(path, data=form, headers={**SCRIPT, **headers})
            assert response.status_code == 403, (path, form)
            assert "has expired" in response.text


@pytest.mark.usefixtures("away")
def test_what_a_path_holds_begins_no_header_and_no_line_of_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = console(Logins(TOKENS), headers={**SCRIPT, "Authorization": "Bearer ann"})
    evil = "a%0D%0ASet-Cookie:%20x=1%0D%0A"
    with caplog.at_level("DEBUG"):
        for path in (f"/api/plans/{evil}/discard", f"/api/tables/{evil}/check", f"/{evil}"):
            response = script.post(path, data={"text": ""}, headers={"Accept": "text/html"})
            assert not [
                header for header in response.headers.values() if "\n" in header or "\r" in header
            ]
            assert "x" not in response.cookies
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("redrive")]
    assert all(line.isprintable() for line in lines)


@contextlib.contextmanager
def served(access: Any) -> Iterator[int]:
    """A console behind its real server; the port."""
    with open_listener("127.0.0.1", 0) as listener:
        application = console_application(
            CONFIG, access=access, hosts={"127.0.0.1"}, listener=listener
        )
        config = uvicorn.Config(application, log_level="error", loop="asyncio", backlog=BACKLOG)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            eventually(lambda: server.started, "the console serves")
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def whole_answer(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    content = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            content += part
    return content


@pytest.mark.usefixtures("away")
def test_a_body_that_trickles_ends_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 1.0)
    over = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(b"a")

    with served(SomeUser()) as port:
        head = b"POST /api/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type:"
        head += b" application/x-www-form-urlencoded\r\nContent-Length: 9\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(head + b"Connection: close\r\n\r\nword=aaaa")
            assert whole_answer(connection).startswith(b"HTTP/1.1 403 ")
        head = head.replace(b"Length: 9", b"Length: 100000")
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(head + b"\r\nword=")
            thread = threading.Thread(target=trickle, args=(connection,))
            thread.start()
            answer = whole_answer(connection)
            over.set()
            thread.join()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the request took too long" in answer


@pytest.mark.usefixtures("away")
def test_a_viewer_is_served_beside_connections_that_ask_nothing() -> None:
    with served(SomeUser()) as port, contextlib.ExitStack() as stack:
        for _ in range(700):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        client.request("GET", "/static/console.css")
        assert client.getresponse().status == 200
        client.close()


@pytest.mark.usefixtures("away")
def test_a_body_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    somebody, script = console(SomeUser(role=Role.NOBODY)), console(SomeUser())
    assert somebody.post("/sign-in", content=b"a" * 65_537).status_code == 413
    assert script.post("/api/plans", content=b"a" * 65_537).status_code != 413
    monkeypatch.setattr(security, "LARGEST_BODY", 1_000)
    assert script.post("/api/plans", data={"where": "a" * 1_000}).status_code == 413
    assert script.post("/api/plans", data={"where": "a" * 900}).status_code == 403


# What is out of scope


@pytest.fixture
def topics_of_two(kafka: KafkaClient, folder: Path) -> tuple[str, str]:
    """The dead-letter topics of two handlers, with messages that remain: three and two."""
    own, other = kafka.topic("mine"), kafka.topic("other")
    settings_file(kafka.bootstrap_servers, kafka.unique_name("scope").replace("_", "-"), own, other)
    letters = []
    for handler, topic, count in (("orders", own, 3), ("billing", other, 2)):
        is_hidden = handler == "billing"
        dead = {
            "value": b"hidden body" if is_hidden else b"{}",
            "headers": [("__connect.errors.exception.message", b"")],
        }
        kafka.produce(topic, [dead] * count)
        letters += [
            remaining(
                topic, number, handler=handler,
                error_class="com.Hidden" if is_hidden else "com.Seen",
                consumer_group="hidden-group" if is_hidden else "group",
            )
            for number in range(count)
        ]  # fmt: skip
    job = read_settings(CONFIG).job
    kafka.create(job.outcomes_topic)
    kafka.produce(
        job.outcomes_topic,
        [{"value": json.dumps(letter).encode()} for letter in letters],
    )
    ensure_topics(job)
    kept = [
        KeptTable(
            handler=handler.identity.name, hash=handler.identity.name[0] * 64,
            text=handler.rules, name="a",
            first_run=1.0, first_by="ann@shop", last_run=2.0, last_by="ann@shop",
            layouts=(Layout(1.0, (2, 3)),),
        )
        for handler in job.handlers
    ]  # fmt: skip
    tables = [{"key": record.key.encode(), "value": record.entry()} for record in kept]
    kafka.produce(job.tables_topic, tables)
    report(supervision_file(job), told_of(other))
    # The last one is on the topic only, where the ledger has not read it yet.
    append(job.ledger.path, rows(letters[:-1], partitions=1))
    write_open_letters(job.ledger.path)
    return str(own), str(other)


def told_of(topic: str) -> SupervisionState:
    """What a job says of itself that is all about one handler."""
    breaker = BreakerState(
        handler="billing", rule_line=2, target="com.Hidden", group="hidden-group", state="open",
        since=1.0, why="hidden body",
    )  # fmt: skip
    return SupervisionState(
        time=time.time(), pid=os.getpid(), state=Activity.STALLED, since=1.0, step="commit",
        lane=f"{topic}:0", cause=f"hidden body of {topic}", clusters="hidden body",
        forwards={"hidden body": 1}, refused="hidden body", stopped={topic: "com.Hidden"},
        breakers=(breaker,),
    )  # fmt: skip


@pytest.fixture
def user(topics_of_two: tuple[str, str]) -> SomeUser:
    """A user of every role for the topic of orders, which a test may change."""
    return SomeUser(scope=Scope(frozenset({topics_of_two[0]})))


@pytest.fixture
def browser(user: SomeUser) -> Iterator[TestClient]:
    with console(user, headers={"Accept": "text/html"}) as client:
        yield client


ADMIN = SomeUser(name="root")


@pytest.fixture
def chief(topics_of_two: tuple[str, str]) -> Iterator[TestClient]:
    with console(ADMIN, headers={"Accept": "text/html"}) as client:
        yield client


def test_no_route_shows_what_is_out_of_scope(
    browser: TestClient, chief: TestClient, topics_of_two: tuple[str, str]
) -> None:
    """Each of the OpenAPI document, as JSON and as a page, for a thing of another handler."""
    other = topics_of_two[1]
    made = post(chief, "/api/plans", status="open", handler="billing", note="x")
    names = {"handler": "billing", "identity": f"{other}:0:0"}
    shown, paths = [], api(chief, "/openapi.json")["paths"]
    for path, methods in paths.items():
        if "get" not in methods:
            continue
        is_plan = path.startswith("/api/plans/")
        found = path.format(
            **names | ({"identity": made.headers["Location"][7:]} if is_plan else {})
        )
        page = found.removeprefix("/api").replace("/status", "/")
        for address in (found, page):
            answer, whole = browser.get(address), chief.get(address)
            if any(mark in whole.text for mark in MARKS):
                shown.append(address)
            assert not [mark for mark in MARKS if mark in answer.text], address
            if "{" not in path:
                assert other not in answer.text, address
                assert "billing" not in answer.text, address
            is_refused = "may see only some topics" in answer.text
            assert is_refused == methods["get"]["x-whole-job"], address
            assert (answer.status_code == 403) == is_refused, (address, answer.text)
    assert len(shown) >= 8, shown  # the marks are there to be seen


def test_what_is_out_of_scope_is_answered_as_what_does_not_exist(
    browser: TestClient, chief: TestClient, topics_of_two: tuple[str, str]
) -> None:
    made = post(chief, "/api/plans", status="open", handler="billing")
    plan = made.headers["Location"].removeprefix("/plans/")
    message = f"{topics_of_two[1]}:0:0"
    pairs = {
        "/api/plans/": ("identity", plan, "0123456789ab"),
        "/api/messages/": ("identity", message, "nothing:0:0"),
        "/api/acknowledgements/": ("identity", "01234567", "12345678"),
        "/api/tables/": ("handler", "billing", "nobody"),
    }
    browser.get("/")
    form = {"word": browser.cookies["redrive-form"], "text": TABLE}
    tried = 0
    for path, methods in api(browser, "/openapi.json")["paths"].items():
        for method in methods if "{" in path else ():
            prefix = next(pair for pair in pairs if path.startswith(pair))
            name, *values = pairs[prefix]
            answers = []
            for value in values:
                data = None if method == "get" else form
                response = browser.request(
                    method, path.replace(f"{{{name}}}", value), headers=SCRIPT, data=data
                )
                answers.append((response.status_code, response.text.replace(value, "?")))
            assert answers[0] == answers[1], (method, path)
            assert answers[0][0] >= 400, (method, path)
            tried += 1
    assert tried >= 11
    both = "/api/difference?old={}&new=oooo"
    assert chief.get(both.format("bbbb"), headers=SCRIPT).status_code == 200
    tables = [browser.get(both.format(table), headers=SCRIPT) for table in ("bbbb", "cccc")]
    assert [table.status_code for table in tables] == [400, 400]
    assert tables[0].text.replace("bbbb", "?") == tables[1].text.replace("cccc", "?")
    ran = [
        browser.get(f"/api/tables/orders?ran={table}", headers=SCRIPT) for table in ("oooo", "bbbb")
    ]
    assert [response.status_code for response in ran] == [200, 400]
    kept = read_settings(CONFIG).job.directory / "plans" / f"{plan}.json"
    assert kept.exists()
    assert "HIDDEN*" in Path("billing.rul").read_text()


def test_each_role_may_do_what_the_document_says_in_its_scope(
    browser: TestClient, user: SomeUser
) -> None:
    browser.get("/")
    for path, methods in api(browser, "/openapi.json")["paths"].items():
        for method, described in methods.items():
            needed = Role[described["x-role"].upper()]
            assert (method == "get") == (needed is Role.VIEWER)
            for user.role in Role:
                answer = browser.request(method, path, headers=SCRIPT)
                error = answer.json().get("error", "")
                refusal = f"ann is {user.role.name.lower()}, and this needs {needed.name.lower()}"
                assert (error == refusal) == (user.role < needed), (method, path, user.role)
                if user.role < needed:
                    assert answer.status_code == 403
                elif described["x-whole-job"]:
                    # The word of a form is asked for after the scope.
                    assert "may see only some topics" in error, (method, path)
                    assert answer.status_code == 403


def test_figures_are_those_of_the_handlers_in_scope(
    browser: TestClient, chief: TestClient, topics_of_two: tuple[str, str]
) -> None:
    for path in ("/groups", "/messages"):
        printed = command({"/groups": "groups", "/messages": "ls"}[path], "--handler", "orders")
        shown = api(browser, path)
        assert shown["total"] == printed["total"] == 3
        assert api(chief, path)["total"] == 5
        assert api(browser, path, handler="billing")["total"] == 0
    (handler,) = api(browser, "/status")["handlers"]
    assert handler["handler"] == "orders"
    assert len(api(chief, "/status")["handlers"]) == 2
    assert len(api(browser, "/status")["handlers"]) == 1  # not a look of somebody else
    assert api(browser, "/status")["outcomes"] == 3
    assert api(browser, "/completions", where="error_class = 'com.")["completions"] == [
        "error_class = 'com.Seen'"
    ]


@dataclass
class Job:
    """A job whose status is what ``make`` returns for a scope."""

    make: Callable[[Scope], dict[str, Any]]
    looks: int = 0

    def status(self, scope: Scope) -> dict[str, Any]:
        self.looks += 1
        return self.make(scope)


def view_of(job: Job) -> Live:
    return Live(job)  # type: ignore[arg-type]


def test_a_look_at_the_job_serves_those_who_see_the_same_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "_BUSY", 1e9)
    job = Job(lambda scope: {"scope": scope})

    async def look() -> None:
        view = view_of(job)
        scopes = [EVERYTHING, Scope(frozenset({"a"})), Scope(frozenset({"a"})), EVERYTHING]
        assert [(await view.status(scope))["scope"] for scope in scopes] == scopes

    asyncio.run(look())
    assert job.looks == 2


def test_an_open_page_is_told_what_changed_since_it_was_made_and_nothing_else() -> None:
    remaining_messages = 0

    def status(_: Scope) -> dict[str, Any]:
        moment = time.time()
        handler = {"results": {"in_all": 0, "last_minute": moment, "last_hour": moment}}
        report = {"time": moment, "state": "running"}
        return {
            "time": moment, "rates": moment, "remaining": remaining_messages,
            "handlers": [handler], "supervision": report,
        }  # fmt: skip

    async def follow() -> None:
        nonlocal remaining_messages
        view = view_of(Job(status))
        assert view.state(EVERYTHING) == ""
        await view.status(EVERYTHING)
        events = view.events(EVERYTHING, view.state(EVERYTHING))
        retry = await anext(events)
        next_event = asyncio.ensure_future(anext(events))
        assert not (await asyncio.wait([next_event], timeout=1.5))[0]
        remaining_messages = 1
        changed = await next_event
        assert changed == f"event: changed\nid: {view.state(EVERYTHING)}\ndata: \n\n".encode()
        unknown = view.events(EVERYTHING, "")
        assert [await anext(unknown), await anext(unknown)] == [retry, changed]

    asyncio.run(follow())


@pytest.mark.parametrize(("seconds", "interval"), [(0.0, 0.2), (0.1, 0.3)])
def test_a_job_that_changes_is_looked_at_often_but_for_a_third_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, interval: float
) -> None:
    monkeypatch.setattr(documents, "_IDLE", 1e9)

    def change(_: Scope) -> dict[str, Any]:
        time.sleep(seconds)
        return {"remaining": job.looks}

    async def follow() -> None:
        events = view_of(job).events(EVERYTHING, "")
        await anext(events)
        began = time.monotonic()
        for _ in range(4):
            assert (await asyncio.wait_for(anext(events), PATIENCE)).startswith(b"event: changed")
        assert job.looks == 4
        assert time.monotonic() - began >= 3 * interval

    job = Job(change)
    asyncio.run(follow())


def test_a_job_at_rest_is_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_IDLE", 1e9)
    job = Job(lambda _: {"remaining": 0})

    async def follow() -> None:
        events = view_of(job).events(EVERYTHING, "")
        await anext(events)
        await anext(events)
        third = asyncio.ensure_future(anext(events))
        await asyncio.wait([third], timeout=1.0)
        assert job.looks == 2
        third.cancel()

    asyncio.run(follow())


@pytest.mark.usefixtures("away")
def test_a_file_that_is_the_table_of_other_handlers_says_so() -> None:
    browser = console(SomeUser())
    assert api(browser, "/tables/orders")["shared_with"] == []
    CONFIG.write_text(CONFIG.read_text().replace("billing.rul", "orders.rul"))
    assert api(browser, "/tables/orders")["shared_with"] == ["billing"]
    assert "The same file is the table of billing" in browser.get("/tables/orders").text


@pytest.mark.parametrize("table", ["ledger", "tail", "known", "outcomes"])
def test_a_condition_in_sql_reaches_nothing_out_of_scope(
    browser: TestClient, chief: TestClient, table: str
) -> None:
    where = f"EXISTS (SELECT 1 FROM {table} WHERE handler = 'billing')"  # noqa: S608 - an attack
    for client in (browser, chief):
        answer = client.get("/api/messages", params={"where": where}, headers=SCRIPT)
        assert answer.status_code == 400
        assert "cannot be part of a condition" in answer.text


def test_all_messages_are_acknowledged_within_the_scope_only(
    browser: TestClient, chief: TestClient
) -> None:
    done = post(browser, "/api/acknowledgements", until="7d", note="mine", status="open")
    assert done.status_code == 303
    (own,) = command("ack", "--list")
    assert (own["messages"], own["selection"]) == (3, "--handler orders")
    post(chief, "/api/acknowledgements", until="7d", note="everything", status="open")
    shown = api(browser, "/acknowledgements")["acknowledgements"]
    assert [acknowledgement["note"] for acknowledgement in shown] == ["mine"]
    (whole,) = (
        acknowledgement
        for acknowledgement in command("ack", "--list")
        if acknowledgement["note"] == "everything"
    )
    undone = post(browser, f"/api/acknowledgements/{whole['id']}/undo")
    assert undone.status_code == 400
    assert post(browser, f"/api/acknowledgements/{own['id']}/undo").status_code == 303
    (left,) = command("ack", "--list")
    assert left["note"] == "everything"
    refused = post(browser, "/api/acknowledgements", until="7d", note="x", handler="billing")
    assert refused.status_code == 400


def test_plans_have_messages_and_targets_in_scope_only(
    browser: TestClient, chief: TestClient, user: SomeUser, topics_of_two: tuple[str, str]
) -> None:
    own, other = topics_of_two
    refused = post(browser, "/api/plans", status="open", to="queue", queue=other)
    assert refused.status_code == 403
    assert "may not send messages to" in refused.text
    refused = post(browser, "/api/plans", status="open", to="queue", queue=f"{own}@QM")
    assert refused.status_code == 403
    made = post(browser, "/api/plans", status="open")
    kept = read_settings(CONFIG).job.directory / f"{made.headers['Location'][1:]}.json"
    assert [*json.loads(kept.read_bytes())["messages"]] == ["orders"]
    both = post(chief, "/api/plans", status="open").headers["Location"]
    elsewhere = post(
        chief, "/api/plans", status="open", handler="orders", to="queue", queue="orders.repair"
    ).headers["Location"]
    plans = {f"/plans/{plan['plan']}": plan for plan in api(browser, "/plans")["plans"]}
    assert plans.keys() == {made.headers["Location"], elsewhere}
    assert plans[made.headers["Location"]]["refusal"] == ""
    assert "not an operator of all topics" in plans[elsewhere]["refusal"]
    assert post(browser, f"/api{elsewhere}/apply").status_code == 403
    assert post(browser, f"/api{both}/apply").status_code == 400


@pytest.mark.usefixtures("topics_of_two")
def test_replays_are_those_of_the_handlers_in_scope(
    browser: TestClient, chief: TestClient, admin: Any
) -> None:
    job = read_settings(CONFIG).job
    topics = {handler.identity.name: handler.identity.replay_topic for handler in job.handlers}
    admin.create_topics(
        [NewTopic(topic, 1, 1) for topic in topics.values()], wait_for_metadata=True
    )
    own, other, both = "0" * 12, "1" * 12, "2" * 12
    about = {own: ["orders"], other: ["billing"], both: ["orders", "billing"]}
    replays = [
        Replay(
            plan=plan, operator="root", planned=3, instructed=3, is_complete=True,
            spans={TopicPartition(topics[name], 0): Span(first=0, count=0) for name in names},
        )
        for plan, names in about.items()
    ]  # fmt: skip
    write_states(job, [replay.entry() for replay in replays])
    assert {replay["plan"] for replay in api(chief, "/plans")["replays"]} == {*about}
    assert [replay["plan"] for replay in api(browser, "/plans")["replays"]] == [own]
    assert api(browser, f"/plans/{own}")["replay"]["planned"] == 3
    for plan in (other, both):
        assert browser.get(f"/plans/{plan}").status_code == 400
        assert post(browser, f"/api/plans/{plan}/cancel").status_code == 400
    assert post(browser, f"/api/plans/{own}/cancel", because="late").status_code == 303
    states = {replay["plan"]: replay["cancelled_by"] for replay in api(chief, "/plans")["replays"]}
    assert states == {own: "ann (late)", other: "", both: ""}


def test_within_its_scope_a_user_sees_and_tries_what_others_do(
    kafka: KafkaClient,
    browser: TestClient,
    chief: TestClient,
    user: SomeUser,
    topics_of_two: tuple[str, str],
) -> None:
    repair = kafka.topic("repair")
    user.scope |= Scope(frozenset({repair}))
    message = f"{topics_of_two[0]}:0:0"
    for path in (f"/messages/{message}", "/tables/orders"):
        assert api(browser, path) == api(chief, path)
    assert browser.get(f"/api/messages/{message}/body").content == b"{}"
    forms = {
        "/api/plans/text": {"message": message, "to": "queue", "queue": repair},
        "/api/tables/orders/try": {"text": TABLE.replace("IGNORE", "DISCARD")},
    }
    for path, form in forms.items():
        answers = []
        for reader in (browser, chief):
            reader.get("/")
            word = {"X-Redrive-Form": reader.cookies["redrive-form"]}
            answers.append(reader.post(path, data=form, headers={**SCRIPT, **word}))
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        own, whole = (
            {name: value for name, value in answer.json().items() if name != "trials"}
            for answer in answers  # less what tells how long it took
        )
        assert own == whole


OTHER = TABLE.replace("IGNORE", "DISCARD")


def in_what_waits(question: Question) -> WhatIf:
    """What a table would do: discard 120 messages of billing, none of orders."""
    count = 120 if question.handler == "billing" else 0
    return WhatIf(
        handler=question.handler, old=TableActions("a", "0", {}), new=TableActions("b", "1", {}),
        messages={"remaining": 200, "total": 200}, changed=count, newly_discarded=count,
        newly_discarded_in_the_end=0, changes=(), matrix=(), rules=(), never_matched=(),
        targets=(), failing_now=(), control=(), schemes=(), seconds=1.0, notes=(),
    )  # fmt: skip


@pytest.fixture
def shared(away: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One file is the table of two handlers; who asked the job to read it, and why."""
    asked: list[str] = []

    def restart(_: object, *, timeout: float, operator: str) -> RestartAnswer:
        asked.append(operator)
        return RestartAnswer(number=1, pid=1)

    CONFIG.write_text(CONFIG.read_text().replace("billing.rul", "orders.rul"))
    monkeypatch.setattr(tables, "ask", in_what_waits)
    monkeypatch.setattr(tables, "running_process", lambda _: 1)
    monkeypatch.setattr(restart_command, "running_process", lambda _: 1)
    monkeypatch.setattr(restart_command, "restart_job", restart)
    return asked


def sent(action: str, handler: str = "orders", user: SomeUser = ADMIN, **form: str) -> Any:
    """The answer to a script that tries a table or puts it live."""
    with console(user, headers=SCRIPT) as script:
        script.get("/")
        word = {"X-Redrive-Form": script.cookies["redrive-form"]}
        return script.post(f"/api/tables/{handler}/{action}", data=form, headers=word)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("handler", ["orders", "billing"])
def test_trial_covers_every_handler_of_the_file(handler: str) -> None:
    tried = sent("try", handler, text=OTHER).json()
    assert {trial["handler"] for trial in tried["trials"]} == {"orders", "billing"}
    assert (tried["changed"], tried["messages"]) == (120, 400)
    assert sorted(trial["what_if"]["changed"] for trial in tried["trials"]) == [0, 120]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_page_of_a_trial_asks_before_a_table_goes_live(role: Role) -> None:
    with console(SomeUser(role=role), headers={"Accept": "text/html"}) as browser:
        assert 'action="/api/tables/orders/live"' not in browser.get("/tables/orders").text
        page = post(browser, "/api/tables/orders/try", text=OTHER).text
    assert "120 of 400 waiting messages change, for orders, billing." in page
    assert (role is Role.ADMIN) == ('action="/api/tables/orders/live"' in page)
    assert (role is Role.ADMIN) == ('name="because"' in page)


def test_only_what_was_tried_goes_live(shared: list[str]) -> None:
    tried = sent("try", text=OTHER).json()
    form = {"text": OTHER, "confirm": tried["confirm"], "because": "ticket 4711"}
    refused = [
        sent("live", **form | {"confirm": ""}),
        sent("live", **form | {"text": OTHER + "\n"}),
        sent("live", **form | {"because": " "}),
    ]
    Path("orders.rul").write_text(TABLE + "* changed\n")
    refused.append(sent("live", **form))
    assert [response.status_code for response in refused] == [400] * 4
    assert "was not tried on what waits for orders, billing" in refused[0].text
    assert "say why" in refused[2].text
    assert "DISCARD" not in Path("orders.rul").read_text()
    assert shared == []
    broken = sent("try", text="ACTION(RETRI)").json()
    assert broken["confirm"] == ""


def test_who_puts_a_table_live_and_why_is_kept(shared: list[str]) -> None:
    confirm = sent("try", "billing", text=OTHER).json()["confirm"]
    done = sent("live", text=OTHER, confirm=confirm, because="ticket 4711")
    assert done.json()["handlers"] == ["orders", "billing"]
    assert Path("orders.rul").read_text() == OTHER
    assert shared == ["root (ticket 4711)"]
    (line,) = [entry for entry in audited() if entry["action"] == "put live"]
    assert (line["user"], line["about"], line["because"]) == ("root", "orders", "ticket 4711")


def test_file_that_cannot_be_written_is_named_before_the_click(
    shared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda place, _: Path(place).name != "orders.rul")
    monkeypatch.setattr("tests.console.conftest.CONFIG", CONFIG.absolute())
    with console(ADMIN, headers={"Accept": "text/html"}) as browser:
        before = browser.get("/tables/orders").text
        page = post(browser, "/api/tables/orders/try", text=OTHER).text
    assert f"The console cannot write {Path('orders.rul').absolute()}" in before
    assert (
        "On Kubernetes that is orders.rul of the ConfigMap, under files in the values of the chart"
        in before
    )
    assert ">Compare and try only: it goes live elsewhere</button>" in before
    assert "Put it live elsewhere" in page
    assert "ACTION(DISCARD)" in page
    assert "Put this text where the file comes from" in page
    assert "/live" not in page
    confirm = sent("try", text=OTHER).json()["confirm"]
    refused = sent("live", text=OTHER, confirm=confirm, because="x")
    assert refused.status_code == 503
    assert "orders.rul of the ConfigMap, under files in the values of the chart" in refused.text
    assert shared == []


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("access", [None, Logins(TOKENS)])
def test_probes_are_answered_without_a_login(access: Any) -> None:
    with console(access) as browser:
        answer = browser.get("/livez")
        assert (answer.status_code, answer.text) == (200, "ok")
        assert browser.get("/livez", headers={"Host": "10.0.0.7:8470"}).status_code == 421


def test_trial_covers_every_queue_of_a_handler(shared: list[str]) -> None:
    text = CONFIG.read_text()
    start = text.index("[[handlers]]")
    some = 'queue = ["mine.dlq", "other.dlq", "third.dlq"]\nrules = "orders.rul"\n'
    CONFIG.write_text(f"{text[:start]}[[handlers]]\n{some}")
    names = ["mine.dlq", "other.dlq", "third.dlq"]
    tried = sent("try", "third.dlq", text=OTHER).json()
    assert sorted(trial["handler"] for trial in tried["trials"]) == names
    done = sent("live", "third.dlq", text=OTHER, confirm=tried["confirm"], because="x")
    assert done.json()["handlers"] == names
    assert Path("orders.rul").read_text() == OTHER
    assert len(shared) == 1


def test_trial_covers_no_handler_out_of_scope(shared: list[str]) -> None:
    user = SomeUser(scope=Scope(frozenset({"mine.*"})))
    tried = sent("try", user=user, text=OTHER).json()
    assert [trial["handler"] for trial in tried["trials"]] == ["orders"]
    form = {"text": OTHER, "confirm": tried["confirm"], "because": "x"}
    refused = sent("live", user=user, **form)
    assert refused.status_code == 403
    assert "that this user may not see" in refused.text
    assert sent("live", **form).status_code == 400
    assert shared == []


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/api/tables/billing"),
        ("get", "/api/tables/billing?ran=00"),
        ("get", "/api/difference?old=00&new=01&handler=billing"),
        ("post", "/api/tables/billing/check"),
        ("post", "/api/tables/billing/try"),
        ("post", "/api/tables/billing/live"),
    ],
)
def test_a_scope_is_checked_before_the_broker_is_asked(method: str, path: str) -> None:
    """Which is away: an answer by it would say 503."""
    script = console(SomeUser(scope=Scope(frozenset({"mine.*"}))), headers=SCRIPT)
    script.get("/")
    form = {"word": script.cookies["redrive-form"], "text": TABLE, "table": "00"}
    response = script.request(method, path, data=form if method == "post" else None)
    assert response.status_code == 400
    assert "there is no handler billing" in response.text


def test_a_user_of_several_scopes_may_in_each_what_its_role_may(
    topics_of_two: tuple[str, str],
) -> None:
    grants = (
        Grant(Role.VIEWER),
        Grant(Role.OPERATOR, Scope(frozenset({f"{topics_of_two[0][:-1]}?"}))),
    )
    tokens = {hashlib.sha256(b"t").hexdigest(): User("ann", grants, SignedInBy.TOKEN)}
    script = console(Logins(tokens), headers={**SCRIPT, "Authorization": "Bearer t"})
    assert api(script, "/messages")["total"] == 5
    assert script.get("/api/network").status_code == 200
    done = script.post("/api/acknowledgements", data={"until": "7d", "note": "x"})
    assert done.json()["messages"] == 3
    made = script.post("/api/plans", data={"status": "open"}).json()
    assert made["count"] == 3
    stopped = script.post("/api/channels/stop", data={"queue_manager": "QM"})
    assert "may see only some topics" in stopped.text


@pytest.mark.usefixtures("away")
def test_the_command_takes_an_identity_provider() -> None:
    Path("access.toml").write_text('[oidc]\nissuer = "https://id.example"\n')
    result = redrive("console", "-c", CONFIG, "--access", "access.toml", code=1)
    assert "[oidc] needs client_id" in result.stderr
    assert "[oidc] needs address" in result.stderr
