"""What a settings file says becomes the configuration of the job."""

import json
from pathlib import Path

import pytest
from tests.configurations import write_settings
from tests.settings.conftest import (
    ENVIRON,
    GOOD,
    KEYS,
    PASSWORD,
    RULES,
    Check,
    findings_of,
    write_certificates,
)

from redrive.checkpoints.instances import Share
from redrive.configuration import Conflict, EmitterChoice, JobConfiguration, RemoteFolder
from redrive.engine.breaker import BreakerSettings
from redrive.engine.decision import TimestampMode
from redrive.engine.names import HandlerIdentity
from redrive.errors import ConfigurationError
from redrive.forms import keys_of
from redrive.messages.schemes.scheme import NAMES
from redrive.rules import parse
from redrive.settings import (
    Document,
    Option,
    Settings,
    read_settings,
    read_settings_for_topic,
    settings_of,
)
from redrive.settings.rules import separated
from redrive.settings_file import SchemeEntry
from redrive.topology.put import QueueLimits

EVERYTHING = """\
[application]
name = "orders"
instance = "${INSTANCE}"
on_conflict = "take over"
take_over = "old-shop"
beside = true
directory = "state"
[kafka]
bootstrap_servers = "one:9092, two:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-256"
sasl_username = "alice"
sasl_password = "${KAFKA_PASSWORD}"
ssl_ca_file = "ca.pem"
ssl_certificate_file = "client.pem"
ssl_key_file = "encrypted.key"
ssl_key_password = "${KAFKA_PASSWORD}"
[kafka.properties]
"client.id" = "orders"
[clusters.eu]
bootstrap_servers = "three:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "OAUTHBEARER"
oauth_endpoint = "https://idp.example/token"
oauth_client_id = "bob"
oauth_client_secret = "${KAFKA_PASSWORD}"
oauth_scope = "kafka"
oauth_ca_file = "ca.pem"
ssl_ca_file = "ca.pem"
ssl_certificate_file = "client.pem"
ssl_key_file = "encrypted.key"
ssl_key_password = "${KAFKA_PASSWORD}"
[clusters.eu.properties]
"client.rack" = "eu-1"
[[handlers]]
queue = "ORDERS.DLQ"
queue_manager = "QM1"
rules = "orders.rul"
name = "first"
breaker = 20
probe_interval = 5.5
held_keys = false
origin_topic = "ORDERS"
on_data_loss = "stop"
timestamp = "keep"
[queues."OTHER"]
put = "disabled"
max_message_length = 4194304
max_depth = 5000
consumer_group = "billing"
[schemes.mine]
recognise = "x-error"
drops_headers = true
payload = "$.payload as base64"
origin = {topic = "x-topic", partition = "x-partition", offset = "x-offset"}
error.class = "$.error.class"
group = "x-group"
connector = "x-connector"
task = "x-task"
stage = "x-stage"
attempts = "x-attempts as int32be"
first_failed_at = "x-first as iso8601"
failed_at = "x-time"
disposition = "x-disposition"
[mask]
patterns = ["[0-9]{16}"]
headers = ["authorization"]
[topology]
kind = "kafka"
failed_commands = "refuse"
on_undeliverable = "keep aside"
queue_managers = ["QM1", "QM2"]
dead_letter_queue = "DEAD"
[job]
hop_limit = 5
emitter = "lanes"
max_records_per_batch = 1000
reevaluation_rate = 250
driver_batch_limit = 10
slice_records = 500
slice_bytes = 1000000
slice_seconds = 2
starting_offsets = "latest"
on_data_loss = "continue"
polling_delay = 1
cores = 4
master = "local[4]"
driver_memory = "4g"
spark_ui = true
watch = true
spark_properties = {"spark.ssl.keyPassword" = "${KAFKA_PASSWORD}"}
enrichment = "json:loads"
allow_context_authority = true
lenient_rules = true
[retry]
group_topic = "again-{group}-{topic}"
[supervision]
stalled_after = 30
exit_after = 0
wait_for_broker = true
[observe]
listen = "0.0.0.0:9464"
retention_alarm = 12
[transforms.parsed]
python = "json:loads"
[ledger]
enabled = false
path = "s3://team/ledger/"
interval = 1.5
endpoint = "https://minio:9000"
region = "eu-central-1"
allow_http = true
[log]
format = "json"
level = "debug"
file = "redrive.log"
[schema_registry]
url = "https://registry:8081"
username = "alice"
password = "${KAFKA_PASSWORD}"
ssl_ca_file = "ca.pem"
ssl_certificate_file = "client.pem"
ssl_key_file = "encrypted.key"
ssl_key_password = "${KAFKA_PASSWORD}"
"""

