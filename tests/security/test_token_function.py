"""Clients sign in with tokens that a function of the user's own returns."""

from __future__ import annotations

import json
import os
import pickle
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaError
from pyspark.sql import SparkSession
from tests.security.conftest import assert_every_client_is_let_in
from tests.security.loaded_job import loaded_job
from tests.security.secure_broker import SecureBroker
from tests.security.test_secrets import TABLE
from tests.security.token_server import CLIENT, SCOPE, SECRET, signed_token, token_server
from tests.streaming.conftest import configuration_of

from redrive.errors import ConfigurationError, EnvironmentFault, FatalFault, TransientFault
from redrive.kafka.access import check_access
from redrive.kafka.cluster import Cluster
from redrive.kafka.errors import fault_of
from redrive.kafka.tokens import TokenFunction, token_endpoint
from redrive.streaming import session
from redrive.streaming.kafka_options import kafka_options

HERE = "tests.security.test_token_function"
LIFETIME = 12
"""Seconds."""
NO_CREDENTIALS = "there are no credentials on this machine"


def good() -> tuple[str, float]:
    return signed_token(3600), time.time() + 3600


def bad() -> tuple[str, float]:
    raise ValueError(NO_CREDENTIALS)


ANSWERS: list[Callable[[], object]] = []


def answered() -> object:
    """One that does what the test says."""
    return ANSWERS[-1]()


@pytest.fixture(autouse=True)
def functions(monkeypatch: pytest.MonkeyPatch) -> list[TokenFunction]:
    """Those of one test, as they change what errors mean to their process."""
    functions: list[TokenFunction] = []
    monkeypatch.setattr("redrive.kafka.tokens._functions", functions)
    monkeypatch.setattr("redrive.kafka.tokens._endpoints", set())
    return functions


@pytest.fixture
def answer() -> Iterator[Callable[[Callable[[], object]], None]]:
    yield ANSWERS.append
    ANSWERS.clear()


def test_each_client_gets_a_token_and_is_let_in(secure: SecureBroker, spark: SparkSession) -> None:
    connection = secure.with_token_function(f"{HERE}:good")
    assert_every_client_is_let_in(connection, spark)
    held = pickle.dumps(connection)
    assert token_endpoint(f"{HERE}:good").client_secret.encode() not in held
    assert not re.search(rb"eyJ[A-Za-z0-9_-]+\.", held)


def test_a_function_that_fails_is_told_by_every_client(
    secure: SecureBroker, spark: SparkSession
) -> None:
    connection = secure.with_token_function(f"{HERE}:bad")
    said = f"the token function {HERE}:bad raised ValueError: {NO_CREDENTIALS}"
    with pytest.raises(EnvironmentFault, match=said) as refused:
        check_access(connection)
    assert "oauth_token_function" in refused.value.hint
    with pytest.raises(TransientFault, match=said):
        Cluster(connection, timeout=2).topics()
    options = {**kafka_options(spark, connection), "subscribePattern": ".*"}
    with pytest.raises(Exception, match=said):
        spark.read.format("kafka").options(**options).load().count()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: None, r"returned NoneType: it takes no arguments and returns \(token"),
        (lambda: ("a.b.c",), r"returned \(str\): it takes"),
        (lambda: ("a.b.c", "soon"), r"returned \(str, str\): it takes"),
        (lambda: ("a.b.c\n", time.time() + 60), "not a JSON Web Token"),
        (lambda: ("c2lnbmVkIHVybA", time.time() + 60), "not a JSON Web Token"),
        (lambda: ("a.b.c", time.time() - 60), "a token that expired 60 s ago"),
        (lambda: ("a.b.c", float("nan")), "expired"),
        (lambda: ("a.b.c", (time.time() + 60) * 1000), "milliseconds"),
        (lambda: exec("raise SystemExit(1)"), "raised SystemExit: 1"),  # noqa: S102 - of the test
    ],
)
def test_what_is_no_valid_token_is_a_transient_fault_without_the_value(
    answer: Callable[[Callable[[], object]], None], given: Callable[[], object], said: str
) -> None:
    answer(given)
    with pytest.raises(TransientFault, match=said) as caught:
        TokenFunction(f"{HERE}:answered").token()
    assert "a.b.c" not in caught.value.message
    assert "c2lnbmVk" not in caught.value.message


