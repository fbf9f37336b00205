"""The generator makes the dead letters that it says it makes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.demo.world import NOW, samples_of

from redrive.demo.messages import NUMBER_HEADER, Message
from redrive.demo.scripts.samples import KINDS, generate
from redrive.messages import decode_dead_letter, remove_header

MALFORMED = {kind.name for kind in KINDS if kind.is_malformed}
seeds = st.integers(0, 2**32)


def test_the_same_seed_makes_the_same_samples() -> None:
    """A demo can be repeated; another seed is another demo."""
    assert samples_of(7) == samples_of(7)
    assert samples_of(7) != samples_of(8)


@given(seeds, st.integers(len(KINDS), 300))
@settings(max_examples=20, deadline=None)
def test_every_kind_is_among_them_and_every_number_once(seed: int, count: int) -> None:
    """However few there are."""
    samples = samples_of(seed, count)
    assert [sample.number for sample in samples] == list(range(count))
    assert {sample.kind for sample in samples} == {kind.name for kind in KINDS}
    for sample in samples:
        [number] = [raw for name, raw in sample.record.headers if name == NUMBER_HEADER]
        assert number == str(sample.number).encode()


def test_the_kinds_have_their_shares() -> None:
    """Of a thousand, give or take the one that each kind has in any case."""
    assert sum(kind.share for kind in KINDS) == 1000
    counts = Counter(sample.kind for sample in generate(1000, 1, NOW))
    assert all(abs(counts[kind.name] - kind.share) <= len(KINDS) for kind in KINDS)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_what_is_noted_about_a_sample_is_what_its_bytes_say(seed: int) -> None:
    """The message behind the dead-letter header, which only malformed ones lack."""
    for sample in samples_of(seed):
        value, headers = sample.record.value, list(sample.record.headers)
        letter = decode_dead_letter(value, headers)
        assert letter.is_dead_letter is (sample.kind not in MALFORMED)
        if not letter.is_dead_letter:
            assert sample.original == sample.record
        else:
            body, kept = remove_header(letter, value, headers)
            assert (body, tuple(kept)) == (sample.original.value, sample.original.headers)


@pytest.fixture(scope="module")
def many() -> list[Message]:
    """So many that whatever can occur does."""
    return samples_of(1, 2000)


def test_dead_letters_come_in_all_representations(many: list[Message]) -> None:
    """Big and little endian, ASCII and EBCDIC, and as headers."""
    beginnings = Counter((sample.record.value or b"")[:8] for sample in many)
    for beginning in (b"DLH \0\0\0\1", b"DLH \1\0\0\0", b"\xc4\xd3\xc8\x40\0\0\0\1"):
        assert beginnings[beginning] > 50
    by_headers = [s for s in many if dict(s.record.headers).get("mqdlh.Reason")]
    assert len(by_headers) > 500


def test_records_have_what_kafka_allows(many: list[Message]) -> None:
    """No key, no value, an empty value, a header twice, a header without a value."""
    letters = [sample.record for sample in many]
    assert any(letter.key is None for letter in letters)
    assert any(letter.value == b"" for letter in letters)
    null = [sample for sample in many if sample.record.value is None]
    assert {sample.kind in MALFORMED for sample in null} == {True, False}
    assert any(len(dict(letter.headers)) < len(letter.headers) for letter in letters)
    assert any(None in dict(letter.headers).values() for letter in letters)


def test_malformed_headers_are_malformed_in_many_ways(many: list[Message]) -> None:
    """Each way with a problem of its own."""
    broken = [sample.record for sample in many if sample.kind in MALFORMED]
    found = [decode_dead_letter(it.value, list(it.headers)).problem for it in broken]
    problems = {problem.partition(":")[0] for problem in found}
    assert len(problems) >= 6