EXCLUDED = {
    ("kafka", "sasl_password_file"),
    *(
        (name, key)
        for name in ("kafka", "schema_registry")
        for key in KEYS[name]
        if key.startswith("oauth_")
    ),
    ("clusters", "oauth_client_secret_file"),
    ("clusters", "oauth_token_function"),
    *(("clusters", key) for key in ("sasl_username", "sasl_password", "sasl_password_file")),
    ("topology", "files"),
    ("handlers", "exclude"),
    ("handlers", "max_topics"),
    ("schemes", "assume"),
    ("transforms", "json_patch"),
    ("schema_registry", "password_file"),
    ("kafka", "ssl_key_password_file"),
    ("clusters", "ssl_key_password_file"),
    ("schema_registry", "ssl_key_password_file"),
}
"""Keys that contradict others in the file with everything; they have tests of their own."""


def read(text: str, options: tuple[Option, ...] = ()) -> Settings:
    path = Path("redrive.toml")
    path.write_text(text)
    return read_settings(path, options=options, environ=ENVIRON)


@pytest.fixture
def everything(folder: Path) -> Settings:
    write_certificates(folder)
    return read(EVERYTHING)


def test_a_small_file_is_enough(folder: Path) -> None:
    job = read(GOOD).job
    assert job == JobConfiguration(
        application="orders",
        connection=job.connection,
        handlers=job.handlers,
        directory=folder / ".redrive" / "orders",
        ledger=job.ledger,
    )
    assert job.connection.bootstrap_servers == "localhost:9092"
    assert job.ledger.path == folder / ".redrive" / "orders" / "ledger"
    (handler,) = job.handlers
    assert handler.rules == RULES
    assert handler.identity.topic == "ORDERS.DLQ"
    assert handler.identity.retry_topic == "redrive-orders-ORDERS.DLQ-retry"
    assert handler.identity.remaining_topic == "redrive-orders-ORDERS.DLQ-remaining"


