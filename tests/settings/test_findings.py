"""Every error in a settings file is found, at its place, with what was expected."""

from pathlib import Path

import pytest
from tests.settings.conftest import GOOD, RULES, Check, write_certificates

from redrive.diagnostics import Diagnostic
from redrive.errors import ConfigurationError, UsageError
from redrive.settings import read_settings

SCHEME = "[schemes.mine]\nrecognise = 'x-error'\n"
IN_APPLICATION = GOOD.replace('name = "orders"\n', 'name = "orders"\n{}\n')
IN_KAFKA = GOOD.replace('9092"\n', '9092"\n{}\n')
IN_HANDLER = GOOD + "{}\n"
GROUP_TOPIC = GOOD + "[retry]\ngroup_topic = {}\n"
IN_TRANSFORM = GOOD + "[transforms.a]\n{}"
SIGNED_IN = IN_KAFKA.format(
    'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "alice"\n{}'
)
SECOND_HANDLER = GOOD + '\n[[handlers]]\nqueue = "{}"\nrules = "orders.rul"\n{}\n'


def underlined(finding: Diagnostic) -> str:
    """The part of the line that the caret stands under."""
    start = finding.column - 1
    return finding.source_line[start : start + finding.length]


@pytest.mark.parametrize(
    ("text", "code", "place", "said"),
    [
        (GOOD + "[observe]\nlisten = '9464'\n", "BAD_VALUE", "'9464'", "host:port"),
        (GOOD + "[observe]\nlisten = 'a:65536'\n", "BAD_VALUE", "'a:65536'", "127.0.0.1:9464"),
        (GOOD + "[observe]\nlisten = ':9464'\n", "BAD_VALUE", "':9464'", "host:port"),
        (GROUP_TOPIC.format("'{topic}.retry'"), "BAD_VALUE", "'{topic}.retry'", "{group}"),
        (GROUP_TOPIC.format("'{topic} {group}'"), "BAD_VALUE", "'{topic} {group}'", "{topic}"),
        # Names of tables and keys
        ("aplication = 1\n" + GOOD, "UNKNOWN_KEY", "aplication", "did you mean application?"),
        ("[kafak]\n" + GOOD, "UNKNOWN_KEY", "kafak", "did you mean kafka?"),
        ("hop_limit = 1\n" + GOOD, "UNKNOWN_KEY", "hop_limit", "hop_limit belongs in [job]"),
        (IN_APPLICATION.format("put = 1"), "UNKNOWN_KEY", "put", 'belongs in [queues."NAME"]'),
        (IN_APPLICATION.format("nam = 1"), "UNKNOWN_KEY", "nam", "[application] has no key nam"),
        (IN_HANDLER.format("flood_limit = 1"), "UNKNOWN_KEY", "flood_limit", "0.1.0 was the last"),
        (GOOD + "[job]\nhop_limt = 1", "UNKNOWN_KEY", "hop_limt", "did you mean hop_limit?"),
        (GOOD + "[log]\nlevl = 1", "UNKNOWN_KEY", "levl", "expected: one of format, level, file"),
        (GOOD + "[ledger]\nfolder = 1", "UNKNOWN_KEY", "folder", "enabled, path, interval"),
        (GOOD + "[topology]\nkin = 1", "UNKNOWN_KEY", "kin", "did you mean kind?"),
        (GOOD + "[queues.A]\nmaxdepth = 1", "UNKNOWN_KEY", "maxdepth", "mean max_depth?"),
        (IN_HANDLER.format("rule = 1"), "UNKNOWN_KEY", "rule", "did you mean rules?"),
        # Types
        ("handlers = 1\n", "WRONG_TYPE", "1", "a list of tables, each beginning with [[handlers]]"),
        ("handlers = [1]\n", "WRONG_TYPE", "1", "an element of handlers is a whole number"),
        ("job = 'x'\n" + GOOD, "WRONG_TYPE", "'x'", "expected: a table: [job]"),
        ("queues.A = 1\n" + GOOD, "WRONG_TYPE", "1", 'expected: a table: [queues."NAME"]'),
        (GOOD.replace('"orders"', "true"), "WRONG_TYPE", "true", "name is true or false"),
        (GOOD.replace('"orders"', '""'), "EMPTY", '""', "name is empty"),
        (GOOD + "[job]\ncores = '2'", "WRONG_TYPE", "'2'", "cores is text"),
        (GOOD + "[job]\ncores = true", "WRONG_TYPE", "true", "a whole number from 1 to 1,024"),
        (GOOD + "[job]\ncores = 1.5", "WRONG_TYPE", "1.5", "cores is a number"),
        (GOOD + "[job]\nlenient_rules = 1", "WRONG_TYPE", "1", "true or false, without quotes"),
        (GOOD + "[job]\nemitter = 2020-01-01", "WRONG_TYPE", "2020-01-01", "is a date or time"),
        (GOOD + "[topology]\nqueue_managers = 'A'", "WRONG_TYPE", "'A'", '["QM1", "QM2"]'),
        (GOOD + "[topology]\nqueue_managers = ['A', 1]", "WRONG_TYPE", "1", "an element of"),
        # Ranges
        (GOOD + "[job]\ncores = 0", "OUT_OF_RANGE", "0", "cores is 0"),
        (GOOD + "[job]\nhop_limit = 0", "OUT_OF_RANGE", "0", "from 1 to 999,999,999"),
        (GOOD + "[job]\nmax_records_per_batch = 0", "OUT_OF_RANGE", "0", "from 1 to"),
        (GOOD + "[job]\ndriver_batch_limit = -1", "OUT_OF_RANGE", "-1", "from 0 to"),
        (GOOD + "[job]\npolling_delay = 60.5", "OUT_OF_RANGE", "60.5", "seconds from 0 to 60"),
        (GOOD + "[job]\npolling_delay = nan", "WRONG_TYPE", "nan", "seconds from 0 to 60"),
        (GOOD + "[ledger]\ninterval = 0", "OUT_OF_RANGE", "0", "seconds from 0.1"),
        (GOOD + "[ledger]\npath = 'ftp://a/b'", "BAD_VALUE", "'ftp://a/b'", "one of s3, s3a, abfs"),
        (GOOD + "[ledger]\npath = 's3:/bucket'", "BAD_VALUE", "'s3:/bucket'", "a folder, or a URL"),
        (GOOD + "[ledger]\npath = 'S3//bucket'", "BAD_VALUE", "'S3//bucket'", "a folder, or a URL"),
        (GOOD + "[ledger]\npath = 's3a:bucket'", "BAD_VALUE", "'s3a:bucket'", "a folder, or a URL"),
        (GOOD + "[ledger]\npath = 's3://'", "BAD_VALUE", "'s3://'", "s3://BUCKET/FOLDER"),
        (GOOD + "[ledger]\npath = 's3:///a'", "BAD_VALUE", "'s3:///a'", "s3://BUCKET/FOLDER"),
        (GOOD + "[log]\nfile = 's3://a/b'", "BAD_VALUE", "'s3://a/b'", "the path of a file"),
        (IN_APPLICATION.format("directory = 's3:/a'"), "BAD_VALUE", "'s3:/a'", "path of a file"),
        *(
            (f"{GOOD}[job]\nmaster = '{master}'", "BAD_VALUE", f"'{master}'", "spark://host:7077")
            for master in (
                "spark//x",
                "spark://x",
                "spark:/x:7077",
                "x:7077",
                "spark://x:70777",
                "local[0]",
                "spark://a:1,",
                "local[4",
                "Local",
                "k8s://",
                "http://x:7077",
                "spark://u:p@x:1",
            )
        ),
        (GOOD + "[ledger]\nendpoint = 'minio:9000'", "BAD_VALUE", "'minio:9000'", "https://minio"),
        (GOOD + "[queues.A]\nmax_message_length = -2", "OUT_OF_RANGE", "-2", "104,857,600"),
        (GOOD + "[queues.A]\nmax_depth = -1", "OUT_OF_RANGE", "-1", "from 0 to"),
        # Values
        (GOOD.replace('"orders"', '"or_ders"'), "BAD_VALUE", '"or_ders"', "digits, dots and hyph"),
        (IN_APPLICATION.format("instance = '3/2'"), "BAD_VALUE", "'3/2'", '"1/2" for the first'),
        (IN_APPLICATION.format("instance = 'one'"), "BAD_VALUE", "'one'", "invalid instance"),
        (IN_APPLICATION.format("on_conflict = 'take'"), "BAD_VALUE", "'take'", "refuse, take over"),
        (
            IN_APPLICATION.format("instance = 'auto'\non_conflict = 'refuse'"),
            "WITHOUT_EFFECT",
            "'refuse'",
            "on_conflict has no effect",
        ),
        (IN_APPLICATION.format("instance = 'any'"), "BAD_VALUE", "'any'", 'or "auto"'),
        (GOOD + "[job]\nemitter = 'lane'", "BAD_VALUE", "'lane'", "did you mean lanes?"),
        (GOOD + "[job]\nstarting_offsets = '0'", "BAD_VALUE", "'0'", "earliest, latest"),
        (GOOD + "[job]\non_data_loss = 'x'", "BAD_VALUE", "'x'", "stop, continue"),
        (GOOD + "on_data_loss = 'x'", "BAD_VALUE", "'x'", "stop, continue"),
        (GOOD + "[job]\ndriver_memory = '2'", "BAD_VALUE", "'2'", "such as 512m or 2g"),
        (GOOD + "[log]\nlevel = 'INFO'", "BAD_VALUE", "'INFO'", "did you mean info?"),
        (GOOD + "[log]\nformat = 'xml'", "BAD_VALUE", "'xml'", "text, json"),
        (GOOD + "[topology]\nkind = 'kafak'", "BAD_VALUE", "'kafak'", "did you mean kafka?"),
        (GOOD + "[queues.A]\nput = 'off'", "BAD_VALUE", "'off'", "enabled, disabled"),
        (GOOD + "[job]\nspark_properties = {x = ''}", "UNKNOWN_KEY", "x", "begin with spark."),
        (GOOD + "[job]\nspark_properties = {'spark.a' = 1}", "WRONG_TYPE", "1", "whole number"),
        (GOOD + "[job]\nenrichment = 'json'", "BAD_VALUE", "'json'", "package.module:function"),
        (GOOD + "[job]\nenrichment = 'jso:x'", "BAD_VALUE", "'jso:x'", "No module named 'jso'"),
        (GOOD + "[job]\nenrichment = 'json:lo'", "BAD_VALUE", "'json:lo'", "no attribute 'lo'"),
        (GOOD + "[job]\nenrichment = 'json:__doc__'", "BAD_VALUE", "'json:__doc__'", "json:__doc_"),
        # Schemes of one's own
        (GOOD + "[schemes.a]\n", "MISSING", "a", "either recognise or assume"),
        (GOOD + SCHEME + "assume = 'x'", "BAD_VALUE", "'x'", "dead letter"),
        (GOOD + SCHEME + "topic = 'x'", "UNKNOWN_KEY", "topic", "[schemes.NAME] has no key topic"),
        (GOOD + SCHEME + "origin.topik = 'x'", "UNKNOWN_KEY", "topik", "did you mean topic?"),
        (GOOD + SCHEME + "group = 1", "WRONG_TYPE", "1", "a header such as"),
        (GOOD + SCHEME + "group = '$..x'", "BAD_VALUE", "'$..x'", "cannot be read: ..x is neither"),
        (GOOD + SCHEME + "attempts = 'n as txt'", "BAD_VALUE", "'n as txt'", "decimal, int32be"),
        (GOOD + SCHEME + "payload = 'x'", "BAD_VALUE", "'x'", "$.payload"),
        (GOOD + SCHEME + "drops_headers = true", "MISSING", "true", "origin does not say"),
        (GOOD + "[schemes.connect]\nrecognise = 'x'", "BAD_VALUE", "connect", "a known scheme"),
        # Transformations
        (GOOD + "[transforms.a]\n", "MISSING", "a", "either json_patch or python"),
        (GOOD + "[transforms.'a b']\npython = 'json:loads'", "BAD_VALUE", "'a b'", "underscores"),
        (IN_TRANSFORM.format("python = 'json'"), "BAD_VALUE", "'json'", "package.module:function"),
        (IN_TRANSFORM.format("python = 'json:lo'"), "BAD_VALUE", "'json:lo'", "no attribute 'lo'"),
        (IN_TRANSFORM.format("json_patch = 'no.json'"), "BAD_VALUE", "'no.json'", "cannot be read"),
        (IN_TRANSFORM.format("json_patch = 'orders.rul'"), "BAD_VALUE", "'orders.rul'", "not JSON"),
        # Brokers and how to sign in
        (GOOD.replace(":9092", ""), "BAD_VALUE", '"localhost"', "host:port"),
        (GOOD.replace("9092", "99999"), "BAD_VALUE", '"localhost:99999"', "not an address"),
        (GOOD.replace("9092", "9092,"), "BAD_VALUE", '"localhost:9092,"', "an address is empty"),
        (IN_KAFKA.format("security_protocol = 'TLS'"), "BAD_VALUE", "'TLS'", "SASL_PLAINTEXT"),
        (IN_KAFKA.format("sasl_username = 'a'"), "WITHOUT_EFFECT", "sasl_username", "no effect wi"),
        (IN_KAFKA.format("ssl_ca_file = 'ca'"), "WITHOUT_EFFECT", "ssl_ca_file", "SSL or SASL_SSL"),
        (
            IN_KAFKA.format("security_protocol = 'SSL'\nssl_ca_file = 'ca.pem'"),
            "MISSING_FILE",
            "'ca.pem'",
            "there is no file ca.pem",
        ),
        (SIGNED_IN.format(""), "MISSING", "[kafka]", "[kafka] needs sasl_password_file"),
        (
            SIGNED_IN.format("sasl_password_file = 'kafka.key'"),
            "MISSING_FILE",
            "'kafka.key'",
            "there is no file kafka.key",
        ),
        (SIGNED_IN.format("sasl_password_file = '.'"), "UNREADABLE_FILE", "'.'", "cannot be read:"),
        # Environment variables
        (GOOD.replace("localhost", "${HOST}"), "UNSET_VARIABLE", '"${HOST}:9092"', "export HOST"),
        (GOOD.replace("localhost", "${A B}"), "BAD_VALUE", '"${A B}:9092"', "'A B' is not a valid"),
        # Handlers
        (GOOD.replace("orders.rul", "order.rul"), "MISSING_FILE", '"order.rul"', "mean orders.rul"),
        (GOOD.replace("orders.rul", "x/y"), "MISSING_FILE", '"x/y"', "there is no folder x either"),
        (GOOD.replace("orders.rul", "."), "UNREADABLE_FILE", '"."', "cannot be read: Is a dir"),
        (GOOD.replace('rules = "orders.rul"', ""), "MISSING", "[[handlers]]", "needs rules"),
        (GOOD.replace('queue = "ORDERS.DLQ"', ""), "MISSING", "[[handlers]]", "needs queue"),
        (GOOD.replace("ORDERS.DLQ", "A B"), "BAD_VALUE", '"A B"', "'A B' is not a valid name of a"),
        (GOOD.replace("ORDERS.DLQ", ".."), "BAD_VALUE", '".."', "not a valid name of a topic"),
        (GOOD.replace("ORDERS.DLQ", "x" * 250), "BAD_VALUE", f'"{"x" * 250}"', "up to 249"),
        (
            GOOD.replace("ORDERS.DLQ", "redrive-a-outcomes"),
            "RESERVED",
            '"redrive-a-outcomes"',
            "belongs to Redrive",
        ),
        (GOOD.replace("ORDERS.DLQ", "__offsets"), "RESERVED", '"__offsets"', "Kafka itself"),
        (SECOND_HANDLER.format("ORDERS.DLQ", ""), "DUPLICATE", '"ORDERS.DLQ"', "at line 8"),
        (
            SECOND_HANDLER.format("B", 'name = "ORDERS.DLQ"'),
            "DUPLICATE",
            '"ORDERS.DLQ"',
            "name ORDERS.DLQ already has a handler",
        ),
        (IN_HANDLER.format('name = "a_b"'), "BAD_VALUE", '"a_b"', "letters, digits, dots"),
        (IN_HANDLER.format(f'name = "{"n" * 230}"'), "BAD_VALUE", f'"{"n" * 230}"', "too long or"),
    ],
)
def test_an_error_is_found_at_its_place(
    check: Check, text: str, code: str, place: str, said: str
) -> None:
    findings = [finding for finding in check(text) if finding.code == code]
    assert [underlined(finding) for finding in findings] == [place]
    assert said in findings[0].render()
    assert findings[0].file == "redrive.toml"
    assert text.splitlines()[findings[0].line - 1].startswith(findings[0].source_line[:3])


