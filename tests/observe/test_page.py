"""The pages that watchers read."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import PATIENCE
from tests.observe.conftest import state

from redrive.configuration import JobConfiguration
from redrive.errors import ConfigurationError
from redrive.observe.observation import Page
from redrive.observe.observer import MetricsObserver
from redrive.operations.supervision import Activity

Get = Callable[[str], tuple[int, bytes]]


def page_of(observer: MetricsObserver, listen: str = "127.0.0.1:0") -> Page:
    return Page(listen, observer.metrics.registry, lambda: observer.health)


@pytest.fixture
def page(observer: MetricsObserver) -> Iterator[Page]:
    """The page of a job that runs, on any free port."""
    page = page_of(observer)
    page.start()
    yield page
    page.close()


@pytest.fixture
def get(page: Page) -> Get:
    """Asks for a path: status and body."""

    def ask(path: str) -> tuple[int, bytes]:
        client = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        client.request("GET", path)
        answer = client.getresponse()
        body = answer.read()
        client.close()
        return answer.status, body

    return ask


def test_prometheus_can_read_the_metrics(get: Get, observer: MetricsObserver) -> None:
    status, body = get("/metrics")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert status == 200
    assert {family.name for family in observer.metrics.registry.collect()} - names <= {"redrive"}
    assert "redrive_info" in body.decode()


def test_other_paths_are_not_found(get: Get) -> None:
    status, body = get("/")
    assert status == 404
    assert b"/healthz" in body


@pytest.mark.parametrize(
    ("activity", "live", "ready", "well"),
    [
        (Activity.RUNNING, 200, 200, 200),
        (Activity.WAITING, 200, 503, 200),
        (Activity.STOPPING, 200, 503, 200),
        (Activity.STALLED, 200, 503, 503),
    ],
)
def test_each_check_has_its_own_rule(
    get: Get, observer: MetricsObserver, activity: Activity, live: int, ready: int, well: int
) -> None:
    observer.supervised(state(activity, since=90))
    answers = [get(path) for path in ("/livez", "/readyz", "/healthz")]
    assert [status for status, _ in answers] == [live, ready, well]
    assert len({body for _, body in answers}) == 1
    document = json.loads(answers[0][1])
    passed = (document["is_live"], document["is_ready"], document["is_well"])
    assert passed == (live == 200, ready == 200, well == 200)
    assert document["state"] == activity
    if activity is Activity.STALLED:
        assert document["message"].startswith("stalled since ")
        assert document["message"].endswith(
            "(1 min 30 s), orders.dlq:2 at step commit, because no answer in time"
        )


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_a_job_that_says_nothing_passes_no_check(
    get: Get, observer: MetricsObserver, path: str
) -> None:
    observer.supervised(state(Activity.RUNNING, age=90))
    status, body = get(path)
    assert status == 503
    assert json.loads(body)["message"].startswith("dead since ")


def test_a_job_that_has_not_started_is_live_and_nothing_else(
    configuration: JobConfiguration,
) -> None:
    health = MetricsObserver(configuration).health
    assert (health.is_live, health.is_ready, health.is_well) == (True, False, False)
    assert health.state == "starting"


def test_a_port_that_is_taken_is_an_error_of_the_settings(observer: MetricsObserver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="address already in use") as error:
            page_of(observer, listen)
    assert listen in error.value.message
    assert "free port" in error.value.hint


def test_an_address_of_another_machine_is_an_error_too(observer: MetricsObserver) -> None:
    with pytest.raises(ConfigurationError, match="cannot be bound"):
        page_of(observer, "192.0.2.1:9464")


def test_nobody_who_reads_slowly_keeps_the_job_from_ending(
    observer: MetricsObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.observe.observation._Handler.timeout", PATIENCE)
    page = page_of(observer)
    page.start()
    with socket.create_connection(("127.0.0.1", page.port)) as slow:
        slow.sendall(b"GET /metr")
        time.sleep(0.2)
        begun = time.monotonic()
        page.close()
        assert time.monotonic() - begun < PATIENCE / 2
    page_of(observer, f"127.0.0.1:{page.port}").close()


def test_a_page_that_never_began_can_be_closed(observer: MetricsObserver) -> None:
    page = page_of(observer)
    page.close()
    page_of(observer, f"127.0.0.1:{page.port}").close()