def test_a_token_is_used_again_until_most_of_its_time_is_over(
    answer: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    function = TokenFunction(f"{HERE}:answered")
    answer(lambda: ("first.a.b", 1100.0))
    first = function.token()
    answer(lambda: ("second.a.b", 1200.0))
    now[0] = 1070.0
    assert function.token() == first
    answer(bad)
    now[0] = 1080.0
    assert function.token() == first
    assert function.problem == ""
    now[0] = 1100.0
    with pytest.raises(TransientFault, match=NO_CREDENTIALS):
        function.token()
    answer(lambda: ("third.a.b", 1300.0))
    with pytest.raises(TransientFault, match=NO_CREDENTIALS):
        function.token()  # not at once: many clients would call it in vain
    now[0] = 1103.0
    assert function.token().value == "third.a.b"
    assert function.problem == ""
    assert "third" not in repr(function.token())


def test_with_a_token_function_a_refusal_is_not_fatal(
    answer: Callable[[Callable[[], object]], None],
    functions: list[TokenFunction],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    refused = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED)
    denied = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert type(fault_of("asking", refused)) is FatalFault
    functions.append(TokenFunction(f"{HERE}:answered"))
    answer(bad)
    with pytest.raises(TransientFault):
        functions[0].token()
    fault = fault_of("asking", refused)
    assert type(fault) is TransientFault
    assert fault.message.endswith(f"{HERE}:answered raised ValueError: {NO_CREDENTIALS}")
    assert type(fault_of("asking", denied)) is FatalFault
    now[0] += 61  # nobody asks for a token any more, as after a restart with another function
    fault = fault_of("asking", refused)
    assert type(fault) is TransientFault
    assert NO_CREDENTIALS not in fault.message


def test_the_endpoint_answers_only_who_knows_the_secret() -> None:
    url = token_endpoint(f"{HERE}:good").url
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, b""))  # noqa: S310 - of this process
    assert caught.value.code == 401
    assert json.load(caught.value) == {"error": "invalid_client"}


def test_other_machines_are_refused_at_the_start(secure: SecureBroker, tmp_path: Path) -> None:
    job = configuration_of(
        tmp_path,
        secure.token_servers,
        {"any.dlq": TABLE},
        connection=secure.with_token_function(f"{HERE}:good"),
        master="spark://127.0.0.1:1",
    )
    with pytest.raises(ConfigurationError, match="cannot call oauth_token_function") as caught:
        session.start_session(job)
    assert "oauth_endpoint" in caught.value.hint


MODULE = f"""
import pathlib, sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.security.token_server import signed_token
HERE = pathlib.Path(__file__).parent
def token():
    if (HERE / "fails").exists():
        raise ValueError({NO_CREDENTIALS!r})
    token = signed_token({LIFETIME})
    with (HERE / "issued").open("a") as issued:
        issued.write(token + chr(10))
    return token, time.time() + {LIFETIME}
"""


def test_a_running_job_outlives_expired_tokens_and_a_function_that_fails(
    secure: SecureBroker, tmp_path: Path
) -> None:
    folder, package = tmp_path / "work", tmp_path / "package"
    folder.mkdir()
    package.mkdir()
    (package / "signer.py").write_text(MODULE)
    path = f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    fails = package / "fails"

    def issued() -> list[str]:
        return (package / "issued").read_text().splitlines()

    outlives_failures(
        secure, folder, 'oauth_token_function = "signer:token"', fails.touch, fails.unlink,
        issued=issued, PYTHONPATH=path,
    )  # fmt: skip
    assert NO_CREDENTIALS in (folder / "output.log").read_text(), "the log says why"
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(token.encode() in text for token in issued() for text in texts)
    assert SECRET.encode() not in b"".join(texts)


def test_a_running_job_outlives_an_oauth_server_that_is_away(
    secure: SecureBroker, tmp_path: Path
) -> None:
    folder, is_down, issued = tmp_path / "work", Event(), list[str]()
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    with token_server(lifetime=LIFETIME, is_down=is_down, issued=issued) as address:
        sign_in = (
            f'oauth_endpoint = "{address}/token"\noauth_client_id = "{CLIENT}"\n'
            f'oauth_client_secret_file = "secret"\noauth_scope = "{SCOPE}"'
        )
        outlives_failures(
            secure, folder, sign_in, is_down.set, is_down.clear, issued=lambda: issued
        )
    assert "temporarily_unavailable" in (folder / "output.log").read_text(), "the log says why"


def outlives_failures(
    secure: SecureBroker, folder: Path, sign_in: str,
    begin: Callable[[], None], end: Callable[[], None],
    *, issued: Callable[[], list[str]], **environment: str,
) -> None:  # fmt: skip
    """A job handles what comes while tokens expire, and while whoever issues them fails."""
    method = f'security_protocol = "SASL_SSL"\nsasl_mechanism = "OAUTHBEARER"\n{sign_in}'
    with loaded_job(secure, folder, secure.token_servers, method, **environment) as job:
        before = len(issued())
        job.send_for(3 * LIFETIME)
        job.handles_all("letters are handled while tokens are renewed")
        assert len(issued()) >= before + 2
        begin()
        job.send_for(4 * LIFETIME)
        end()
        job.send_for(1)
        job.handles_all("the job goes on")
