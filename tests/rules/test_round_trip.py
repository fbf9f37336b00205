"""A table read, written and read again; and its hash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.rules import reference
from tests.rules.findings import assert_reads_back
from tests.rules.tables import plain_rules, rich_table_texts, table_texts

from redrive.rules import Action, Control, Rule, RulesTable, parse
from redrive.rules.keywords import KEYWORDS, KeywordRole
from redrive.rules.patterns import NumberPattern

LONG = "*" * 100


def plain(rule: Rule) -> reference.PlainRule:
    """A rule that was read, as the reference knows rules."""
    keywords: dict[str, Any] = rule.keywords()
    return reference.PlainRule(keywords["pattern"], keywords["ACTION"], keywords["RETRY"])


@given(rules=st.lists(plain_rules(), min_size=1, max_size=5), data=st.data())
def test_any_layout_is_read_as_the_rules_it_writes(
    rules: list[reference.PlainRule], data: st.DataObject
) -> None:
    text = data.draw(table_texts(rules))
    read = [plain(rule) for rule in parse(text).required().rules]
    assert read == rules


@given(rich_table_texts())
@example(f"ACTION(FWD) FWDQ('{'a' * 48}') FWDQM('{chr(39) * 96}') RETRY(999999999)\n")
@example(f"APPLIDAT('{LONG}A{LONG}') DESTQ({LONG}) ACTION(IGNORE)\n")
@example("APPLIDAT(' * - +  ''x''   ') ACTION(IGNORE)\n")
@example("PERSIST(MQPER_PERSISTENCE_AS_PARENT) REASON(*) ACTION(IGNORE)\n")
def test_canonical_text_reads_back_as_an_equal_table(text: str) -> None:
    assert_reads_back(parse(text).required())


@given(rules=st.lists(plain_rules(), min_size=1, max_size=4), data=st.data())
def test_hash_is_that_of_the_meaning(rules: list[reference.PlainRule], data: st.DataObject) -> None:
    first, second = data.draw(table_texts(rules)), data.draw(table_texts(rules))
    assert parse(first).required().hash == parse(second).required().hash


def test_hash_ignores_what_makes_no_difference() -> None:
    plain = "REASON(MQRC_Q_FULL) DESTQ('A*') ACTION(RETRY)\n"
    same = [
        "* why\n\nRETRYINT(60) WAIT(YES)\n" + plain,
        "reason(02053),destq(a**) +\n  action(retry) retry(1) putaut(def)\n",
        "REASON(2053) DESTQ('A*  ') FORMAT(*) MSGTYPE(*) ACTION(RETRY)\n",
    ]
    expected = parse(plain).required().hash
    assert [parse(text).required().hash for text in same] == [expected] * 3
    assert len(expected) == 64


IBM_TABLE = """RETRYINT(30) WAIT(NO)
REASON(MQRC_Q_FULL) DESTQ(A*) ACTION(RETRY) RETRY(3)
ACTION(FWD) FWDQ(X) FWDQM(' ') HEADER(YES)
"""
KAFKA_TABLE = """DIALECT(KAFKA) RETRYINT(5)
TOPIC('orders') ERRMSG(/a|b/) ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)
HEADER('x-tenant',acme|globex) ATTEMPTS(>=3) ACTION(FWD) FWDT('dead.&TOPIC')
ACTION(QUARANTINE)
"""
GROUP_TABLE = """DIALECT(KAFKA)
TOPIC(orders) ACTION(RETRY) TO(GROUP) RETRY(5)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ACTION(RETRY)\n", "42d0c330f248f76e"),
        (IBM_TABLE, "466630d28d21271d"),
        (KAFKA_TABLE, "e348aba375ec3612"),
        (GROUP_TABLE, "6c3f72285741fcd9"),
    ],
)
def test_hash_stays_the_same_from_version_to_version(text: str, expected: str) -> None:
    assert parse(text).required().hash.startswith(expected)


def test_where_rounds_go_is_written_only_if_it_is_not_the_default() -> None:
    """TO(TOPIC) is what every RETRY without TO means, so it changes neither text nor hash."""
    table = parse(GROUP_TABLE).required()
    assert table.canonical() == GROUP_TABLE
    plain = parse(GROUP_TABLE.replace(" TO(GROUP)", "")).required()
    explicit = parse(GROUP_TABLE.replace("TO(GROUP)", "to(topic)")).required()
    assert (explicit, explicit.hash, explicit.canonical()) == (plain, plain.hash, plain.canonical())
    assert plain.hash != table.hash


def test_hash_tells_different_tables_apart() -> None:
    base = "REASON(1) ACTION(FWD) FWDQ(A)"
    texts = [
        f"{base}\n",
        f"{base} FWDQM(B)\n",
        f"{base} HEADER(NO)\n",
        f"{base} PUTAUT(CTX)\n",
        f"{base} RETRY(2)\n",
        f"WAIT(NO)\n{base}\n",
        f"RETRYINT(1)\n{base}\n",
        f"INPUTQ(A)\n{base}\n",
        f"INPUTQM(A)\n{base}\n",
        f"{base}\nACTION(IGNORE)\n",
        f"ACTION(IGNORE)\n{base}\n",
        "REASON(1) ACTION(FWD) FWDQ('a')\n",
        *(
            f"{name}(1) {base}\n"
            for name, keyword in KEYWORDS.items()
            if keyword.role is KeywordRole.PATTERN and name != "REASON"
        ),
    ]
    assert len({parse(text).required().hash for text in texts}) == len(texts)


def test_canonical_layout() -> None:
    """Control data if they differ from the defaults, one rule an entry, names for numbers."""
    text = "wait(no)\naction(fwd),header(yes),fwdq(&reply+\nq) reason(2053)\nretry(1) ACTION(RETRY)"
    assert parse(text).required().canonical() == (
        "WAIT(NO)\nREASON(MQRC_Q_FULL) ACTION(FWD) FWDQ(&REPLYQ)\nACTION(RETRY)\n"
    )


def test_a_number_that_the_language_has_not_cannot_be_written() -> None:
    rule = Rule(action=Action.IGNORE, patterns={"REASON": NumberPattern(-7)})
    with pytest.raises(ValueError, match=r"REASON\(-7\)"):
        RulesTable(Control(), (rule,)).canonical()