def test_every_setting_arrives(everything: Settings, folder: Path) -> None:
    """A file with every key in it comes to a configuration with every value in it."""
    job = everything.job
    assert (job.share, job.on_conflict, job.take_over, job.beside) == (
        Share(2, 3),
        Conflict.TAKE_OVER,
        "old-shop",
        True,
    )
    assert job.directory == folder / "state"
    assert job.connection.bootstrap_servers == "one:9092,two:9093"
    assert job.connection.sasl_password == PASSWORD
    assert job.connection.ssl_ca_file == str(folder / "ca.pem")
    other = job.clusters["eu"]
    assert everything.registry is not None
    for access in (job.connection, other, everything.registry):
        assert access.ssl_certificate_file == str(folder / "client.pem")
        assert access.ssl_key_file == str(folder / "encrypted.key")
        assert access.ssl_key_password == PASSWORD
    assert job.connection.properties == {"client.id": "orders"}
    assert other.properties == {"client.rack": "eu-1"}
    assert (other.bootstrap_servers, other.oauth_client_id) == ("three:9093", "bob")
    assert (other.oauth_client_secret, other.group) == (PASSWORD, "orders")
    assert (other.oauth_endpoint, other.oauth_scope) == ("https://idp.example/token", "kafka")
    assert other.oauth_ca_file == str(folder / "ca.pem")
    assert job.handlers[0].identity.name == "first"
    assert job.handlers[0].identity.queue_manager == "QM1"
    assert job.handlers[0].breaker == BreakerSettings(20, probe_interval=5.5)
    assert job.handlers[0].timestamp == TimestampMode.KEEP
    assert job.queue_managers == ("QM1", "QM2")
    limits = QueueLimits(
        put_enabled=False, max_message_length=4194304, max_depth=5000, consumer_group="billing"
    )
    assert job.limits == {"OTHER": limits}
    (scheme,) = job.schemes
    assert (scheme.name, scheme.recognise, scheme.is_assumed) == ("mine", "x-error", False)
    assert scheme.payload == "$.payload as base64"
    assert scheme.parts["error.class"] == "$.error.class"
    assert (scheme.drops_headers, len(scheme.parts)) == (True, 12)
    assert (job.hop_limit, job.emitter, job.driver_batch_limit) == (5, EmitterChoice.LANES, 10)
    assert (job.max_records_per_batch, job.polling_delay) == (1000, 1.0)
    assert (job.starting_offsets, job.on_data_loss.value) == ("latest", "continue")
    assert job.data_loss_on(job.handlers[0].identity.topic).value == "stop"
    assert (job.cores, job.master, job.driver_memory) == (4, "local[4]", "4g")
    assert (job.slice_records, job.slice_bytes, job.slice_seconds) == (500, 1_000_000, 2.0)
    assert job.reevaluation_rate == 250
    assert (job.spark_ui, job.watch, job.enrichment) == (True, True, "json:loads")
    assert job.spark_properties == {"spark.ssl.keyPassword": PASSWORD}
    assert job.group_topic == "again-{group}-{topic}"
    assert (job.stalled_after, job.exit_after, job.wait_for_broker) == (30.0, 0.0, True)
    assert (job.listen, job.retention_alarm) == ("0.0.0.0:9464", 12.0)
    assert (job.ledger.enabled, job.ledger.interval) == (False, 1.5)
    assert job.ledger.path == RemoteFolder(
        url="s3://team/ledger",
        beside=job.directory / "ledger-projection",
        options={"endpoint": "https://minio:9000", "region": "eu-central-1", "allow_http": "true"},
    )
    assert (everything.log.format.value, everything.log.level.value) == ("json", "debug")
    assert everything.log.file == str(folder / "redrive.log")
    registry = everything.registry
    assert registry is not None
    assert (registry.url, registry.username) == ("https://registry:8081", "alice")
    assert (registry.password, registry.ssl_ca_file) == (PASSWORD, str(folder / "ca.pem"))


def test_the_file_with_everything_uses_every_key() -> None:
    tables = EVERYTHING.replace('[queues."OTHER"]', "[queues]").replace(
        "[[handlers]]", "[handlers]"
    )
    tables = tables.replace("[schemes.mine]", "[schemes]").replace("[clusters.eu", "[clusters")
    tables = tables.replace("[transforms.parsed]", "[transforms]")
    written = Document.from_text(tables, name="", directory=Path()).data
    assert {name: set(table) for name, table in written.items()} == {
        name: {key for key in keys if (name, key) not in EXCLUDED}
        for name, keys in KEYS.items()
        if name
    }


def test_the_description_is_json_without_the_secret(everything: Settings) -> None:
    text = json.dumps(everything.describe())
    assert "alice" in text
    assert PASSWORD not in text


def test_a_password_file_gives_its_first_line(folder: Path) -> None:
    Path("password").write_text("hunter2\r\n")
    write_certificates(folder)
    text = EVERYTHING.replace(
        'sasl_password = "${KAFKA_PASSWORD}"', 'sasl_password_file = "password"'
    )
    assert read(text).job.connection.sasl_password == PASSWORD


SIGN_IN = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "alice"\n'


@pytest.mark.parametrize(
    "line",
    [
        'sasl_password = "hunter2"',
        'sasl_password = ["hunter2"]',
        'sasl_pasword = "hunter2"',
        'sasl_key = "hunter2"',
        'sasl_password "hunter2"',
        "sasl_password: hunter2",
        'sasl_password = "hunter2',
        'sasl_password = """\nhunter2',
        'sasl_password = """\nhunter2\\q"""',
        'sasl_password = "hunter2" nonsense',
        'sasl_mechanism = "${KAFKA_PASSWORD}"',
        'ssl_ca_file = "x"\nsasl_password_file = "x"\nsasl_password = "${KAFKA_PASSWORD}"',
    ],
)
def test_a_secret_is_shown_nowhere(check: Check, line: str) -> None:
    text = GOOD.replace('9092"\n', f'9092"\n{SIGN_IN}{line}\n')
    findings = check(text)
    assert findings
    assert PASSWORD not in "".join(finding.render() + repr(finding) for finding in findings)


