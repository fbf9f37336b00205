"""Who comes into the console: tokens, sessions, a proxy's headers, and what is recorded of them."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.commands import redrive
from tests.console.conftest import CONFIG, audited, console, form_of

from redrive.console.access import Grant, Grants, Role, Scope, SignedInBy, User
from redrive.console.login_files import read_access, read_tokens
from redrive.console.logins import SESSION_SECONDS, Limit, Logins, Proxy, Sessions
from redrive.errors import ConfigurationError, UsageError
from redrive.settings import read_settings

SCRIPT = {"Accept": "application/json"}
GRANTS = Grants({"bob": (Grant(Role.APPROVER),)}, {"ops": (Grant(Role.OPERATOR),)})
PROXY = Proxy("X-User", "X-Groups", (ipaddress.ip_network("10.0.0.0/24"),), GRANTS)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


TOKENS = {
    digest(f"t-{role.name}"): User(f"u{role.name.lower()}", (Grant(role),), SignedInBy.TOKEN)
    for role in Role
    if role
}


@pytest.fixture
def client(away: None) -> Callable[..., TestClient]:
    """Makes a client of a console without brokers, at an address."""

    def make(logins: Logins, address: str = "192.0.2.1", scheme: str = "https") -> TestClient:
        return console(logins, address=f"{scheme}://here", client=(address, 50_000))

    return make


def sign_in(browser: TestClient, token: str) -> Any:
    return browser.post("/sign-in", data={"word": form_of(browser), "token": token})


def test_every_route_refuses_who_is_not_signed_in(client: Callable[..., TestClient]) -> None:
    browser = client(Logins(TOKENS, failures=Limit(1_000)))
    known = {"Authorization": "Bearer t-VIEWER"}
    paths = browser.get("/api/openapi.json", headers=known).json()["paths"]
    assert len(paths) >= 11
    every = [(method, path) for path, methods in paths.items() for method in methods]
    every += [("get", path) for path in ("/", "/groups", "/live", "/api/openapi.json")]
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "redrive-session=old"}):
        for method, path in every:
            answer = browser.request(method, path, headers={**SCRIPT, **headers})
            assert answer.status_code == 401, (method, path, headers)
    answer = browser.get("/groups", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")


def test_a_session_begins_with_a_token_and_ends_at_the_sign_out(
    client: Callable[..., TestClient],
) -> None:
    browser = client(Logins(TOKENS))
    assert sign_in(browser, "wrong").status_code == 401
    assert browser.get("/tables/orders", headers=SCRIPT).status_code == 401
    done = sign_in(browser, "t-VIEWER")
    cookie = next(header for header in done.headers.get_list("Set-Cookie") if "session" in header)
    assert {"HttpOnly", "SameSite=strict", "Secure", f"Max-Age={SESSION_SECONDS}"} <= {
        *cookie.split("; ")
    }
    page = browser.get("/tables/orders", headers={"Accept": "text/html"}).text
    assert "uviewer, viewer" in page
    session, form = browser.cookies["redrive-session"], browser.cookies["redrive-form"]
    forged = {"Authorization": "Basic eDp5"}
    assert browser.post("/sign-out", headers=forged).status_code == 403
    assert browser.post("/sign-out", data={"word": form}).status_code == 303
    again = browser.get(
        "/tables/orders", headers={"Cookie": f"redrive-session={session}", **SCRIPT}
    )
    assert again.status_code == 401
    assert [(entry["user"], entry["action"], entry["by"]) for entry in audited()] == [
        ("uviewer", "sign in", "token"),
        ("uviewer", "sign out", "session"),
    ]


def test_a_cookie_is_secure_behind_a_proxy_that_ends_tls(client: Callable[..., TestClient]) -> None:
    browser = client(Logins(TOKENS), scheme="http")
    page = browser.get("/sign-in")
    word = page.cookies["redrive-form"]
    behind = {"Cookie": f"redrive-form={word}"}  # the browser sends it by TLS, the proxy does not
    done = browser.post("/sign-in", data={"word": word, "token": "t-VIEWER"}, headers=behind)
    cookies = [
        cookie for answer in (page, done) for cookie in answer.headers.get_list("Set-Cookie")
    ]
    assert len(cookies) >= 2
    for cookie in cookies:
        assert {"secure", "httponly", "samesite=strict"} <= {*cookie.lower().split("; ")}, cookie


def test_a_session_ends_after_its_time() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    identity = sessions.begin(User("ann", (Grant(Role.VIEWER),)))
    now[0] = SESSION_SECONDS - 1
    assert sessions.user(identity) == User("ann", (Grant(Role.VIEWER),), SignedInBy.SESSION)
    now[0] = SESSION_SECONDS
    assert sessions.user(identity) is None


@pytest.mark.parametrize(
    ("address", "headers", "expected"),
    [
        ("10.0.0.7", [("X-User", "bob")], 200),
        ("::ffff:10.0.0.7", [("X-User", "bob")], 200),
        ("10.0.0.7", [("X-User", "eve"), ("X-Groups", "all, ops")], 200),
        ("10.0.0.7", [("X-User", "eve"), ("X-Groups", "other")], 403),
        ("10.0.0.7", [("X-User", "eve")], 403),
        ("10.0.0.7", [], 401),
        ("10.0.0.7", [("X-User", "")], 401),
        ("10.0.0.7", [("X-User", "bob"), ("X-User", "eve")], 401),
        ("10.0.0.7", [("X-User", "eve"), ("X-Groups", "a"), ("X-Groups", "ops")], 401),
        ("10.0.1.7", [("X-User", "bob")], 401),
        ("192.0.2.1", [("X-User", "bob"), ("X-Forwarded-For", "10.0.0.7")], 401),
    ],
)
def test_headers_are_believed_from_the_proxy_only(
    client: Callable[..., TestClient], address: str, headers: list[tuple[str, str]], expected: int
) -> None:
    response = client(Logins({}, PROXY), address).get(
        "/api/tables/orders", headers=[*headers, *SCRIPT.items()]
    )
    assert response.status_code == expected


def test_a_form_through_the_proxy_needs_its_word_whatever_the_proxy_adds(
    client: Callable[..., TestClient],
) -> None:
    browser = client(Logins({}, PROXY), "10.0.0.7")
    for scheme in ("Basic eDp5", "Bearer x"):
        headers = {**SCRIPT, "X-User": "bob", "Authorization": scheme}
        answer = browser.post("/api/plans", headers=headers)
        assert answer.status_code == 403
        assert "has expired" in answer.text


def test_the_audit_holds_one_line_for_each_action_whatever_a_name_holds(
    client: Callable[..., TestClient],
) -> None:
    script = client(Logins(TOKENS))
    headers = {**SCRIPT, "Authorization": "Bearer t-APPROVER"}
    evil = "a%0A%7B%22user%22%3A1%7D%1B%5B2J%E2%80%AE"
    script.post(f"/api/plans/{evil}/discard", headers=headers)
    script.post("/api/tables/orders/live", headers=headers, data={"text": ""})
    (entry,) = audited()
    assert (entry["user"], entry["role"], entry["action"]) == ("uapprover", "approver", "discard")
    assert not {"\x1b", "\u202e"} & {*entry["about"]}
    path = read_settings(CONFIG).job.directory / "console-audit.jsonl"
    assert path.read_text().removesuffix("\n").isprintable()
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()
    path.mkdir()
    assert script.post("/api/plans/0123456789ab/discard", headers=headers).status_code == 503


def findings(error: ConfigurationError) -> str:
    return "\n".join(diagnostic.render() for diagnostic in error.diagnostics)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'[[tokens]]\nname="a"\nrole="root"\nsha256="{"0" * 64}"', "'root' is not a valid role"),
        ('[[tokens]]\nname="a"\nrole="viewer"\nsha256="plain"', "64 hexadecimal"),
        (f'[[tokens]]\nrole="viewer"\nsha256="{"0" * 64}"', "needs name"),
        ('[[tokens]]\ntoken="x"', "has no key token"),
        ("", "needs tokens"),
        ("[[tokens]", "SYNTAX"),
        (f'[[tokens]]\nname="a"\nrole="viewer"\ntopics=[]\nsha256="{"0" * 64}"', "topics is empty"),
        (2 * f'[[tokens]]\nname="a"\nrole="viewer"\nsha256="{"0" * 64}"\n', "the token of a"),
        (f'[[tokens]]\nname="a\\u202e"\nrole="viewer"\nsha256="{"0" * 64}"', "cannot be shown"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as caught:
        read_tokens(path)
    assert problem in findings(caught.value)


@pytest.mark.parametrize(
    ("owner", "mode", "is_taken"),
    [(10001, 0o600, True), (10001, 0o640, False), (0, 0o440, True), (0, 0o460, False),
     (0, 0o444, False)],
)  # fmt: skip
def test_a_file_of_tokens_that_others_may_read_or_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, *, is_taken: bool
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[[tokens]]\nname="a"\nrole="viewer"\nsha256="{"0" * 64}"')
    path.chmod(mode)
    status = path.stat()
    owned = os.stat_result((*status[:4], owner, 10001, *status[6:]))
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: owned)
    with nullcontext() if is_taken else pytest.raises(UsageError, match="other users"):
        assert list(read_tokens(path))


def test_a_user_has_the_roles_of_all_groups_within_their_topics(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(
        '[[roles]]\nrole = "viewer"\nusers = ["ann"]\ngroups = ["all"]\n'
        '[[roles]]\nrole = "operator"\ngroups = ["ops"]\ntopics = ["orders.*", "pay?"]\n'
    )
    grants = read_access(path).grants
    ann = User("ann", grants.of("ann", frozenset({"ops"})))
    assert ann.role is Role.OPERATOR
    assert ann.scope(Role.VIEWER).is_everything
    assert ann.scope(Role.OPERATOR) == Scope(frozenset({"orders.*", "pay?"}))
    assert ann.scope(Role.OPERATOR).has("orders.dlq")
    assert ann.scope(Role.OPERATOR).has("pay1")
    assert not any(map(ann.scope(Role.OPERATOR).has, ("orders", "xorders.dlq", "pay12", "PAY1")))
    assert not ann.scope(Role.ADMIN).has("orders.dlq")
    assert User("ann", grants.of("ann", frozenset())).role is Role.VIEWER
    assert User("eve", grants.of("eve", frozenset({"ann"}))).role is Role.NOBODY


def test_all_errors_of_an_access_file_come_at_once_and_none_shows_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(
        '[[roles]]\nrole = "root"\nusers = ["a"]\n'
        '[[roles]]\nrole = "viewer"\ntopics = ["a/b"]\n'
        '[oidc]\nissuer = "http://example"\nclient_secret = "geheim"\nclock_skew = 4000\n'
        'address = "https://redrive.example/console"\nscope = ["openid"]\n'
    )
    with pytest.raises(ConfigurationError) as caught:
        read_access(path, {})
    refusals = findings(caught.value)
    for problem in (
        "'root' is not a valid role", "[[roles]] needs groups",
        "'a/b' is not a valid element of topics", "'http://example' is not a valid issuer",
        "a secret does not belong in the settings file",
        "clock_skew is 4,000", "at the root of its host", "has no key scope", "needs client_id",
    ):  # fmt: skip
        assert problem in refusals, problem
    assert "geheim" not in refusals


@pytest.mark.parametrize("kept", ["variable", "file", "nowhere"])
def test_a_client_secret_comes_from_a_variable_or_a_file(tmp_path: Path, kept: str) -> None:
    path = tmp_path / "access.toml"
    (tmp_path / "secret").write_text("geheim\n")
    line = {
        "variable": 'client_secret = "${SECRET}"',
        "file": 'client_secret_file = "secret"',
        "nowhere": "",
    }[kept]
    path.write_text(
        '[oidc]\nissuer = "https://id.example/realm"\nclient_id = "redrive"\n'
        f'address = "https://redrive.example/"\n{line}\n'
    )
    oidc = read_access(path, {"SECRET": "geheim"}).oidc
    assert oidc is not None
    assert oidc.client_secret == ("" if kept == "nowhere" else "geheim")
    assert oidc.redirect_uri == "https://redrive.example/sign-in/callback"
    assert "geheim" not in repr(oidc)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--listen", "0.0.0.0:8470"], "could reach it without signing in"),
        (["--listen", "0.0.0.0:8470", "--tokens", "f"], "in plain text"),
        (["--proxy-header", "X-User"], "--proxy-from go together"),
        (["--proxy-header", "X-User", "--proxy-from", "10.0.0.1"], "needs --access"),
        (["--access", "f"], "has no [oidc], and there is no --proxy-header"),
        (["--listen", "0.0.0.0:8470", "--access", "f"], "in plain text"),
        (["--certificate", "f"], "--certificate and --key go together"),
        (["--tokens", "f", "--certificate", "f", "--key", "f"], "cannot be used"),
        (
            ["--proxy-header", "X", "--proxy-from", "10.0.0.1/8", "--access", "f"],
            "has host bits set",
        ),
    ],
)
@pytest.mark.usefixtures("client")
def test_options_that_would_leave_the_door_open_are_refused(
    options: list[str], problem: str
) -> None:
    Path("f").touch(mode=0o600)
    result = redrive("console", *options, code=2)
    assert problem in result.stderr