def test_a_finding_is_shown_with_its_line_and_a_caret(check: Check) -> None:
    (finding,) = check(GOOD + "[job]\n  emitter = 'lane' # ?\n")
    assert finding.render() == (
        "redrive.toml:11:13: error: 'lane' is not a valid emitter [BAD_VALUE]\n"
        "      emitter = 'lane' # ?\n"
        "                ^~~~~~\n"
        "    expected: one of auto, driver, lanes\n"
        "    hint: did you mean lanes?"
    )


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ('name = "orders"', "[application] needs name"),
        ('bootstrap_servers = "localhost:9092"', "[kafka] needs bootstrap_servers"),
    ],
)
def test_a_missing_key_is_shown_at_its_table(check: Check, gone: str, said: str) -> None:
    (finding,) = check(GOOD.replace(gone, ""))
    assert finding.code == "MISSING"
    assert said in finding.message
    assert underlined(finding) in {"[application]", "[kafka]"}


def test_an_empty_file_lacks_three_things(check: Check) -> None:
    findings = check("")
    assert [finding.subject for finding in findings] == ["name", "bootstrap_servers", "handlers"]
    assert {finding.location for finding in findings} == {"redrive.toml"}


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


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('[application]\nname "orders"\n', "redrive.toml:2:6"),
        ("[application\n", "redrive.toml:1:13"),
        ("a = 1\na = 2\n", "redrive.toml:2:6"),
        ('a = """x\n', "redrive.toml:1"),
    ],
)
def test_a_file_that_is_no_toml_is_reported_where_it_breaks(
    check: Check, text: str, location: str
) -> None:
    (finding,) = check(text)
    assert finding.code == "SYNTAX"
    assert finding.location == location


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


