"""Networks as YAML text: every finding at once and in its place, and the way back."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.topology.mqe.networks import described_networks, networks
from tests.topology.mqe.texts import network_text

from redrive.topology.mqe.objects import MqeNetwork
from redrive.topology.mqe.reader import check_network, read_network

EVERYTHING = """\
kind: mqe
options: {discovery: off, alias_chains: false, home_server_names: true}
queue_managers:
  - name: Hub
    description: the gateway
    queues:
      - kind: local
        name: Orders
        aliases: [Sales, NO]
        expiry: 60000
        maximum_message_size: 4096
        maximum_messages: 100
        priority: 4
        message_store: MsgLog
        security: {authenticator: A, cryptor: C, compressor: Z}
        active: false
        creation_date: 2004-05-06
      - {kind: local, name: Admin, role: administration}
      - {kind: local, name: Dead, role: dead_letter}
      - {kind: remote, name: Bills, queue_manager: Branch, mode: async, aliases: [Invoices]}
      - kind: store_and_forward
        name: Keep
        queue_manager: Nowhere
        targets: [Till]
        delivery: pull
      - {kind: home_server, name: Keep, queue_manager: Branch, interval: 1000}
      - {kind: bridge, name: MQ.ORDERS, queue_manager: MQ1}
    connections:
      - {kind: direct, name: Branch, adapter: tcp, address: branch, port: 8082, channel: ch,
         aliases: [Shop]}
      - {kind: via, name: Far, via: Branch}
      - {kind: alias, name: Store, of: Branch}
      - {kind: null, name: Service}
      - {kind: mq, name: MQ1, address: mq, port: 1414, channel: SVRCONN}
    aliases:
      - {name: OldHub, of: Hub}
  - name: Branch
    code_base: c
    listeners:
      - {name: L, adapter: tcp, port: 8082}
  - {name: Till, local_queuing: false}
