"""The page on Kafka: its settings are right, and do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
from tests.settings.conftest import GOOD

from redrive.messages import Headers, SchemeTable, decode_dead_letter, remove_header
from redrive.settings import read_settings

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The examples of one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_schemes_of_the_page_read_what_it_shows(folder: Path) -> None:
    """All of its schemes together: the envelope, the headers, and what is assumed."""
    schemes = [block for block in blocks("toml") if "[schemes." in block]
    Path("redrive.toml").write_text(GOOD + "\n".join(schemes))
    table = SchemeTable(one.scheme() for one in read_settings(Path("redrive.toml")).job.schemes)
    envelope = blocks("json")[0].encode()
    letter = decode_dead_letter(envelope, [], schemes=table)
    assert (letter.scheme, letter.fields["DESTQ"]) == ("envelope", "orders")
    assert letter.view.error_class == "java.net.SocketTimeoutException"
    assert (letter.view.origin.partition, letter.view.attempts) == (3, 5)
    value, _ = remove_header(letter, envelope, [])
    assert orjson.loads(value or b"") == {"order": 4711}
    headers: Headers = [("x-error", b"a.B: c"), ("x-topic", b"t"), ("x-partition", bytes(4))]
    legacy = decode_dead_letter(b"x", headers, schemes=table)
    assert (legacy.scheme, legacy.view.error_class) == ("legacy", "a.B")
    assert decode_dead_letter(b"x", [], schemes=table).scheme == "plain"