def test_no_repr_shows_the_secret(everything: Settings) -> None:
    assert PASSWORD not in repr(everything)


def test_paths_are_relative_to_the_file(folder: Path) -> None:
    Path("conf").mkdir()
    Path("conf/redrive.toml").write_text(GOOD)
    Path("conf/orders.rul").write_text(RULES)
    Path("orders.rul").unlink()
    job = read_settings(Path("conf/redrive.toml")).job
    assert job.handlers[0].rules_name == "conf/orders.rul"
    assert job.directory == folder / "conf" / ".redrive" / "orders"


WITHOUT_QUEUE = GOOD.replace('queue = "ORDERS.DLQ"\n', "")
DEADQ = '[topology]\ndead_letter_queue = "DEAD"\n'
CONTROL = "INPUTQ(FROM.TABLE) INPUTQM(QM9)\n"


@pytest.mark.parametrize(
    ("text", "rules", "queue", "queue_manager"),
    [
        (GOOD + DEADQ, CONTROL + RULES, "ORDERS.DLQ", "QM9"),
        (GOOD + 'queue_manager = "QM1"\n', CONTROL + RULES, "ORDERS.DLQ", "QM1"),
        (WITHOUT_QUEUE + DEADQ, CONTROL + RULES, "FROM.TABLE", "QM9"),
        (WITHOUT_QUEUE + DEADQ, RULES, "DEAD", ""),
        (WITHOUT_QUEUE + DEADQ, "INPUTQ(' ')\n" + RULES, "DEAD", ""),
    ],
)
def test_settings_win_over_the_table_and_the_table_over_the_queue_manager(
    folder: Path, text: str, rules: str, queue: str, queue_manager: str
) -> None:
    """Argument, then INPUTQ, then the dead-letter queue of the queue manager (specification 2)."""
    Path("orders.rul").write_text(rules)
    identity = read(text).job.handlers[0].identity
    assert (identity.queue, identity.queue_manager) == (queue, queue_manager)


def test_a_handler_is_named_after_its_queue(folder: Path) -> None:
    identity = read(GOOD.replace("ORDERS.DLQ", "orders_dlq")).job.handlers[0].identity
    assert identity.name == "orders_dlq"
    assert identity.retry_topic == "redrive-orders-orders-5Fdlq-retry"


def test_options_win_over_the_file(folder: Path) -> None:
    options = (
        Option(("application", "instance"), "--instance", "2/2"),
        Option(("kafka", "bootstrap_servers"), "--bootstrap-server", "other:9092"),
    )
    job = read(GOOD, options).job
    assert (job.application, str(job.share)) == ("orders", "2/2")
    assert job.connection.bootstrap_servers == "other:9092"


def test_a_wrong_option_is_shown_in_the_command_line(folder: Path) -> None:
    options = (
        Option(("kafka", "bootstrap_servers"), "--bootstrap-server", "here:1"),
        Option(("application", "instance"), "--instance", "two of two"),
    )
    with pytest.raises(ConfigurationError) as caught:
        read(GOOD, options)
    (finding,) = caught.value.diagnostics
    assert finding.render().splitlines()[:3] == [
        "<command line>:1:66: error: invalid instance 'two of two' [BAD_VALUE]",
        "    redrive run -c redrive.toml --bootstrap-server here:1 --instance 'two of two'",
        " " * 69 + "^~~~~~~~~~~~",
    ]


def test_options_alone_are_settings_too(folder: Path) -> None:
    options = [
        Option(("kafka", "bootstrap_servers"), "--bootstrap-server", "localhost:9092"),
        Option(("handlers", 0, "queue"), "--dlq", "a.dlq"),
        Option(("handlers", 0, "rules"), "--rules", "orders.rul"),
        Option(("handlers", 1, "queue"), "--dlq", "b.dlq"),
        Option(("handlers", 1, "rules"), "--rules", "orders.rul"),
        Option(("application", "name"), "--application", "both"),
    ]
    job = settings_of(Document.empty().with_options("redrive run", options)).job
    assert [handler.identity.queue for handler in job.handlers] == ["a.dlq", "b.dlq"]
    assert job.directory == folder / ".redrive" / "both"