@pytest.mark.parametrize(
    ("rules", "location", "said"),
    [
        (
            "* forward\nREASON(1) ACTION(FWD) +\n  FWDQ(ORDERS.DLQ)\n" + RULES,
            "orders.rul:3:3",
            "FORWARD_TO_OWN_QUEUE",
        ),
        (
            "DIALECT(KAFKA)\nTOPIC(a) ACTION(FWD) FWDT('ORDERS.DLQ')\nACTION(IGNORE)\n",
            "orders.rul:2:22",
            "FORWARD_TO_OWN_QUEUE",
        ),
        (
            "REASON(1) ACTION(FWD) FWDQ(ORDERS.DLQ) FWDQM(QM1)\n" + RULES,
            "orders.rul:1:23",
            "FORWARD_TO_OWN_QUEUE",
        ),
        (
            "REASON(1) ACTION(RETRY)\n" + "REASON(2) PUTAUT ( CTX ) ACTION(RETRY)\n" + RULES,
            "orders.rul:2:11",
            "allow_context_authority = true in [job]",
        ),
    ],
)
def test_a_table_that_cannot_be_honoured_is_refused_at_the_rule(
    check: Check, rules: str, location: str, said: str
) -> None:
    Path("orders.rul").write_text(rules)
    (finding,) = (error for error in check(GOOD) if error.severity == "error")
    assert finding.location == location
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


