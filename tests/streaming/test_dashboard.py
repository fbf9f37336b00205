"""A real Prometheus reads a real job, and every panel of the dashboard has something to show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
import yaml
from deploy.grafana.draw import picture
from tests.conftest import PATIENCE, eventually
from tests.observe.test_deployed import ALERTS, DASHBOARD, PANELS, RULES
from tests.streaming.conftest import Jobs, RunningJob
from tests.streaming.test_tables import connect

from redrive.broker.configuration import free_port
from redrive.configuration import JobConfiguration, LedgerConfiguration
from redrive.engine.breaker import BreakerSettings
from redrive.observe.observation import Observation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: Final = """\
DIALECT(KAFKA) RETRYINT(1) WAIT(YES)
ERRMSG(back) ACTION(RETRY)
ERRMSG(away) ACTION(RETRY)
ERRMSG(abroad) ACTION(FWD) FWDT('eu:{target}')
ERRMSG(large) ACTION(FWD) FWDT('{target}')
ERRMSG(broken) ACTION(QUARANTINE)
ACTION(IGNORE)
"""
LARGE: Final = 1_000
"""Bytes of a body that the target does not take."""
EMPTY: Final = {
    ("Not read yet, by topic", "C"): "no transaction stays open in the test",
    ("Not read yet, by topic", "B"): "a topic that soon deletes what waits may do so in the test",
    ("Trouble", "E"): "a broker refuses what the job could not foresee: a topic that just changed",
}
"""Queries by panel and letter that have no answer here, and why."""


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus by its API, which has read since some time."""

    port: int
    since: float

    def ask(self, path: str, **parameters: Any) -> Any:
        """What it answers; parameters that are not right are an error."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = json.load(connection.getresponse())
        assert answer["status"] == "success", f"{parameters}: {answer['error']}"
        return answer["data"]

    def is_ready(self) -> bool:
        try:
            with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
                connection.request("GET", "/-/ready")
                return connection.getresponse().status == 200
        except OSError:
            return False

    def labels(self, query: str, *, is_instant: bool) -> list[set[str]]:
        """The labels of each series with a number, as it is now or was since the start."""
        if is_instant:
            series = self.ask("query", query=query)["result"]
        else:
            times = {"start": self.since, "end": time.time(), "step": 1}
            series = self.ask("query_range", query=query, **times)["result"]
        return [
            set(row["metric"])
            for row in series
            if any(number != "NaN" for _, number in row.get("values", [row.get("value")]))
        ]

    def offers(self, query: str, values: list[str]) -> bool:
        """Whether Grafana offers these values for a variable with this query."""
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert match is not None, query
        return bool(self.ask(f"label/{match[2]}/values", **{"match[]": match[1]}) == values)

    def alerts(self) -> dict[str, str]:
        """How the evaluation of each alert went."""
        groups = self.ask("rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


def with_values(query: str, variables: Mapping[str, str]) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda match: variables[match[1]], query)


@contextmanager
def prometheus(folder: Path, page: int) -> Iterator[Prometheus]:
    """One with the alerts that reads a page every second."""
    settings, port = folder / "prometheus.yml", free_port()
    every_second = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    read = {"job_name": "redrive", "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}
    configuration = {"global": every_second, "rule_files": [str(RULES)], "scrape_configs": [read]}
    settings.write_text(yaml.safe_dump(configuration))
    command = [
        "prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    log = folder / "prometheus.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            running = Prometheus(port, time.time())
            eventually(lambda: running.is_ready() or process.poll(), "Prometheus answers")
            assert process.poll() is None, log.read_text()
            yield running
        finally:
            process.kill()


def letters(target: str, missing: str) -> list[dict[str, Any]]:
    """A dead letter for each rule; the last record is none."""
    dead_letters = [
        connect(target, group, value=b"x") for group in ("back", "abroad", "broken", "other")
    ]
    dead_letters.append(connect(target, "large", value=os.urandom(LARGE)))
    return [*dead_letters, connect(missing, "away", value=b"x"), {"value": b"no dead letter"}]


@pytest.fixture
def configuration(jobs: Jobs, tmp_path: Path) -> JobConfiguration:
    """A job that does all that the dashboard shows, with a handler whose topic is missing."""
    dlq, target = (
        jobs.topic("dlq"),
        jobs.topic("target", config={"max.message.bytes": str(LARGE // 2)}),
    )
    configuration: JobConfiguration = jobs.configure(
        dict.fromkeys((dlq, f"{dlq}.missing"), TABLE.format(target=target)),
        clusters={"eu": jobs.connection},
        ledger=LedgerConfiguration(path=tmp_path / "ledger", interval=1.0),
        listen="127.0.0.1:0",
    )
    breaker = BreakerSettings(failures=1)
    handlers = tuple(replace(handler, breaker=breaker) for handler in configuration.handlers)
    return replace(configuration, handlers=handlers)


@pytest.fixture
def page(
    configuration: JobConfiguration, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """The port of the page of a job that runs, and looks every second at what waits."""
    for name in ("_FIRST", "_AGE"):
        monkeypatch.setattr(f"redrive.observe.observation.{name}", 1.0)
    with Observation(configuration) as observation:
        observation.listen()
        assert observation.page is not None
        job = RunningJob(configuration, spark)
        observation.start(job.control)
        job.start()
        yield observation.page.port
        job.stop()


def choices(answers: Prometheus, offers: Mapping[str, list[str]]) -> dict[str, str]:
    """The values of the dashboard's variables with all chosen that they are to offer."""
    chosen = {"__rate_interval": "5m"}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            name, query = variable["name"], with_values(variable["query"]["query"], chosen)
            expected = offers[name]
            offer = partial(answers.offers, query, expected)
            eventually(offer, f"${name} offers {expected}")
            chosen[name] = "|".join(map(re.escape, expected)).replace("\\", r"\\")
    return chosen