def test_a_lenient_table_reaches_the_job_as_a_strict_one(folder: Path) -> None:
    rules = (
        "* REASON(1)ACTION(X) isn't\n\n"
        "REASON(1)ACTION(FWD)+\n FWDQ('A)B''C)')HEADER(NO)\nACTION(RETRY)\n"
    )
    Path("orders.rul").write_text(rules)
    settings = read(GOOD + "[job]\nlenient_rules = true\n")
    strict = parse(settings.job.handlers[0].rules).required()
    lenient = parse(rules, strict=False).required()
    assert strict == lenient
    assert [rule.line for rule in strict.rules] == [3, 5]


def test_separating_clauses_changes_no_data() -> None:
    text = "A(1)B('x)y')C('p)-\n* )q')D(2)\n* E(1)F\n"
    assert separated(text) == "A(1) B('x)y') C('p)-\n* )q') D(2) \n* E(1)F\n"


def test_own_scheme_has_a_setting_for_each_part_of_a_failure(folder: Path) -> None:
    places = "".join(f'{part} = "x-{part}"\n' for part in NAMES)
    [scheme] = read(f'{GOOD}[schemes.own]\nrecognise = "x"\n{places}').job.schemes
    assert scheme.parts == {part: f"x-{part}" for part in NAMES}
    no_parts = {"recognise", "assume", "drops_headers", "payload", "origin", "error"}
    assert keys_of(SchemeEntry).keys() - no_parts <= {*NAMES}


def test_changed_schemes_stand_for_another_table(folder: Path) -> None:
    def id_of(text: str) -> str:
        job = read(text).job
        return job.schemes_id(job.handlers[0])

    assert id_of(GOOD) == ""
    texts = (
        GOOD + '[schemes.a]\nrecognise = "x"\n',
        GOOD + '[schemes.a]\nassume = "dead letter"\n',
        GOOD.replace("[[handlers]]", '[[handlers]]\norigin_topic = "orders"'),
    )
    assert len({*map(id_of, texts)}) == len(texts)


def test_held_keys_are_written_if_a_table_holds_any(folder: Path) -> None:
    del folder
    text = GOOD.replace("[[handlers]]", "[[handlers]]\nheld_keys = true")
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert [diagnostic.code for diagnostic in raised.value.diagnostics] == ["NEEDS_ORDER"]
    Path("orders.rul").write_text("DIALECT(KAFKA) ORDER(KEY)\nACTION(RETRY)\n")
    assert read(text).job.handlers[0].held_keys


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", None),
        ("breaker = 0", None),
        ("breaker = 20", BreakerSettings(20, probe_interval=30)),
        ("breaker = 5\nprobe_interval = 2.5", BreakerSettings(5, probe_interval=2.5)),
        ("probe_interval = 5", None),
    ],
)
def test_a_handler_has_breakers_if_its_settings_say_so(
    folder: Path, lines: str, expected: BreakerSettings | None
) -> None:
    del folder
    settings = read(GOOD.replace("[[handlers]]", f"[[handlers]]\n{lines}"))
    assert settings.job.handlers[0].breaker == expected
    warned = [warning.code for warning in settings.warnings]
    assert warned == (["WITHOUT_EFFECT"] if lines == "probe_interval = 5" else [])


FLEET = GOOD.replace(
    '"ORDERS.DLQ"', "['plain', '/.*[.]dlq/']\nexclude = ['/test[.].*/', 'a+b.dlq']"
)


