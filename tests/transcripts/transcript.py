"""Commands and what they answer, as a text that is run again: a small shell.

    $ # A comment.
    $ cat > orders.rul
    > ACTION(RETRY)
    $ redrive check orders.rul
    orders.rul: rules table, 1 rule: ...
    $ redrive fmt - < orders.rul
    $ GET shop.toml /groups?status=all
    $ POST shop.toml /api/acknowledgements until=7d note=audit

A page is shown as a text. JSON is written in fewer lines than the program does.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.commands import redrive

import redrive as product
from redrive.console.server import console_application

_COLUMNS = 100
"""Characters of a JSON value that is shown on one line, and of a link."""


def answered(transcript: str) -> str:
    """The commands of a transcript with what they answer now, in the working directory."""
    parts = (part.partition("\n") for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:])
    return "\n".join(_answered(line, answer) for line, _, answer in parts)


def _answered(line: str, before: str) -> str:
    words, typed = shlex.split(line, comments=True), ""
    if "<" in words:
        *words, _, typed = words
    match words:
        case []:
            answer = ""
        case ["cat", (">" | ">>") as mode, name]:
            written = [row[2:] for row in before.splitlines() if row.startswith(">")]
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("a" if mode == ">>" else "w") as file:
                file.writelines(f"{row}\n" for row in written)
            answer = "\n".join(f"> {row}".rstrip() for row in written)
        case ["cat", name]:
            answer = Path(name).read_text()
        case [("GET" | "POST") as method, settings, path, *form]:
            answer = _response(method, settings, path, form)
        case ["redrive", *arguments]:
            answer = _output(arguments, typed)
        case _:
            raise ValueError(line)
    answer = _without_places(answer).rstrip()
    assert not answer.startswith("$ ")
    assert "\n$ " not in answer
    return f"$ {line}\n{answer}\n" if answer else f"$ {line}\n"


def _output(words: list[str], typed: str) -> str:
    """The output of a command, and its exit code unless that is 0."""
    result = redrive(*words, typed=Path(typed).read_bytes() if typed else None)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    output = result.output
    if result.stdout[:1] in {"{", "["}:
        output = f"{_json(json.loads(result.stdout))}\n{result.stderr}"
    rows = [row.rstrip() for row in output.rstrip().splitlines()]
    return "\n".join([*rows, *([f"[exit {result.exit_code}]"] if result.exit_code else [])])


def _response(method: str, settings: str, path: str, form: list[str]) -> str:
    """The console's answer: its code unless that is 200, and the page or document."""
    accept = "application/json" if path.startswith("/api/") and method == "GET" else "text/html"
    client = TestClient(
        console_application(Path(settings).absolute()), "http://localhost", follow_redirects=False,
        headers={"Accept": accept, "HX-Request": "true"},
    )  # fmt: skip
    with client:
        if method == "GET":
            response = client.get(path)
        else:
            client.get("/")
            fields = dict(field.split("=", 1) for field in form)
            response = client.post(path, data={"word": client.cookies["redrive-form"], **fields})
    if "Location" in response.headers:
        text = f"to {response.headers['Location']}"
    elif response.headers["Content-Type"].startswith("application/json"):
        text = _json(response.json())
    else:
        page = _Page()
        page.feed(response.text)
        text = "\n".join(page.rows())
    return text if response.status_code == 200 else f"[{response.status_code}]\n{text}"


def _json(value: Any, indent: str = "") -> str:
    """JSON with as much on a line as there is room for; numbers stay on one line."""
    text = json.dumps(value, ensure_ascii=False)
    inner = f"{indent}  "
    if isinstance(value, dict) and len(indent + text) > _COLUMNS:
        rows = [f"{json.dumps(key)}: {_json(item, inner)}" for key, item in value.items()]
    elif isinstance(value, list) and len(indent + text) > _COLUMNS and not _is_numbers(value):
        rows = [_json(item, inner) for item in value]
    else:
        return text
    return f"{text[0]}\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}{text[-1]}"


def _is_numbers(value: list[Any]) -> bool:
    return all(isinstance(item, int | float) for item in value)


_LINES = frozenset(
    {"br", "dd", "details", "div", "dl", "dt", "fieldset", "form", "h1", "h2", "h3", "h4", "label",
     "legend", "li", "ol", "p", "pre", "section", "summary", "table", "tr", "ul"}
)  # fmt: skip
"""Elements that begin a line and end it."""
_UNSEEN = frozenset({"datalist", "script", "style", "svg"})
_LITERAL = frozenset({"pre", "textarea"})