def test_settings_of_a_cluster_are_checked_as_those_of_kafka(check: Check) -> None:
    findings = check(GOOD + "[clusters.eu]\n[clusters.'a:b']\nbootstrap_servers = 'eu'\n")
    errors = [
        (error.code, error.line - GOOD.count("\n"))
        for error in findings
        if error.severity == "error"
    ]
    assert errors == [("MISSING", 1), ("BAD_VALUE", 2), ("BAD_VALUE", 3)]


@pytest.mark.parametrize(
    ("handler", "cluster", "is_shared"),
    [("to", "retry", True), ("to", "retry-backoff", True), ("to-x", "2Dx-replay", True),
     ("to", "eu", False), ("orders", "retry", False)],
)  # fmt: skip
def test_a_cluster_and_a_handler_may_not_share_a_topic(
    check: Check, handler: str, cluster: str, *, is_shared: bool
) -> None:
    settings = GOOD.replace("queue = ", f'name = "{handler}"\nqueue = ', 1)
    findings = check(settings + f"[clusters.{cluster}]\nbootstrap_servers = 'eu:9092'\n")
    errors = [
        (error.code, error.line - settings.count("\n"))
        for error in findings
        if error.severity == "error"
    ]
    assert errors == [("CONFLICT", 1)] * is_shared


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
CLIENT = "ssl_certificate_file = 'client.pem'\nssl_key_file = '{}'\n"