def test_several_queues_share_one_table(folder: Path) -> None:
    del folder
    job = read_settings(_written(FLEET), asks=False).job
    assert [handler.identity.name for handler in job.handlers] == ["plain"]
    (subscription,) = job.subscriptions
    assert subscription.name == "/.*[.]dlq/"
    existing = [
        "plain",
        "a.dlq",
        "b_c.dlq",
        "test.dlq",
        "a.dlq.x",
        "redrive-orders-x.dlq",
        "__x.dlq",
    ]
    fresh = job.with_topics(existing)
    assert [handler.identity.topic for handler in fresh.handlers] == ["plain", "a.dlq", "b_c.dlq"]
    assert {handler.rules for handler in fresh.handlers} == {job.handlers[0].rules}
    assert fresh.with_topics([*existing, "other"]) is fresh
    assert fresh.with_topics(["plain"]) == job


def test_a_topic_that_is_gone_keeps_its_handler_while_messages_may_wait(folder: Path) -> None:
    del folder
    job = read_settings(
        _written(FLEET.replace("exclude", "max_topics = 2\nexclude")), asks=False
    ).job
    waiting = HandlerIdentity.of("orders", "z_z.dlq").remaining_topic
    fresh = job.with_topics(["b.dlq", "a.dlq", waiting])
    assert [handler.identity.topic for handler in fresh.handlers] == ["plain", "z_z.dlq", "a.dlq"]
    assert job.subscriptions[0].handlers("orders", ["b.dlq", "a.dlq", waiting])[1] == ("b.dlq",)


def test_a_handler_of_its_own_wins_over_a_subscription(folder: Path) -> None:
    del folder
    own = '[[handlers]]\nqueue = "a.dlq"\nrules = "orders.rul"\ntimestamp = "now"\n'
    job = read_settings(_written(FLEET + own), asks=False).job.with_topics(["a.dlq", "b.dlq"])
    modes = {handler.identity.topic: handler.timestamp.value for handler in job.handlers}
    assert modes == {"plain": "auto", "a.dlq": "now", "b.dlq": "auto"}


def test_a_cluster_that_does_not_answer_leaves_subscriptions_without_topics(folder: Path) -> None:
    del folder
    text = FLEET.replace("localhost:9092", "127.0.0.1:1")
    assert [handler.identity.name for handler in read(text).job.handlers] == ["plain"]


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ("queue = '/(/'", ["BAD_VALUE"]),
        ("queue = ['a.dlq', '/[/']\nexclude = ['/+/']", ["BAD_VALUE", "BAD_VALUE"]),
        ("queue = ['a.dlq', 'b.dlq']\nname = 'x'", ["BAD_VALUE"]),
        ("queue = ['a.dlq', 'a.dlq']", []),
        ("queue = []", ["EMPTY"]),
        ("queue = [7]", ["WRONG_TYPE"]),
        ("queue = 7", ["WRONG_TYPE"]),
        ("queue = 'a.dlq'\nexclude = ['b']", ["WITHOUT_EFFECT"]),
        ("queue = '/a/'\nmax_topics = 0", ["OUT_OF_RANGE"]),
        ("queue = ['__a', '/x/']", ["RESERVED"]),
    ],
)
def test_each_mistake_in_a_list_of_queues_is_found(
    folder: Path, lines: str, codes: list[str]
) -> None:
    path = folder / "redrive.toml"
    path.write_text(GOOD.replace('queue = "ORDERS.DLQ"', lines))
    assert [finding.code for finding in findings_of(path, ENVIRON)] == codes


def _written(text: str) -> Path:
    path = Path("redrive.toml")
    path.write_text(text)
    return path


def test_settings_of_a_topic_are_read_although_others_are_wrong(tmp_path: Path) -> None:
    broken = (
        '[schemes.mine]\nrecognise = "x-error"\n'
        '[transforms.fix]\npython = "no.such.module:change"\n'
        '[job]\nenrichment = "no.such.module:enrich"\n'
    )
    path = write_settings(tmp_path, "orders.dlq", rules="ACTION(NOTHING)\n", more=broken)
    settings, problem = read_settings_for_topic(path)
    assert [scheme.name for scheme in settings.job.schemes] == ["mine"]
    assert "errors that do not matter here" in problem
    path.write_text(path.read_text("utf-8").replace('"x-error"', '"$."'), "utf-8")
    with pytest.raises(ConfigurationError):
        read_settings_for_topic(path)
    assert read_settings_for_topic(write_settings(tmp_path, "orders.dlq"))[1] == ""
