"""Dead letters that the real libraries wrote: how they read, and what a RETRY makes of them.

``make.py`` beside this file makes them again. Each has the record that failed, as ``original``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.vectors import Vector, is_subset, load, nested, octets
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import handler_of, outcomes_in, record, slice_of, written

from redrive.engine.facts import Gone, Original, RecordQuestion
from redrive.messages import DeadLetterDecoder, Headers, OutputRecord, read_view

FOLDER = Path(__file__).parent
LIBRARIES = ("connect", "smallrye", "spring", "streams")
VECTORS: list[Vector] = [vector for library in LIBRARIES for vector in load(FOLDER, library)]


def _named(vectors: list[Vector]) -> pytest.MarkDecorator:
    ids = [f"{vector['id']}: {vector['title']}" for vector in vectors]
    return pytest.mark.parametrize("vector", vectors, ids=ids)


def headers_of(vector: Vector) -> Headers:
    return [(name, octets(raw)) for name, raw in vector["headers"]]


def original_of(vector: Vector) -> Original:
    original = vector["original"]
    key, value = octets(original["key"]), octets(original["value"])
    return Original(key, value, headers_of(original), original["timestamp"])


def decided(
    vector: Vector, table: str, original: Original | Gone
) -> tuple[list[tuple[int, OutputRecord]], dict[str, Any]]:
    """What is written for a dead letter, and its outcome."""
    handler = handler_of(table)
    origin = vector["expect"]["origin"]
    place = RecordQuestion(origin["topic"], origin["partition"], origin["offset"])
    dead_letter = record(octets(vector["value"]), headers_of(vector), key=octets(vector["key"]))
    work = slice_of(dead_letter, handler, decoder=DeadLetterDecoder())
    outputs = KnownCluster(records={place: original}).decided(work)
    (outcome,) = outcomes_in(outputs)
    return outputs, outcome


@_named(VECTORS)
def test_dead_letter_of_the_library_reads_as_what_failed(vector: Vector) -> None:
    view = read_view(octets(vector["key"]), octets(vector["value"]), headers_of(vector))
    actual = nested(view)
    for name, expected in vector["expect"].items():
        assert is_subset(expected, actual[name]), f"{name}: {actual[name]!r}"


@_named(VECTORS)
def test_retry_puts_the_record_that_failed_without_anything_of_the_library(vector: Vector) -> None:
    outputs, outcome = decided(vector, "ACTION(RETRY)", original_of(vector))
    assert outcome["result"] == "retried", outcome
    (put,) = written(outputs, vector["expect"]["origin"]["topic"])
    original = original_of(vector)
    assert (put.key, put.value) == (original.key, original.value)
    headers = [pair for pair in put.headers or [] if not pair[0].startswith("redrive.")]
    assert headers == [pair for pair in original.headers if pair[0] == "trace"]


POINTERS = [vector for vector in VECTORS if vector["expect"].get("pointer")]


@_named(POINTERS)
def test_pointer_keeps_what_the_library_says_where_headers_are_kept(vector: Vector) -> None:
    table = "ACTION(FWD) FWDQ(PARK) HEADER(YES)"
    outputs, _ = decided(vector, table, original_of(vector))
    (put,) = written(outputs, "PARK")
    assert (put.key, put.value) == (original_of(vector).key, original_of(vector).value)
    names = [name for name, _ in put.headers or [] if not name.startswith("redrive.")]
    assert names[:2] == ["trace", "__streams.errors.exception"]
    assert len(names) == len(set(names))


@_named(POINTERS)
def test_pointer_without_its_original_remains(vector: Vector) -> None:
    outputs, outcome = decided(vector, "ACTION(RETRY)", Gone("the original was deleted"))
    assert (outcome["result"], outcome["reason"]) == ("remains", 2033)
    assert not written(outputs, vector["expect"]["origin"]["topic"])