class _Page(HTMLParser):
    """What a page shows between header and footer, with where links, forms and fields lead."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._is_main = False
        self._open = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begins a line, or shows what a field holds."""
        self._is_main = self._is_main or tag == "main"
        self._open.add(tag)
        if self._is_main:
            line = "\n" if tag in _LINES else ""
            self._text += line + _shown(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        """Ends a line."""
        self._is_main = self._is_main and tag != "main"
        self._open.discard(tag)
        if self._is_main:
            ends = {"td": " | ", "th": " | ", "button": ">"}
            self._text += ends.get(tag, "\n" if tag in _LINES else "")

    def handle_data(self, data: str) -> None:
        if self._is_main and self._open.isdisjoint(_UNSEEN):
            is_literal = not self._open.isdisjoint(_LITERAL)
            self._text += data.replace(" ", "\xa0") if is_literal else re.sub(r"\s+", " ", data)

    def rows(self) -> Iterator[str]:
        """The lines that have something."""
        for row in self._text.split("\n"):
            text = re.sub(r" {2,}", " ", row.rstrip(" |") if "|" in row else row.rstrip())
            if text.strip() not in {"", "-"}:
                yield text.removeprefix(" ").replace("\xa0", " ")


def _shown(tag: str, values: Mapping[str, str]) -> str:
    """What begins an element."""
    match tag:
        case "h1" | "h2" | "h3":
            return "#" * int(tag[1]) + " "
        case "a":
            href = values.get("href", "")
            return f"[{href if len(href) <= _COLUMNS else href[:_COLUMNS] + '...'}] "
        case "form":
            return f"{values.get('method', 'get')} {values.get('action', '')}:"
        case "input" | "select" | "textarea":
            name = values.get("name", "")
            value = "WORD" if name == "word" else values.get("value", "")
            return f" {{{name}={value}{' checked' if 'checked' in values else ''}}} "
        case "option":
            return " *" if "selected" in values else " "
    return {"button": " <", "li": "- "}.get(tag, "")


def _without_places(text: str) -> str:
    """Without what differs from machine to machine, or from run to run."""
    folder, servers = str(Path.cwd()), os.environ.get("TRANSCRIPT_SERVERS", "localhost:9092")
    text = text.replace(f"{folder}/", "").replace(folder, "FOLDER")
    text = text.replace(servers, "localhost:9092").replace(f'"{product.__version__}"', '"VERSION"')
    text = re.sub(r'"cluster": "[^"]+"', '"cluster": "CLUSTER"', text)
    text = re.sub(r'(?m)^  "seconds": [0-9.]+,$', '  "seconds": SECONDS,', text)
    return re.sub(r"\d+/\d+ brokers are down", "N/N brokers are down", text)


def stop_clock(patch: pytest.MonkeyPatch, now: float) -> None:
    """Lets it be ``now``, in seconds since 1970, for all of this process but Spark's modules."""

    class Delegating(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

        def __getattr__(cls, name: str) -> object:
            return getattr(datetime, name)

        def __call__(cls, *parts: Any, **named: Any) -> datetime:
            return datetime(*parts, **named)  # noqa: DTZ001 - as it was asked for

    class Stopped(metaclass=Delegating):
        @staticmethod
        def now(zone: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(now, zone)

    for module in pkgutil.walk_packages(product.__path__, "redrive."):
        if not module.name.startswith(("redrive.streaming", "redrive.demo", "redrive.__main__")):
            loaded = importlib.import_module(module.name)
            if getattr(loaded, "datetime", None) is datetime:
                patch.setattr(loaded, "datetime", Stopped)
    patch.setattr(time, "time", lambda: now)
    patch.setattr(time, "time_ns", lambda: round(now * 1e9))
    patch.setenv("TZ", "UTC")
    time.tzset()


def fix_names(patch: pytest.MonkeyPatch) -> None:
    """Lets the user be ``ann@host``, and random ids be numbers in turn."""
    numbers = itertools.count(1)
    patch.setenv("COLUMNS", "100")
    patch.setattr("getpass.getuser", lambda: "ann")
    patch.setattr("socket.gethostname", lambda: "host")
    patch.setattr("secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
