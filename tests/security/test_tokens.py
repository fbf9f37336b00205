"""Clients sign in with tokens that they get for client credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.security.conftest import assert_every_client_is_let_in
from tests.security.secure_broker import CERTIFICATES, SecureBroker
from tests.security.token_server import SECRET, token_server

from redrive.errors import EnvironmentFault
from redrive.kafka.access import check_access
from redrive.kafka.connection import Connection


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_each_client_gets_a_token_and_is_let_in(
    secure: SecureBroker, spark: SparkSession, *, is_encrypted: bool
) -> None:
    with token_server(is_encrypted=is_encrypted) as address:
        connection = replace(
            secure.with_tokens(),
            oauth_endpoint=f"{address}/token",
            oauth_ca_file=str(CERTIFICATES / "authority.pem") if is_encrypted else "",
        )
        assert_every_client_is_let_in(connection, spark)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("oauth_client_secret", "a wrong secret", "invalid_client"),
        ("oauth_scope", "another", "invalid_request"),
        ("oauth_endpoint", "http://127.0.0.1:1/token", "onnect"),
    ],
)
def test_what_the_endpoint_refuses_is_told_without_the_secret(
    secure: SecureBroker, field: str, value: str, said: str
) -> None:
    change: dict[str, Any] = {field: value}
    connection = replace(secure.with_tokens(), **change)
    with pytest.raises(EnvironmentFault, match="refuses the sign-in as oauth-client") as caught:
        check_access(connection)
    text = f"{caught.value.message} {caught.value.hint}"
    assert said in text
    assert "oauth_endpoint" in text
    assert not any(secret in f"{text} {connection!r}" for secret in (SECRET, "a wrong secret"))


def test_settings_for_kafka_python_request_no_token() -> None:
    connection = Connection(
        bootstrap_servers="", sasl_mechanism="OAUTHBEARER", oauth_endpoint="http://127.0.0.1:1"
    )
    provider = connection.kafka_python()["sasl_oauth_token_provider"]
    with pytest.raises(OSError, match="refused"):
        provider.token()