@pytest.mark.parametrize("table", ["kafka", "clusters", "schema_registry"])
@pytest.mark.parametrize(
    ("lines", "code", "place", "said"),
    [
        ("ssl_certificate_file = 'client.pem'", "MISSING", "", "needs ssl_key_file"),
        ("ssl_key_file = 'client.key'", "MISSING", "", "needs ssl_certificate_file"),
        (CLIENT.format("none.key"), "MISSING_FILE", "'none.key'", "there is no file none.key"),
        (
            CLIENT.format("traditional.key"),
            "UNREADABLE_FILE",
            "'traditional.key'",
            "openssl pkcs8 -topk8",
        ),
        (
            CLIENT.format("scrypt.key") + "ssl_key_password = '${WRONG}'",
            "UNREADABLE_FILE",
            "'scrypt.key'",
            "Java cannot read",
        ),
        (
            CLIENT.format("client.key").replace("client.pem", "expired.pem"),
            "EXPIRED",
            "'expired.pem'",
            "has expired at 2024-02-01 00:00:00 UTC",
        ),
        (
            CLIENT.format("client.key").replace("client.pem", "damaged.pem"),
            "UNREADABLE_FILE",
            "'damaged.pem'",
            "is damaged",
        ),
        (CLIENT.format("damaged.key"), "UNREADABLE_FILE", "'damaged.key'", "is damaged"),
        (CLIENT.format("stranger.key"), "BAD_VALUE", "'stranger.key'", "does not belong"),
        (CLIENT.format("encrypted.key"), "MISSING", "", "needs ssl_key_password_file"),
        (
            CLIENT.format("encrypted.key") + "ssl_key_password = '${WRONG}'",
            "UNREADABLE_FILE",
            "'encrypted.key'",
            "its password is wrong",
        ),
        (
            CLIENT.format("encrypted.key") + "ssl_key_password = 'hunter2'",
            "SECRET_IN_FILE",
            "",
            "does not belong in the settings file",
        ),
        (
            CLIENT.format("client.key") + "ssl_key_password = '${WRONG}'",
            "WITHOUT_EFFECT",
            "ssl_key_password",
            "is not encrypted",
        ),
        (
            CLIENT.format("client.key").replace("client.pem", "traditional.key"),
            "UNREADABLE_FILE",
            "'traditional.key'",
            "has no readable certificate in PEM",
        ),
    ],
)
def test_a_client_certificate_is_checked_before_the_start(
    check: Check, table: str, lines: str, code: str, place: str, said: str
) -> None:
    write_certificates(Path())
    key = Path("client.key").read_text()
    Path("damaged.key").write_text(key[:60] + key[64:])
    certificate = Path("client.pem").read_text()
    Path("damaged.pem").write_text(certificate[:400] + "\n-----END CERTIFICATE-----\n")
    Path("scrypt.key").write_text(SCRYPT)
    text = {
        "kafka": IN_KAFKA.format(f"security_protocol = 'SSL'\n{lines}"),
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


@pytest.mark.parametrize(
    ("name", "value", "code", "said"),
    [
        ("client.rack", "1", "WRONG_TYPE", "write it in quotes"),
        ("send.buffer.bytes", "'5'", "BAD_VALUE", "from 16,384"),
        ("send.buffer.bytes", "'many'", "BAD_VALUE", "a whole number"),
        ("metadata.recovery.strategy", "'x'", "BAD_VALUE", "one of none, rebootstrap"),
        ("client.id", "' '", "BAD_VALUE", "expected: text"),
        ("clientid", "'x'", "REFUSED_PROPERTY", "did you mean client.id?"),
        ("bootstrap.servers", "'a:1'", "REFUSED_PROPERTY", "bootstrap_servers of this table"),
        ("security.protocol", "'SSL'", "REFUSED_PROPERTY", "security_protocol of this table"),
        ("sasl.jaas.config", "'x'", "REFUSED_PROPERTY", "sign in all clients"),
        ("ssl.truststore.location", "'x'", "REFUSED_PROPERTY", "ssl_ca_file"),
        ("ssl.key.password", "'x'", "REFUSED_PROPERTY", "ssl_key_file"),
        ("ssl.cipher.suites", "'x'", "REFUSED_PROPERTY", "Java and OpenSSL"),
        ("ssl.engine.factory.class", "'x'", "REFUSED_PROPERTY", "not all clients"),
        *(
            (name, "'x'", "REFUSED_PROPERTY", "exactly once")
            for name in (
                "acks",
                "allow.auto.create.topics",
                "auto.offset.reset",
                "enable.auto.commit",
                "enable.idempotence",
                "group.id",
                "group.instance.id",
                "isolation.level",
                "max.in.flight.requests.per.connection",
                "partition.assignment.strategy",
                "transaction.timeout.ms",
                "transactional.id",
            )
        ),
        ("request.timeout.ms", "'x'", "REFUSED_PROPERTY", "deadlines"),
        ("retry.backoff.ms", "'x'", "REFUSED_PROPERTY", "deadlines"),
        ("retries", "'x'", "REFUSED_PROPERTY", "deadlines"),
        ("reconnect.backoff.max.ms", "'x'", "REFUSED_PROPERTY", "deadlines"),
        ("linger.ms", "'x'", "REFUSED_PROPERTY", "clients read and write"),
        ("key.deserializer", "'x'", "REFUSED_PROPERTY", "Java classes"),
        ("interceptor.classes", "'x'", "REFUSED_PROPERTY", "Java classes"),
        ("anything", "'x'", "REFUSED_PROPERTY", "not a property of all"),
    ],
)
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


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"oauth_endpoint": ""}, "MISSING", "[kafka] needs oauth_endpoint"),
        ({"oauth_client_id": ""}, "MISSING", "[kafka] needs oauth_client_id"),
        ({"oauth_client_secret": ""}, "MISSING", "[kafka] needs oauth_client_secret_file"),
        ({"oauth_client_secret": "'hunter2'"}, "SECRET_IN_FILE", "a secret does not belong"),
        ({"oauth_client_secret_file": "'x'"}, "CONFLICT", "oauth_client_secret_file"),
        ({"oauth_endpoint": "'idp/token'"}, "BAD_VALUE", "https://"),
        ({"oauth_endpoint": "'https://a:b@idp/token'"}, "BAD_VALUE", "without a user"),
        ({"oauth_ca_file": "'none.pem'"}, "MISSING_FILE", "there is no file none.pem"),
        ({"sasl_username": "'me'"}, "WITHOUT_EFFECT", "sasl_mechanism OAUTHBEARER"),
    ],
)
def test_client_credentials_are_checked_before_the_start(
    check: Check, change: dict[str, str], code: str, said: str
) -> None:
    lines = [f"{key} = {value}" for key, value in {**TOKENS, **change}.items() if value]
    text = IN_KAFKA.format("\n".join(["security_protocol = 'SASL_SSL'", *lines]))
    finding, *others = check(text)
    assert finding.code == code
    assert said in finding.render()
    assert {other.code for other in others} <= {"MISSING_FILE"}
    assert "hunter2" not in finding.render()