"""


def errors(text: str | bytes) -> list[tuple[str, int, int]]:
    """Code, line and column of every error of a text that gives no network."""
    result = read_network(text, "net.yaml")
    problems = [
        (finding.code, finding.line, finding.column)
        for finding in result.diagnostics
        if finding.severity == "error"
    ]
    assert (result.network is None) is bool(problems)
    return problems


def test_every_object_and_attribute_is_read_and_written() -> None:
    result = read_network(EVERYTHING)
    assert [finding for finding in result.diagnostics if finding.severity == "error"] == []
    assert result.network is not None
    written = network_text(result.network)
    assert yaml.load(written, yaml.BaseLoader) == yaml.load(EVERYTHING, yaml.BaseLoader)  # noqa: S506 - texts only


@given(network=described_networks())
def test_every_attribute_and_name_survives_the_round_trip(network: MqeNetwork) -> None:
    """Names that YAML takes for something else, and any text, come back as they were."""
    result = read_network(network_text(network))
    assert result.network == network, [finding.render() for finding in result.diagnostics]


@given(network=networks())
def test_a_network_is_read_exactly_when_its_check_finds_no_error(network: MqeNetwork) -> None:
    result = read_network(network_text(network))
    codes = [finding.code for finding in check_network(network) if finding.severity == "error"]
    assert result.network == (None if codes else network)
    if codes:
        problems = [
            diagnostic.code for diagnostic in result.diagnostics if diagnostic.severity == "error"
        ]
        assert sorted(problems) == sorted(codes)


def test_a_definition_knows_where_it_was_read() -> None:
    network = read_network(EVERYTHING, "net.yaml").network
    assert network is not None
    hub = network.queue_managers[0]
    assert (str(hub.location), hub.location.length) == ("net.yaml:4:11", 3)
    assert (str(hub.queues[3].location), hub.queues[3].location.length) == ("net.yaml:20:30", 5)


def test_all_findings_come_at_once_and_in_order() -> None:
    text = (
        "kind: mqe\n"
        "queue_managers:\n"
        "  - name: QM\n"
        "    colour: red\n"
        "    queues:\n"
        "      - {kind: local, name: 'a:b'}\n"
        "      - {kind: local}\n"
        "      - {kind: remote, name: Q, queue_manager: QM2, mode: later}\n"
        "      - {kind: local, name: 12, expiry: -5}\n"
        "    connections:\n"
        "      - {kind: via, name: A, via: B}\n"
        "      - {kind: via, name: B, via: A}\n"
        "  - {queues: []}\n"
    )
    assert errors(text) == [
        ("UNKNOWN_KEY", 4, 5),
        ("BAD_NAME", 6, 29),
        ("MISSING", 7, 9),
        ("BAD_VALUE", 8, 59),
        ("WRONG_TYPE", 9, 29),
        ("OUT_OF_RANGE", 9, 41),
        ("VIA_LOOP", 11, 27),
        ("VIA_LOOP", 12, 27),
        ("MISSING", 13, 5),
    ]


def test_a_finding_shows_its_line_with_a_caret_and_what_would_be_right() -> None:
    result = read_network("kind: mqe\nqueue_managers:\n- {nam: QM}\n", "net.yaml")
    finding = next(
        diagnostic for diagnostic in result.diagnostics if diagnostic.code == "UNKNOWN_KEY"
    )
    assert finding.render() == (
        "net.yaml:3:4: error: a queue manager has no key nam [UNKNOWN_KEY]\n"
        "    - {nam: QM}\n"
        "       ^~~\n"
        "    expected: one of code_base, local_queuing, queues, connections, aliases, listeners, "
        "name, description\n"
        "    hint: did you mean name?"
    )


def test_a_flawed_definition_causes_no_findings_about_those_that_refer_to_it() -> None:
    text = (
        "kind: mqe\n"
        "queue_managers:\n"
        "- name: QM\n"
        "  queues: [{kind: remote, name: Q, queue_manager: Far}]\n"
        "  connections: [{kind: direct, name: Far, port: many}]\n"
    )
    assert [finding.code for finding in read_network(text).diagnostics] == ["WRONG_TYPE"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("WRONG_TYPE", 1, 1)),
        ("5", ("WRONG_TYPE", 1, 1)),
        ("kind: mqe\nqueue_managers:\n", ("WRONG_TYPE", 2, 16)),
        ("kind: mqe\nqueue_managers: []\nkind: mqe\n", ("KEY_TWICE", 3, 1)),
        ("kind: mqe\nqueue_managers: &a [{name: QM}]\ntwo: *a", ("ANCHOR", 3, 6)),
        ("kind: mqe\nqueue_managers: []\n---\nmore: 1\n", ("ONE_DOCUMENT", 3, 1)),
        ("kind: mq\nqueue_managers: []\n", ("BAD_VALUE", 1, 7)),
        ("kind: mqe\nqueue_managers: []\n? [a]\n: 1\n", ("KEY_IS_NO_TEXT", 3, 3)),
        ("kind: mqe\n  bad: [", ("SYNTAX", 2, 6)),
        ("kind: mqe\x00", ("SYNTAX", 1, 10)),
        (b"kind: mqe\nname: \xff", ("SYNTAX", 2, 7)),
        ("kind: \ud800", ("SYNTAX", 1, 7)),
        ("[" * 100_000, ("SYNTAX", 1, 22)),
        ("- " * 100_000, ("SYNTAX", 1, 43)),
    ],
)
def test_what_is_no_network_is_reported_where_it_goes_wrong(
    text: str | bytes, expected: tuple[str, int, int]
) -> None:
    """Not YAML, not UTF-8, too deep, or not what YAML is used for here: an error in its place."""
    assert expected in errors(text)


_PIECES = st.sampled_from(
    (
        *"{}[]:,-?&*!|>'\"#%@`~ \n\t",
        *(
            "kind: ",
            "mqe\n",
            "queue_managers:\n",
            "- ",
            "name: ",
            "queues: ",
            "QM",
            "local",
            "null",
        ),
        *(
            "kind: local",
            "aliases: [",
            "of: ",
            "connections:\n",
            "---\n",
            "...\n",
            "!!set",
            "1",
            "\x85",
        ),
    )
)


def test_a_rule_is_refused_as_removed() -> None:
    text = "kind: mqe\nqueue_managers:\n- name: QM\n  rule: gateway.rules:Hub\n"
    (finding,) = read_network(text).diagnostics
    assert (finding.code, finding.line) == ("UNKNOWN_KEY", 4)
    assert finding.message == "rule was removed; 0.1.0 was the last version with it"


@given(
    text=st.lists(_PIECES, max_size=40).map("".join) | st.text(max_size=60) | st.binary(max_size=60)
)
def test_no_text_makes_the_reader_raise(text: str | bytes) -> None:
    result = read_network(text)
    assert (result.network is None) is any(
        diagnostic.severity == "error" for diagnostic in result.diagnostics
    )
    assert all(finding.line >= 1 for finding in result.diagnostics)


@given(data=st.data())
def test_no_damage_to_a_good_text_makes_the_reader_raise(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(EVERYTHING)))
    end = data.draw(st.integers(start, min(len(EVERYTHING), start + 20)))
    result = read_network(EVERYTHING[:start] + data.draw(_PIECES) + EVERYTHING[end:])
    assert (result.network is None) is any(
        diagnostic.severity == "error" for diagnostic in result.diagnostics
    )
