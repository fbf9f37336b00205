"""Every error in a settings file is found, at its place, with what was expected."""

import re
from pathlib import Path

import pytest
from tests.cases import cases_beside
from tests.settings.conftest import GOOD, RULES, Check, write_certificates

from redrive.diagnostics import Diagnostic
from redrive.errors import ConfigurationError, UsageError
from redrive.settings import read_settings

SCHEME = "[schemes.mine]\nrecognise = 'x-error'\n"
SIGNED_IN = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "alice"\n'
BY_FUNCTION = "security_protocol = 'SASL_SSL'\nsasl_mechanism = 'OAUTHBEARER'\n"
in_table = cases_beside(__file__)


def in_kafka(lines: str) -> str:
    """The good settings with lines added to [kafka]."""
    return GOOD.replace('9092"\n', f'9092"\n{lines}\n')


def changed(change: str | dict[str, str]) -> str:
    """The good settings with a change, as the tables write it."""
    ((old, new),) = change.items() if isinstance(change, dict) else [("", change)]
    lines = re.sub(r"^(\[[^=]*?\]) (?=\S)", r"\1\n", new.replace("; ", "\n"), flags=re.MULTILINE)
    whole = {
        "": f"{GOOD}{lines}\n",
        "top": f"{lines}\n{GOOD}",
        "application": GOOD.replace('"orders"\n', f'"orders"\n{lines}\n'),
        "kafka": in_kafka(lines),
        "signed in": in_kafka(SIGNED_IN + lines),
        "token function": in_kafka(f"{BY_FUNCTION}oauth_token_function = '{new}'"),
        "file": lines,
    }
    assert old in whole or GOOD.count(old) == 1
    return whole[old] if old in whole else GOOD.replace(old, lines)


def underlined(finding: Diagnostic) -> str:
    """The part of the line that the caret stands under."""
    start = finding.column - 1
    return finding.source_line[start : start + finding.length]


@in_table
def test_an_error_is_found_at_its_place(
    check: Check, change: str | dict[str, str], code: str, place: str, said: str
) -> None:
    text = changed(change)
    (finding,) = check(text)
    assert (finding.code, underlined(finding)) == (code, place)
    assert said in finding.render()
    assert finding.file == "redrive.toml"
    assert text.splitlines()[finding.line - 1].startswith(finding.source_line[:3])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"ORDERS.DLQ": "x" * 250}, "up to 249"), (f'name = "{"n" * 230}"', "too long or")],
)
def test_a_name_that_no_topic_can_have_is_too_long(
    check: Check, change: str | dict[str, str], said: str
) -> None:
    (finding,) = check(changed(change))
    assert finding.code == "BAD_VALUE"
    assert len(underlined(finding)) > len("n" * 230)
    assert said in finding.render()


def test_a_finding_is_shown_with_its_line_and_a_caret(check: Check) -> None:
    (finding,) = check(GOOD + "[job]\n  emitter = 'lane' # ?\n")
    assert finding.render() == (
        "redrive.toml:11:13: error: 'lane' is not a valid emitter [BAD_VALUE]\n"
        "      emitter = 'lane' # ?\n"
        "                ^~~~~~\n"
        "    expected: one of auto, driver, lanes\n"
        "    hint: did you mean lanes?"
    )


def test_an_empty_file_lacks_three_things(check: Check) -> None:
    findings = check("")
    assert [finding.subject for finding in findings] == ["name", "bootstrap_servers", "handlers"]
    assert {str(finding) for finding in findings} == {"redrive.toml"}


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(check: Check) -> None:
    Path("orders.rul").write_text("REASON(NO_SUCH) ACTION(RETRY)\nACTION(FWD)\n")
    text = GOOD.replace("9092", "x").replace('"orders"', "1") + "[job]\ncores = 0\nemiter = 1\n"
    places = [(finding.file, finding.line) for finding in check(text)]
    assert places == [
        ("redrive.toml", 2),
        ("redrive.toml", 5),
        ("redrive.toml", 11),
        ("redrive.toml", 12),
        ("orders.rul", 1),
        ("orders.rul", 2),
    ]


