"""[schema_registry]: where it is, and a password that is nowhere shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.settings.conftest import ENVIRON, GOOD, PASSWORD, Check

from redrive.configuration import RegistryAccess
from redrive.settings import read_settings

HERE = '\n[schema_registry]\nurl = "https://registry:8081/path"\n'


def test_settings_tell_where_the_registry_is(folder: Path) -> None:
    path = folder / "redrive.toml"
    assert read_settings(path).registry is None
    path.write_text(GOOD + HERE)
    assert read_settings(path).registry == RegistryAccess(url="https://registry:8081/path")
    (folder / "secret").write_text(f"{PASSWORD}\n")
    for line in ('password = "${KAFKA_PASSWORD}"', 'password_file = "secret"'):
        path.write_text(f'{GOOD}{HERE}username = "alice"\n{line}\n')
        settings = read_settings(path, environ=ENVIRON)
        assert settings.registry is not None
        assert (settings.registry.username, settings.registry.password) == ("alice", PASSWORD)
        assert PASSWORD not in f"{settings!r} {settings.describe()}"
    sign_in = 'oauth_endpoint = "https://idp/token"\noauth_client_id = "c"\noauth_scope = "s"\n'
    path.write_text(f'{GOOD}{HERE}{sign_in}oauth_client_secret_file = "secret"\n')
    settings = read_settings(path)
    assert settings.registry is not None
    assert (settings.registry.oauth_client_id, settings.registry.oauth_client_secret) == (
        "c",
        PASSWORD,
    )
    assert PASSWORD not in f"{settings!r} {settings.describe()}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('username = "a"', "MISSING"),
        ('url = "registry:8081"', "BAD_VALUE"),
        ('url = "https://a:b@registry"', "BAD_VALUE"),
        ('url = "http://r"\nusername = "a"', "MISSING"),
        ('url = "http://r"\nusername = "a"\npassword = "hunter2"', "SECRET_IN_FILE"),
        ('url = "http://r"\nssl_ca_file = "none.pem"', "MISSING_FILE"),
        ('url = "http://r"\noauth_endpoint = "https://i"\noauth_client_id = "c"', "MISSING"),
        (
            'url = "http://r"\nusername = "a"\npassword = "${KAFKA_PASSWORD}"\noauth_scope = "s"',
            "CONFLICT",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str, code: str, check: Check) -> None:
    findings = check(f"{GOOD}\n[schema_registry]\n{text}\n")
    assert [finding.code for finding in findings] == [code]
    assert PASSWORD not in "".join(finding.render() for finding in findings)
