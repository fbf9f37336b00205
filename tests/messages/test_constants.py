"""MQ's constants: complete, consistent and found both ways."""

from __future__ import annotations

import pytest

from redrive.messages import constant_value, reason_name
from redrive.messages.constants import FAMILIES, constant_family, constant_name, constant_names


def test_family_sizes() -> None:
    """Each family has as many names as the constant tables of MQ 9.4.5, MQAT without DEFAULT."""
    sizes = {family: len(names) for family, names in FAMILIES.items()}
    assert sizes == {"MQRC": 572, "MQFB": 60, "MQMT": 10, "MQPER": 5, "MQAT": 42}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_carry_their_family(family: str) -> None:
    assert all(constant_family(name) == family for name in FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_value_and_name_agree(family: str) -> None:
    for name, value in FAMILIES[family].items():
        assert constant_value(name) == value
        preferred = constant_name(family, value)
        assert preferred is not None
        assert FAMILIES[family][preferred] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MQRC_NONE", 0),
        ("MQRC_APPL_FIRST", 900),
        ("MQRC_APPL_LAST", 999),
        ("MQRC_Q_FULL", 2053),
        ("MQRC_PAGESET_FULL", 2192),
        ("MQRC_STORAGE_MEDIUM_FULL", 2192),
        ("MQRC_TRUNCATED", 2120),
        ("MQRC_TOKEN_TIMESTAMP_NOT_VALID", 2064),
        ("MQRC_MSG_LENGTH_ERROR", 2491),
        ("MQRC_HTTPS_KEYSTORE_ERROR", 2604),
        ("MQFB_DATA_LENGTH_TOO_SHORT", 299),
        ("MQFB_IMS_NACK_1A_REASON_LAST", 855),
        ("MQAT_UNKNOWN", -1),
        ("MQAT_DEFAULT", None),
        ("MQPER_PERSISTENCE_AS_PARENT", -1),
        ("MQMT_MQE_FIELDS_FROM_MQE", 112),
        ("mqrc_q_full", None),
        ("MQRC_Q_FUL", None),
    ],
)
def test_value_of_name(name: str, value: int | None) -> None:
    """Names are exact, synonyms and negative values included; MQAT_DEFAULT is not offered."""
    assert constant_value(name) == value


@pytest.mark.parametrize(
    ("family", "value", "name"),
    [
        ("MQAT", 2, "MQAT_ZOS"),
        ("MQAT", 6, "MQAT_UNIX"),
        ("MQAT", 26, "MQAT_BROKER"),
        ("MQMT", 1, "MQMT_REQUEST"),
        ("MQPER", 2, "MQPER_PERSISTENCE_AS_Q_DEF"),
        ("MQRC", 2120, "MQRC_CONVERTED_MSG_TOO_BIG"),
        ("MQRC", 2192, "MQRC_STORAGE_MEDIUM_FULL"),
        ("MQRC", 12345, None),
        ("MQXX", 1, None),
    ],
)
def test_preferred_name(family: str, value: int, name: str | None) -> None:
    """Of several names for one value the one in use today is given."""
    assert constant_name(family, value) == name


def test_reason_name_looks_in_both_families() -> None:
    assert reason_name(2053) == "MQRC_Q_FULL"
    assert reason_name(265) == "MQFB_APPL_CANNOT_BE_STARTED"
    assert reason_name(77) == "77"


def test_names_are_sorted_by_family() -> None:
    names = constant_names("MQMT", "MQPER")
    assert names == sorted({*FAMILIES["MQMT"], *FAMILIES["MQPER"]})
    assert len(constant_names()) == sum(map(len, FAMILIES.values()))


def test_unknown_prefix_has_no_family() -> None:
    assert constant_family("MQRO_NONE") is None