@in_table
def test_a_file_that_is_no_toml_is_reported_where_it_breaks(
    check: Check, text: str, location: str
) -> None:
    (finding,) = check(text)
    assert finding.code == "SYNTAX"
    assert str(finding) == location


@pytest.mark.parametrize(
    ("name", "said"),
    [("nothing.toml", "there is no settings file nothing.toml"), (".", ". is a folder")],
)
def test_a_file_that_cannot_be_read_is_one_clear_message(
    folder: Path, name: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        read_settings(Path(name))


def test_a_file_in_another_code_page_is_refused(folder: Path) -> None:
    """TOML is UTF-8; the message says at which byte the file is not."""
    Path("latin.toml").write_bytes(b'[application]\nname = "\xe4"\n')
    with pytest.raises(ConfigurationError, match=r"latin\.toml is not UTF-8 at byte 22"):
        read_settings(Path("latin.toml"))


@in_table
def test_a_table_that_cannot_be_honoured_is_refused_at_the_rule(
    check: Check, rules: str, location: str, said: str
) -> None:
    Path("orders.rul").write_text(f"{rules}\n{RULES}")
    (finding,) = (error for error in check(GOOD) if error.severity == "error")
    assert str(finding) == location
    assert said in finding.render()


@pytest.mark.parametrize(
    "rules",
    [
        "REASON(1) ACTION(FWD) FWDQ(ORDERS.DLQ) FWDQM(ELSEWHERE)\n" + RULES,
        "REASON(1) ACTION(FWD) FWDQ(&DESTQ)\n" + RULES,
        "REASON(1) ACTION(IGNORE) PUTAUT(CTX)\n",
    ],
)
def test_a_table_that_may_be_meant_is_not_refused(check: Check, rules: str) -> None:
    Path("orders.rul").write_text(rules)
    findings = check(GOOD + '[topology]\nqueue_managers = ["QM1"]\n')
    assert not [finding for finding in findings if finding.severity == "error"]


def test_rules_may_ask_for_schemes_of_the_settings(check: Check) -> None:
    Path("orders.rul").write_text("DIALECT(KAFKA)\nSCHEME(mine|min) ACTION(IGNORE)\n")
    (finding,) = check(GOOD + SCHEME)
    assert (finding.code, finding.hint) == ("UNKNOWN_SCHEME", "did you mean mine?")


@pytest.mark.parametrize(
    ("rule", "settings", "code", "clause"),
    [
        ("ACTION(RETRY) ", "transforms.loads", "UNKNOWN_TRANSFORM", "TRANSFORM(lods)"),
        ("ACTION(FWD) ", "clusters.loads", "UNKNOWN_CLUSTER", "FWDT('lods:topic')"),
    ],
)
def test_rules_may_name_only_what_the_settings_have(
    check: Check, rule: str, settings: str, code: str, clause: str
) -> None:
    Path("orders.rul").write_text(f"DIALECT(KAFKA)\n{rule}{clause}\n")
    value = "python = 'json:loads'" if "TRANSFORM" in code else "bootstrap_servers = 'eu:9092'"
    findings = check(GOOD + f"[{settings}]\n{value}\n")
    (finding,) = (error for error in findings if error.severity == "error")
    assert (finding.code, finding.hint) == (code, "did you mean loads?")
    assert (finding.line, finding.column, finding.length) == (2, len(rule) + 1, len(clause))


def errors_below(settings: str, more: str, check: Check) -> list[tuple[str, int]]:
    """Code and line of the errors in settings and more of them; lines count from the latter."""
    return [
        (error.code, error.line - settings.count("\n"))
        for error in check(settings + more)
        if error.severity == "error"
    ]


def test_settings_of_a_cluster_are_checked_as_those_of_kafka(check: Check) -> None:
    more = "[clusters.eu]\n[clusters.'a:b']\nbootstrap_servers = 'eu'\n"
    expected = [("MISSING", 1), ("BAD_VALUE", 2), ("BAD_VALUE", 3)]
    assert errors_below(GOOD, more, check) == expected


@pytest.mark.parametrize(
    ("handler", "cluster", "is_shared"),
    [("to", "retry", True), ("to", "retry-backoff", True), ("to-x", "2Dx-replay", True),
     ("to", "eu", False), ("orders", "retry", False)],
)  # fmt: skip
def test_a_cluster_and_a_handler_may_not_share_a_topic(
    check: Check, handler: str, cluster: str, *, is_shared: bool
) -> None:
    settings = GOOD.replace("queue = ", f'name = "{handler}"\nqueue = ', 1)
    more = f"[clusters.{cluster}]\nbootstrap_servers = 'eu:9092'\n"
    assert errors_below(settings, more, check) == [("CONFLICT", 1)] * is_shared


def test_context_authority_is_accepted_when_the_settings_allow_it(check: Check) -> None:
    """With allow_context_authority PUTAUT(CTX) is no finding."""
    Path("orders.rul").write_text("ACTION(RETRY) PUTAUT(CTX)\n")
    findings = check(GOOD + "[job]\nallow_context_authority = true\n")
    assert not [finding for finding in findings if finding.subject == "PUTAUT"]


def test_a_limit_that_nothing_can_reach_is_a_warning(check: Check) -> None:
    (finding,) = check(GOOD + '[queues."A"]\nmax_depth = 10\n')
    assert (finding.severity, finding.code, finding.line) == ("warning", "WITHOUT_EFFECT", 11)


SCRYPT = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHkME8GCSqGSIb3DQEFDTBCMCEGCSsGAQQB2kcECzAUBAiy7z8ZTD1kzAICQAAC
AQgCAQEwHQYJYIZIAWUDBAEqBBB5SRz8A9X4PwVi3tjG87kTBIGQbZMYzDadUoWZ
W4jVVQ0jp7nFuNNIm1y+0CGS5C+ESxvX9TRCaTkZcwnxqPbQC5UK9ApfUQ2BdDfX
FzEGzqp/cEERkfuuedrDleryxRxzd2uOSxH2U484NWZjvGmyKlNj+j/2p4hRe3c8
1T7Vv/eSbN0r32VeDGzI9lUl+DXPAgaGz934HNkXdonB5vNFfJb7
-----END ENCRYPTED PRIVATE KEY-----
"""


@pytest.mark.parametrize("table", ["kafka", "clusters", "schema_registry"])
@in_table
def test_a_client_certificate_is_checked_before_the_start(
    check: Check,
    table: str,
    certificate: str,
    key: str,
    password: str,
    code: str,
    place: str,
    said: str,
) -> None:
    write_certificates(Path())
    good = Path("client.key").read_text()
    Path("damaged.key").write_text(good[:60] + good[64:])
    good = Path("client.pem").read_text()
    Path("damaged.pem").write_text(good[:400] + "\n-----END CERTIFICATE-----\n")
    Path("scrypt.key").write_text(SCRYPT)
    given = {"certificate_file": certificate, "key_file": key, "key_password": password}
    lines = "\n".join(f"ssl_{name} = '{value}'" for name, value in given.items() if value)
    text = {
        "kafka": in_kafka(f"security_protocol = 'SSL'\n{lines}"),
        "clusters": GOOD
        + f"[clusters.eu]\nbootstrap_servers = 'a:1'\nsecurity_protocol = 'SSL'\n{lines}\n",
        "schema_registry": GOOD + f"[schema_registry]\nurl = 'https://r'\n{lines}\n",
    }[table]
    (finding,) = check(text, {"WRONG": "wrong"})
    assert finding.code == code
    assert said in finding.render()
    assert place in underlined(finding)
    assert "hunter2" not in finding.render()


IN_PROPERTIES = GOOD + '[kafka.properties]\n"{}" = {}\n'


@in_table
def test_a_client_property_that_is_wrong_or_refused_is_found_with_the_reason(
    check: Check, name: str, value: str, code: str, said: str
) -> None:
    (finding,) = check(IN_PROPERTIES.format(name, value))
    assert (finding.code, finding.line) == (code, 11)
    assert said in finding.render()
    assert underlined(finding) == (f'"{name}"' if code == "REFUSED_PROPERTY" else value)
    assert code != "REFUSED_PROPERTY" or value not in finding.render()


TOKENS = {
    "sasl_mechanism": "'OAUTHBEARER'",
    "oauth_endpoint": "'https://idp/token'",
    "oauth_client_id": "'me'",
    "oauth_client_secret": "'${KAFKA_PASSWORD}'",
}


@in_table
def test_client_credentials_are_checked_before_the_start(
    check: Check, change: dict[str, str], code: str, said: str
) -> None:
    lines = [f"{key} = {value}" for key, value in {**TOKENS, **change}.items() if value]
    text = in_kafka("\n".join(["security_protocol = 'SASL_SSL'", *lines]))
    finding, *others = check(text)
    assert finding.code == code
    assert said in finding.render()
    assert {other.code for other in others} <= {"MISSING_FILE"}
    assert "hunter2" not in finding.render()


def test_a_token_function_goes_with_no_client_credentials(check: Check) -> None:
    by_function = changed({"token function": "json:loads"})
    assert check(by_function) == ()
    (finding,) = check(by_function.replace("oauth_", "oauth_client_id = 'me'\noauth_"))
    assert finding.code == "WITHOUT_EFFECT"
    assert "tokens come from oauth_token_function" in finding.render()


@pytest.mark.parametrize("path", ["s3://key:hunter2@team/ledger", "gs://team/ledger?key=hunter2"])
def test_credentials_in_the_place_of_a_ledger_are_refused_and_not_shown(
    check: Check, path: str
) -> None:
    (finding,) = check(GOOD + f'[ledger]\npath = "{path}"\n')
    assert (finding.code, "environment" in finding.hint) == ("BAD_VALUE", True)
    assert "hunter2" not in finding.render()


def test_what_only_an_s3_has_is_without_effect_elsewhere(check: Check) -> None:
    for place in ("ledger", "gs://team/ledger"):
        (finding,) = check(GOOD + f'[ledger]\npath = "{place}"\nregion = "eu"\n')
        assert (finding.code, finding.severity) == ("WITHOUT_EFFECT", "warning")


@pytest.mark.parametrize(
    "line",
    [
        "[job]\nmaster = '{}'",
        "[ledger]\npath = '{}'",
        "[log]\nfile = '{}'",
    ],
)
@pytest.mark.parametrize("value", ["local", "local[*,3]", "spark://a:1,[::1]:65535"])
def test_masters_and_folders_have_no_findings(check: Check, line: str, value: str) -> None:
    value = value if "master" in line else "logs:today/s3"
    assert check(GOOD + line.format(value)) == ()


VARIABLES = {"WORD": "Hunter2", "LIST": "localhost:9092,hunter2.example", "FOLDER": "/hunter2/x"}


@in_table
def test_a_value_of_a_variable_is_never_shown(
    check: Check, change: str | dict[str, str], name: str
) -> None:
    findings = check(changed(change), VARIABLES)
    shown = "".join(finding.render() + repr(finding) for finding in findings)
    assert f"${{{name}}}" in shown
    assert "hunter2" not in shown.lower()


def test_another_key_may_be_refused_for_the_value_of_a_variable(check: Check) -> None:
    text = changed('[[handlers]] queue = "Hunter2"; rules = "orders.rul"')
    text = text.replace("ORDERS.DLQ", "${WORD}")
    (finding,) = check(text, VARIABLES)
    assert "${WORD} already has a handler" in finding.render()
