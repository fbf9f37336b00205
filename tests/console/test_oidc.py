"""Sign-in by an identity provider: whole, and with every part of an answer wrong."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import httpx
import oidc_provider_mock
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.testclient import TestClient
from tests.conftest import PATIENCE
from tests.console.conftest import audited, console
from werkzeug.serving import make_server

from redrive.console import oidc
from redrive.console.access import Grant, Grants, Role
from redrive.console.login_files import OidcSettings
from redrive.console.logins import Logins
from redrive.console.oidc import IdentityProvider

# The mock's own use of its library.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")

PAGE = {"Accept": "text/html"}
SECRET = "client-geheim"  # noqa: S105 - of a test
USERS = [
    oidc_provider_mock.User(
        sub="https://id.example/7:1",  # a colon, and no address: joserfc's own check refuses it
        claims={"groups": ["developers", "ops"], "nickname": "Ann", "email_verified": True},
    ),
    oidc_provider_mock.User(sub="bob:2", claims={"groups": "developers"}),
    oidc_provider_mock.User(sub="eve", claims={"groups": ["guests"]}),
    oidc_provider_mock.User(sub="mallory\nroot", claims={"groups": ["ops"]}),
    oidc_provider_mock.User(sub="x" * 201, claims={"groups": ["ops"]}),
    oidc_provider_mock.User(sub="odd", claims={"groups": {"ops": True}}),
    oidc_provider_mock.User(
        sub="new", claims={"groups": ["ops"], "email": "a@b", "email_verified": False}
    ),
]
ANN = USERS[0].sub
GROUPS = Grants({}, {"developers": (Grant(Role.VIEWER),), "ops": (Grant(Role.OPERATOR),)})

Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes the header and the claims of an ID token."""