BY_FUNCTION = IN_KAFKA.format(
    "security_protocol = 'SASL_SSL'\nsasl_mechanism = 'OAUTHBEARER'\n"
    "oauth_token_function = '{}'\n{}"
)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("json:lo", "has no attribute 'lo'"),
        ("no.such.module:token", "No module named 'no'"),
        ("json:__doc__", "json:__doc__ is not a function"),
        ("json", "package.module:function"),
    ],
)
def test_a_token_function_is_imported_before_the_start(
    check: Check, function: str, said: str
) -> None:
    (finding,) = check(BY_FUNCTION.format(function, ""))
    assert (finding.code, underlined(finding)) == ("BAD_VALUE", f"'{function}'")
    assert said in finding.render()


def test_a_token_function_goes_with_no_client_credentials(check: Check) -> None:
    assert check(BY_FUNCTION.format("json:loads", "")) == ()
    (finding,) = check(BY_FUNCTION.format("json:loads", "oauth_client_id = 'me'"))
    assert finding.code == "WITHOUT_EFFECT"
    assert "tokens come from oauth_token_function" in finding.render()


def test_kerberos_is_refused_with_the_reason(check: Check) -> None:
    (finding,) = check(IN_KAFKA.format("security_protocol = 'SASL_SSL'\nsasl_mechanism = 'GSSAPI'"))
    assert (finding.code, underlined(finding)) == ("BAD_VALUE", "'GSSAPI'")
    assert "packages of confluent-kafka" in finding.render()
    assert "SCRAM-SHA-512" in finding.hint


