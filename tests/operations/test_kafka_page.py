"""The page on Kafka: its settings, tables and output are right, and do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from tests.settings.conftest import RULES

from redrive.messages import Headers, SchemeTable, decode_dead_letter, read_view, remove_header
from redrive.messages.schemes import GROUP_SCHEMES, Scheme
from redrive.messages.schemes.known import SCHEMES
from redrive.messages.schemes.scheme import Stamp
from redrive.rules import parse
from redrive.settings import read_settings

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The examples of one language, in their order."""
    return re.findall(rf"^```{language}(?: \S+)?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_table_of_the_page_is_right() -> None:
    for table in blocks("rules"):
        assert parse(table).table is not None


def test_the_schemes_of_the_page_read_what_it_shows(folder: Path) -> None:
    Path("tickets.rul").write_text(RULES)
    Path("fix.json").write_text('[{"op": "remove", "path": "/a"}]')
    Path("redrive.toml").write_text("\n".join(blocks("toml")))
    table = SchemeTable(
        scheme.scheme() for scheme in read_settings(Path("redrive.toml")).job.schemes
    )
    envelope = blocks("json")[-1].encode()
    letter = decode_dead_letter(envelope, [], schemes=table)
    assert (letter.scheme, letter.fields["DESTQ"]) == ("envelope", "tickets")
    assert letter.view.error_class == "java.net.SocketTimeoutException"
    view = read_view(None, envelope, [], schemes=table)
    assert (view.origin.partition, view.attempts) == (3, 5)
    value, _ = remove_header(letter, envelope, [])
    assert orjson.loads(value or b"") == {"ticket": 4711}
    headers: Headers = [("x-error", b"a.B: c"), ("x-topic", b"t"), ("x-partition", bytes(4))]
    legacy = decode_dead_letter(b"x", headers, schemes=table)
    assert (legacy.scheme, legacy.view.error_class) == ("legacy", "a.B")
    assert decode_dead_letter(b"x", [], schemes=table).scheme == "plain"
    draft: Headers = [
        ("_dlq.errors.disposition", b"REJECTED"),
        ("_dlq.errors.original.topic", b"jobs"),
        ("_dlq.errors.original.offset", b"99"),
    ]
    view = read_view(b"k", b"v", draft, schemes=table)
    assert (view.scheme, view.disposition, view.origin.topic) == ("kip-1317", "REJECTED", "jobs")
    assert view.origin.offset == 99
    pipeline: Headers = [("fallback_error", b"no such host")]
    view = read_view(b"k", b"v", pipeline, schemes=table)
    assert (view.scheme, view.error_message) == ("pipeline", "no such host")


def test_the_page_names_the_schemes_that_name_a_group() -> None:
    [names] = re.findall(
        r"^  (`connect`.*) and a scheme of your own .* name one;", PAGE, re.MULTILINE
    )
    assert {*re.findall(r"`([\w-]+)`", names)} == GROUP_SCHEMES


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_the_page_has_each_scheme_in_the_row_of_its_time(scheme: Scheme) -> None:
    table = PAGE.split("| dead letters of |")[1].split("\n\n")[0]
    rows = [row.split("|")[1].lower() for row in table.splitlines()[2:]]
    name = scheme.name.replace("-", " ")
    name = name if any(name in row for row in rows) else name.split()[0]
    place = 2 if scheme.drops_headers else 0 if scheme.stamp is Stamp.FAILURE else 1
    assert [name in row for row in rows] == [number == place for number in range(3)]