@dataclass
class Mock:
    """The identity provider of a test, and what it saw."""

    address: str = ""
    change: Change | None = None
    key: Any = None
    """What signs a changed token; None for the provider's own key."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """Of requests for tokens."""
    credentials: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    rotates: bool = False
    """Whether it takes another key before the next token."""

    @property
    def settings(self) -> OidcSettings:
        """What a console knows of it."""
        return OidcSettings(
            issuer=self.address, client_id="redrive", client_secret=SECRET, address="https://here"
        )

    def browser(self, **changed: Any) -> TestClient:
        """A browser before a console without brokers that knows it, by settings with changes."""
        known = IdentityProvider(replace(self.settings, **changed))
        return console(Logins({}, provider=known, grants=GROUPS), headers=PAGE)

    def before(self) -> None:
        if flask.request.path == "/oauth2/token":
            self.forms.append(flask.request.form.to_dict())
            self.credentials.append(flask.request.headers.get("Authorization", ""))
            if self.rotates:
                storage = flask.g.oidc_provider_mock_storage
                storage.jwk = type(storage.jwk).generate_key(is_private=True)
                self.rotates = False

    def after(self, response: flask.Response) -> flask.Response:
        if flask.request.path == "/.well-known/openid-configuration":
            response.set_data(json.dumps(response.get_json() | self.metadata))
        if flask.request.path == "/oauth2/token" and response.status_code == 200:
            content = response.get_json()
            self.tokens += [content["id_token"], content["access_token"]]
            if self.change:
                content["id_token"] = self._changed(content["id_token"])
            response.set_data(json.dumps(content))
        return response

    def _changed(self, token: str) -> str:
        assert self.change is not None
        own = flask.g.oidc_provider_mock_storage.jwk.as_dict(is_private=True)
        decoded = jwt.decode(token, RSAKey.import_key(own), algorithms=["RS256"])
        self.change(decoded.header, decoded.claims)
        if decoded.header["alg"] == "none":
            parts = (json.dumps(part).encode() for part in (decoded.header, decoded.claims))
            return ".".join(
                [*(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""]
            )
        key = self.key or RSAKey.import_key(own)
        return jwt.encode(decoded.header, decoded.claims, key, algorithms=[decoded.header["alg"]])


@pytest.fixture
def provider(away: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mock]:
    """An identity provider on this machine, which may be slow."""
    monkeypatch.setattr(oidc, "ANSWER", PATIENCE)
    mock, app = Mock(), oidc_provider_mock.app(user_claims=USERS)
    app.before_request_funcs.setdefault(None, []).append(mock.before)
    app.after_request(mock.after)
    server = make_server("localhost", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    mock.address = f"http://localhost:{server.server_port}"
    yield mock
    server.shutdown()
    thread.join()
    server.server_close()


def leave(browser: TestClient, sub: str) -> str:
    """Goes to the identity provider, signs in there, and gives the address that leads back."""
    started = browser.get("/sign-in/start")
    assert started.status_code == 303, started.text
    back = httpx.post(started.headers["Location"], data={"sub": sub}, timeout=PATIENCE)
    return back.headers["Location"]


def sign_in(browser: TestClient, sub: str = ANN) -> Any:
    return browser.get(leave(browser, sub))


def test_somebody_signs_in_and_out(provider: Mock) -> None:
    browser = provider.browser()
    assert browser.get("/groups").headers["Location"] == "/sign-in"
    assert f"Sign in by {provider.address}" in browser.get("/sign-in").text
    done = sign_in(browser)
    assert done.status_code == 200, done.text
    assert '<meta http-equiv="refresh" content="0; url=/">' in done.text
    cookie = next(
        header for header in done.headers.get_list("Set-Cookie") if "redrive-session" in header
    )
    assert {"HttpOnly", "SameSite=strict", "Secure"} <= {*cookie.split("; ")}
    assert f"{ANN}, operator" in browser.get("/tables/orders").text
    (form,) = provider.forms
    assert form["redirect_uri"] == "https://here/sign-in/callback"
    assert provider.credentials == ["Basic " + b64encode(f"redrive:{SECRET}".encode()).decode()]
    out = browser.post("/sign-out", data={"word": browser.cookies["redrive-form"]})
    assert out.headers["Location"] == "/sign-in?out=1"
    assert browser.get("/tables/orders").headers["Location"] == "/sign-in"
    page = browser.get("/sign-in?out=1").text
    assert "You are signed out." in page
    assert f'href="{provider.address}/oauth2/end_session?client_id=redrive&amp;' in page
    assert [
        (entry["user"], entry["role"], entry["action"], entry["by"]) for entry in audited()
    ] == [
        (ANN, "operator", "sign in", "oidc"),
        (ANN, "operator", "sign out", "session"),
    ]


def test_a_code_is_asked_for_with_a_challenge_that_only_this_browser_can_meet(
    provider: Mock,
) -> None:
    """PKCE by S256; state, nonce and verifier differ each time and are long."""
    browser, seen = provider.browser(), []
    for _ in range(2):
        place = browser.get("/sign-in/start").headers["Location"]
        asked = {name: value for name, (value,) in parse_qs(urlsplit(place).query).items()}
        assert asked["response_type"] == "code"
        assert asked["scope"] == "openid profile email"
        assert asked["code_challenge_method"] == "S256"
        seen += [asked[name] for name in ("state", "nonce", "code_challenge")]
        back = httpx.post(place, data={"sub": ANN}, timeout=PATIENCE).headers["Location"]
        assert browser.get(back).status_code == 200
        verifier = provider.forms[-1]["code_verifier"]
        digest = hashlib.sha256(verifier.encode()).digest()
        assert urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        seen.append(verifier)
    assert len({*seen}) == len(seen)
    assert all(len(state) == 43 for state in seen)


def in_an_hour(header: dict[str, Any], claims: dict[str, Any]) -> None:
    claims["iat"] = time.time() + 3600


WRONG: dict[str, tuple[Change, str]] = {
    "nonce": (lambda _, claims: claims.update(nonce="another"), "the nonce of"),
    "no nonce": (lambda _, claims: claims.pop("nonce"), "the nonce of"),
    "audience": (lambda _, claims: claims.update(aud="another"), "the audience of"),
    "no audience": (lambda _, claims: claims.pop("aud"), "the audience of"),
    "several audiences": (lambda _, claims: claims.update(aud=["redrive", "b"]), "the audience of"),
    "party": (lambda _, claims: claims.update(azp="another"), "the audience of"),
    "issuer": (lambda _, claims: claims.update(iss="https://evil.example"), "the issuer of"),
    "expired": (lambda _, claims: claims.update(exp=time.time() - 61), "the end of"),
    "no end": (lambda _, claims: claims.pop("exp"), "the end of"),
    "end is a text": (lambda _, claims: claims.update(exp="9999999999"), "the end of"),
    "end is no number": (lambda _, claims: claims.update(exp=float("nan")), "the end of"),
    "nonce is no text": (lambda _, claims: claims.update(nonce=["a"]), "the nonce of"),
    "key is another": (lambda header, _: header.update(kid="another"), "the signature of"),
    "too early": (lambda _, claims: claims.update(nbf=time.time() + 3600), "the beginning of"),
    "of the future": (in_an_hour, "the time of"),
    "no subject": (lambda _, claims: claims.update(sub=""), "the subject of"),
    "alg none": (lambda header, _: header.update(alg="none"), "the signature of"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_token_with_anything_wrong_signs_nobody_in(provider: Mock, what: str) -> None:
    provider.change, problem = WRONG[what]
    browser = provider.browser()
    done = sign_in(browser)
    assert done.status_code == 401
    assert problem in done.text
    assert "redrive-session" not in browser.cookies
    assert audited() == []


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [("RS256", RSAKey.generate_key(2048)), ("HS256", OctKey.import_key(SECRET * 4))],
)
def test_a_token_that_somebody_else_signed_signs_nobody_in(
    provider: Mock, algorithm: str, key: Any
) -> None:
    provider.key, provider.change = key, lambda header, _: header.update(alg=algorithm)
    done = sign_in(provider.browser())
    assert done.status_code == 401
    assert "the signature of the ID token is wrong" in done.text


def test_clocks_may_differ_a_little(provider: Mock) -> None:
    provider.change = lambda _, claims: claims.update(exp=time.time() - 30, iat=time.time() + 30)
    assert sign_in(provider.browser()).status_code == 200
    assert sign_in(provider.browser(clock_skew=5.0)).status_code == 401


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"state": "another"}, "the state is not"),
        ({"state": ""}, "the state is not"),
        ({"iss": "https://evil.example"}, "another identity provider"),
        ({"code": "another"}, "says invalid_grant"),
        ({"code": ""}, "has no code"),
        ({"error": "access_denied<b>"}, "says access_denied&lt;b&gt;"),
    ],
)
def test_an_answer_that_is_not_to_this_browser_signs_nobody_in(
    provider: Mock, changed: dict[str, str], problem: str
) -> None:
    browser = provider.browser()
    parameters = {n: value for n, (value,) in parse_qs(urlsplit(leave(browser, ANN)).query).items()}
    done = browser.get("/sign-in/callback", params=parameters | changed)
    assert done.status_code == 401
    assert problem in done.text
    # The sign-in is over with its first answer: the right one comes too late.
    assert browser.get("/sign-in/callback", params=parameters).status_code == 401
    assert "redrive-session" not in browser.cookies


def test_an_answer_counts_once_and_in_one_browser_only(provider: Mock) -> None:
    browser, other = provider.browser(), provider.browser()
    assert "did not start" in other.get(leave(browser, ANN)).text
    back = leave(browser, ANN)
    leave(other, ANN)
    assert other.get(back).status_code == 401
    cookie = {"Cookie": f"redrive-sign-in={browser.cookies['redrive-sign-in']}"}
    assert browser.get(back).status_code == 200
    assert browser.get(back, headers=cookie).status_code == 401
    assert len(provider.forms) == 1


def test_a_sign_in_that_takes_too_long_is_forgotten(
    provider: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.console.logins.STARTED", 0.0)
    browser = provider.browser()
    back = leave(browser, ANN)
    assert "took too long" in browser.get(back).text


def test_who_is_in_no_group_is_told_so_by_name(provider: Mock) -> None:
    browser = provider.browser()
    done = sign_in(browser, "eve")
    assert done.status_code == 403
    assert "eve is in no group that has a role." in done.text
    assert "Groups that the identity provider names: guests" in done.text
    assert "redrive-session" not in browser.cookies
    assert "names no group" in sign_in(browser, "nobody").text


@pytest.mark.parametrize(
    ("sub", "claim", "problem"),
    [
        ("mallory\nroot", "sub", "no sub that could name"),
        ("x" * 201, "sub", "no sub that could name"),
        ("bob:2", "nickname", "no nickname that could name"),
        ("odd", "sub", "groups of the ID token is not a list"),
        ("new", "email", "has not verified"),
    ],
)
def test_a_user_without_a_usable_name_does_not_come_in(
    provider: Mock, sub: str, claim: str, problem: str
) -> None:
    done = sign_in(provider.browser(user_claim=claim), sub)
    assert done.status_code == 401
    assert problem in done.text
    assert audited() == []


def test_users_and_groups_come_from_other_claims_too(provider: Mock) -> None:
    browser = provider.browser(user_claim="nickname")
    assert sign_in(browser).status_code == 200
    assert "Ann, operator" in browser.get("/tables/orders").text
    browser = provider.browser()
    assert sign_in(browser, "bob:2").status_code == 200
    assert "bob:2, viewer" in browser.get("/tables/orders").text
    assert sign_in(provider.browser(groups_claim="roles")).status_code == 403


def test_keys_are_read_again_once_they_are_rotated(provider: Mock) -> None:
    browser = provider.browser()
    assert sign_in(browser).status_code == 200
    provider.rotates = True
    assert sign_in(browser).status_code == 200
    assert not provider.rotates


def test_a_session_of_before_the_sign_in_does_not_go_on(provider: Mock) -> None:
    browser = provider.browser()
    sign_in(browser, "bob:2")
    before = browser.cookies["redrive-session"]
    sign_in(browser)
    after = browser.cookies["redrive-session"]
    assert before != after
    browser.cookies.clear()
    for session, status in ((before, 303), (after, 200), ("planted", 303)):
        response = browser.get("/tables/orders", headers={"Cookie": f"redrive-session={session}"})
        assert response.status_code == status


def test_no_secret_of_a_sign_in_is_written_or_shown(
    provider: Mock, caplog: pytest.LogCaptureFixture
) -> None:
    browser = provider.browser()
    pages, back = [], ""
    with caplog.at_level(logging.DEBUG):
        for provider.change in (None, WRONG["audience"][0]):
            back = leave(browser, ANN)
            done = browser.get(back)
            pages += [done.text, str(done.headers), browser.get("/tables/orders").text]
            pages.append(browser.get("/sign-in").text)
    parameters = parse_qs(urlsplit(back).query)
    hidden = [SECRET, *provider.tokens, parameters["code"][0], parameters["state"][0]]
    hidden += [form["code_verifier"] for form in provider.forms]
    logs = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("redrive", "httpx"))
    ]
    # What the test itself asks for, in the place of a browser, is in no log of the console.
    logs = [log for log in logs if "/oauth2/authorize" not in log and "https://here/" not in log]
    assert any("the audience" in log for log in logs)
    assert any("/oauth2/token" in log for log in logs)
    for text in (*pages, *logs, json.dumps(audited()), repr(provider.settings)):
        assert not [word for word in hidden if word in text]


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"issuer": "https://evil.example"}, "it calls itself https://evil.example"),
        ({"token_endpoint": "http://evil.example/token"}, "token_endpoint is not an https address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is not an https address"),
        ({"jwks_uri": None}, "jwks_uri is not an https address"),
        ({"jwks_uri": "https://[x"}, "jwks_uri is not an https address"),
    ],
)
def test_an_identity_provider_that_is_set_up_wrong_says_so_on_the_page(
    provider: Mock, metadata: dict[str, Any], problem: str
) -> None:
    provider.metadata = metadata
    done = provider.browser().get("/sign-in/start")
    assert done.status_code == 503
    assert problem in done.text


def test_a_client_that_the_identity_provider_does_not_take_is_told_so(provider: Mock) -> None:
    done = sign_in(provider.browser(client_secret=""))
    assert done.status_code == 503
    assert "it says invalid_client" in done.text
    assert "check client_id and client_secret" in done.text
    assert provider.forms[-1]["client_id"] == "redrive"
    assert provider.credentials == [""]


def test_the_secret_goes_the_way_that_the_identity_provider_offers(provider: Mock) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    done = sign_in(provider.browser())
    assert done.status_code == 200
    assert provider.forms[-1]["client_secret"] == SECRET
    assert provider.credentials == [""]


def test_an_identity_provider_that_is_away_says_so_on_the_page(provider: Mock) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    done = provider.browser(issuer=f"http://localhost:{port}").get("/sign-in/start")
    assert done.status_code == 503
    assert "it cannot be reached (ConnectError)" in done.text
    assert "try again in a minute" in done.text
    assert "Traceback" not in done.text


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_never_comes_or_never_ends_has_a_bound(
    provider: Mock, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(oidc, "ANSWER", 1.0)
    over = threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(sent)
            while not over.wait(0.1):
                try:
                    connection.sendall(b" " if sent else b"")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        done = provider.browser(issuer=f"http://127.0.0.1:{port}").get("/sign-in/start")
        over.set()
        thread.join()
    assert done.status_code == 503
    assert "it does not answer in 1 s" in done.text


def test_wrong_answers_and_beginnings_hold_up_nobody_behind_the_same_address(
    provider: Mock,
) -> None:
    stranger, browser = provider.browser(), provider.browser()
    back = leave(browser, ANN)
    for _ in range(50):
        assert stranger.get("/sign-in/callback?code=1&state=x").status_code == 401
        assert stranger.get("/sign-in/start").status_code == 303
    assert provider.forms == []
    assert browser.get(back).status_code == 200
