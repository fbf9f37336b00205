"""What a table in DIALECT(KAFKA) reads of single messages is what the whole view says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.cache import MatchedProfile, ProfileMatcher
from redrive.engine.message import Message
from redrive.messages import DeadLetterHeader, Headers, decode_dead_letter, encode_header, read_view
from redrive.messages.schemes import OwnScheme, SchemeTable
from redrive.messages.schemes.known import SCHEMES
from redrive.messages.schemes.scheme import NAMES as PARTS
from redrive.rules import parse
from redrive.rules.keywords import IBM, KAFKA_PATTERNS, Value
from redrive.rules.patterns import RuleInput

TABLE = parse("DIALECT(KAFKA)\nERRMSG(/./) AGE(>1s) PARTITION(*) ACTION(RETRY)\n").required()
VARYING = ("error.message", "first_failed_at", "failed_at")
NAMES = sorted(
    {name for scheme in SCHEMES for name in scheme.leading}
    | {
        part.header
        for scheme in SCHEMES
        for name in VARYING
        for part in scheme.parts.get(name, ())
        if part.header
    }
    | {"mqdlh.Reason", "mqdlh.PutDate", "mqdlh.PutTime"}
)
VALUES = (
    b"orders", b"2053", b"boom", b"\xff", b"", b"\0\0\1\x8f\0\0\0\0", b"20260115", b"12345600",
    b"2026-01-15T12:34:56Z", None,
)  # fmt: skip
BODY = encode_header(
    DeadLetterHeader(reason=2053, dest_q_name="Q", put_date="20260115", put_time="12345600")
)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8),
    st.sampled_from([b"{}", BODY, b"", None]),
)
def test_text_time_and_partition_of_a_failure_are_those_of_the_view(
    headers: Headers, value: bytes | None
) -> None:
    profile = decode_dead_letter(value, headers, key=b"k")
    seen = RuleInput(b"k", value, headers, 7, 9)
    matched = ProfileMatcher(TABLE).match_first(profile, seen)
    assert isinstance(matched, MatchedProfile) is profile.is_dead_letter
    view = read_view(b"k", value, headers)
    since = view.failed_at if view.first_failed_at is None else view.first_failed_at
    assert (seen.error_message, seen.failed_at) == (view.error_message, since)
    assert seen.partition == view.origin.partition


def test_each_pattern_of_the_dialect_matches_in_the_job() -> None:
    """A dead letter that has every part of a scheme has a field for each keyword."""
    own = OwnScheme(name="own", recognise="x-topic", parts={part: f"x-{part}" for part in PARTS})
    headers: Headers = [("x-topic", b"t"), *((f"x-{part}", b"7") for part in PARTS)]
    schemes = SchemeTable([own.scheme()])
    arguments = {"HEADER": "'x-topic',", "JSON": "'$.a',"}
    clauses = [
        f"{name}({arguments.get(name, '')}{'>0' if keyword.value is Value.NUMBERS else '?*'})"
        for name, keyword in KAFKA_PATTERNS.items()
        if name not in IBM.keywords or keyword.argument
    ]
    table = parse(f"DIALECT(KAFKA)\n{' '.join(clauses)} ACTION(RETRY)\n").required()
    body = b'{"a":1}'
    profile = decode_dead_letter(body, headers, key=b"k", schemes=schemes)
    message = Message(b"k", body, headers, 7, "t:0:1", "t:0:1", 0, profile=profile)
    matcher = ProfileMatcher(table, schemes)
    assert table.asked - matcher.fields_of(message, 9_000).keys() == set()
    assert matcher.candidates_of(matcher.match(message, 9_000)) == 1