def test_tokens_have_no_effect_with_another_mechanism(check: Check) -> None:
    (finding,) = check(SIGNED_IN.format("sasl_password = '${KAFKA_PASSWORD}'\noauth_scope = 'a'"))
    assert finding.code == "WITHOUT_EFFECT"
    assert "OAUTHBEARER" in finding.render()


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GOOD.replace('"localhost:9092"', '"${LIST}"'), "LIST"),
        (GOOD.replace('"localhost:9092"', '"localhost:9092,${WORD}"'), "WORD"),
        (GOOD.replace("orders.rul", "${FOLDER}/orders.rul"), "FOLDER"),
        (GOOD.replace("ORDERS.DLQ", "${WORD}/x"), "WORD"),
        (GOOD + "[topology]\nkind = 'mq'\nfiles = ['${FOLDER}/a.mqsc']", "FOLDER"),
        (GOOD + "[job]\nenrichment = '${WORD}:run'", "WORD"),
        (GOOD + "[job]\nmaster = 'spark//${WORD}'", "WORD"),
        (GOOD + "[ledger]\npath = '${WORD}://bucket'", "WORD"),
        (GOOD + "[ledger]\npath = 's3:/${WORD}'", "WORD"),
        (GOOD + "[mask]\npatterns = ['(${WORD}']", "WORD"),
        (GOOD + "[schemes.mine]\nrecognise = 'x'\npayload = '$.a ${WORD}'", "WORD"),
        (GOOD + "[transforms.a]\njson_patch = '${FOLDER}/fix.json'", "FOLDER"),
        (GOOD + "[kafka.properties]\n'client.dns.lookup' = '${WORD}'", "WORD"),
        (IN_APPLICATION.format("instance = '${WORD}'"), "WORD"),
        (
            IN_KAFKA.format("security_protocol = 'SSL'\nssl_ca_file = '${FOLDER}/ca'"),
            "FOLDER",
        ),
    ],
)
def test_a_value_of_a_variable_is_never_shown(check: Check, text: str, name: str) -> None:
    findings = check(text, VARIABLES)
    shown = "".join(finding.render() + repr(finding) for finding in findings)
    assert f"${{{name}}}" in shown
    assert "hunter2" not in shown.lower()


def test_another_key_may_be_refused_for_the_value_of_a_variable(check: Check) -> None:
    text = SECOND_HANDLER.format("Hunter2", "").replace("ORDERS.DLQ", "${WORD}")
    (finding,) = check(text, VARIABLES)
    assert "${WORD} already has a handler" in finding.render()
