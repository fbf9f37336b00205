"""Settings files to break, one change at a time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from redrive.diagnostics import Diagnostic
from redrive.errors import ConfigurationError
from redrive.settings import read_settings
from redrive.settings_file import FORM

Check: TypeAlias = Callable[..., tuple[Diagnostic, ...]]
"""Every finding about a settings text."""
GOOD = """\
[application]
name = "orders"

[kafka]
bootstrap_servers = "localhost:9092"

[[handlers]]
queue = "ORDERS.DLQ"
rules = "orders.rul"
"""

RULES = """\
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
ACTION(FWD) FWDQ(REALLY.DEAD) HEADER(YES)
"""

PASSWORD = "hunter2"  # noqa: S105 - what must be shown nowhere
CERTIFICATES = Path(__file__).parents[1] / "security" / "certificates"
ENVIRON = {"KAFKA_PASSWORD": PASSWORD, "INSTANCE": "2/3"}


KEYS = {
    name: tuple((key.element or key).keys)
    for name, key in FORM.root.keys.items()
    if (key.element or key).is_table
}
"""The settings of each table, as the form has them."""


def write_certificates(folder: Path) -> None:
    """Writes the certificates and keys of the tests of security, and authorities to trust."""
    for path in CERTIFICATES.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "ca.pem").write_text("")


def findings_of(path: Path, environ: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Every finding about a settings file."""
    try:
        return read_settings(path, environ=environ).warnings
    except ConfigurationError as error:
        return tuple(error.diagnostics)


@pytest.fixture
def folder(folder: Path) -> Path:
    """The working directory, with a good ``redrive.toml`` and the table it names."""
    Path("redrive.toml").write_text(GOOD)
    Path("orders.rul").write_text(RULES)
    return folder


@pytest.fixture
def check(folder: Path) -> Check:
    """Every finding about a settings text."""

    def check(text: str, environ: Mapping[str, str] = ENVIRON) -> tuple[Diagnostic, ...]:
        path = Path("redrive.toml")
        path.write_text(text)
        return findings_of(path, environ)

    return check