def test_every_query_of_the_dashboard_has_an_answer_and_every_alert_is_evaluated(
    jobs: Jobs, configuration: JobConfiguration, page: int, tmp_path: Path
) -> None:
    """Series with a number, and with the labels that the legend names; PICTURE=FILE draws them."""
    handlers = [handler.identity.name for handler in configuration.handlers]
    records = letters(jobs.topic("orders"), f"{handlers[0]}.none")
    offers = {"job": ["redrive"], "application": [configuration.application], "handler": handlers}
    with prometheus(tmp_path, page) as answers:
        jobs.produce(handlers[0], records)
        last = "redrive_invalid_inputs_total > 0"
        eventually(lambda: answers.labels(last, is_instant=True), "the last one is attempted")
        jobs.produce(handlers[0], records)  # a rate is of what grew after it was first seen
        chosen = choices(answers, offers)
        for panel in PANELS:
            for target in panel["targets"]:
                query = with_values(target["expr"], chosen)
                ask = partial(answers.labels, query, is_instant=target.get("instant", False))
                if (panel["title"], target["refId"]) in EMPTY:
                    assert not ask()
                    continue
                eventually(ask, f"{panel['title']}: {query}")
                named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                assert all(named <= labels for labels in ask()), query
        eventually(lambda: "unknown" not in answers.alerts().values(), "each was evaluated")
        assert answers.alerts() == {alert["alert"]: "ok" for alert in ALERTS}
        path = os.environ.get("PICTURE")
        begun = time.time() if path else answers.since
        for wave in range(40 if path else 0):
            jobs.produce(handlers[0], records * (wave % 6))
            time.sleep(3)
        drawn = picture(answers.ask, begun, time.time())
    texts = {label.text for label in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314 - we wrote it
    assert {panel["title"] for panel in DASHBOARD["panels"]} <= texts
    assert "no data" not in texts
    if path:
        Path(path).write_text(drawn)
