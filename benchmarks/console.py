"""How quick the web console is over the outcomes of ten million attempts, and with 200 live groups.

    python -m benchmarks.console [--rows 10000000] [--groups 200] [--seconds 30] [--json]

The ledger is the one of ``benchmarks.ask``, beside an embedded broker; a job made its topics and
has ended. Debian's Chromium opens the pages: each figure is the median of some visits, as the
browser counts them: from the click to the first paint, and to the whole page with its list, which
comes after the page. The processor time is that of the console's process for a visit, a look at the
job for the page's events among it; it says more than the others on a machine with other work. The
memory is that of the same process after all of it.

Then a job handles five dead letters a second of 200 causes, while the page of groups is open:
how far apart changes of the page are, how much of what is on it moves (the browser's measure of
layout shifts, 0 for nothing), and the longest time for which it answers nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.ask import fill
from benchmarks.clients import Pairs, create
from benchmarks.command_line import broker, parser, show
from benchmarks.job import await_topic, percentiles, resident_bytes, running_job
from confluent_kafka import Producer
from kafka.admin import NewTopic
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from redrive.broker.configuration import free_port

PAGES: Final = {
    "now": "/",
    "groups": "/groups",
    "groups of all states": "/groups?status=all",
    "messages": "/messages",
    "messages, next page": "/messages?page=2",
    "messages, page 100": "/messages?page=100",
    "messages that were forwarded": "/messages?status=forwarded",
    "one message": "/messages/orders.dlq:0:1000",
}
"""What is opened, by its name."""
GOALS: Final = {"groups": 2000.0, "messages, next page": 300.0}
"""Milliseconds to the whole page."""
PAINT: Final = 1000.0
"""Milliseconds to the first paint of any page: the goal."""
MEMORY: Final = 300.0
"""MB: the goal."""
VISITS: Final = 5
_RATE: Final = 5.0
"""Dead letters a second while the page of groups is open."""
_PATIENCE: Final = 300.0
_OBSERVE: Final = """
window.moved = 0; window.busy = 0; window.changes = [];
new PerformanceObserver(list => list.getEntries().forEach(one => window.moved += one.value))
  .observe({type: "layout-shift"});
new PerformanceObserver(list => list.getEntries().forEach(one => {
  window.busy = Math.max(window.busy, one.duration);
})).observe({type: "longtask"});
document.body.addEventListener("htmx:afterSwap", () => window.changes.push(performance.now()));
"""
_TIMES: Final = """
const paint = performance.getEntriesByName("first-contentful-paint")[0];
if (document.querySelector("[aria-busy]")) return [null, null];
const lists = performance.getEntriesByType("resource")
  .filter((one) => one.initiatorType === "xmlhttprequest").map((one) => one.responseEnd);
const page = performance.getEntriesByType("navigation")[0].loadEventEnd;
return [paint ? paint.startTime : null, page && Math.max(page, ...lists)];
"""


def chromium() -> webdriver.Chrome:
    """Debian's Chromium, without a screen."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


@contextlib.contextmanager
def console(settings: Path) -> Iterator[tuple[str, int]]:
    """The console: its address, and its process."""
    address = f"127.0.0.1:{free_port()}"
    command = ["console", "-c", str(settings), "--listen", address]
    with (
        (settings.parent / "console.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "redrive", *command], stdout=log, stderr=log
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://{address}/api/status")
                    break
                time.sleep(0.1)
            yield f"http://{address}", process.pid
        finally:
            process.terminate()


def visits(browser: webdriver.Chrome, address: str, process: int) -> dict[str, dict[str, float]]:
    """First paint, whole page and processor time of each of ``PAGES``, in milliseconds."""
    by_page = {}
    for name, path in PAGES.items():
        times = []
        for _ in range(VISITS + 1):
            before = _processor(process)
            browser.get(address + path)
            while (page_times := browser.execute_script(_TIMES))[0] is None or not page_times[1]:
                time.sleep(0.02)
            times.append([*page_times, _processor(process) - before])
        figures = (round(statistics.median(column)) for column in zip(*times[1:], strict=True))
        by_page[name] = dict(zip(("first paint", "whole page", "processor"), figures, strict=True))
    return by_page


def _processor(process: int) -> float:
    """Processor time that a process has had, in milliseconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def letters(servers: str, topic: str, groups: int, ended: threading.Event) -> None:
    """Dead letters of many causes, until the event."""
    producer = Producer({"bootstrap.servers": servers})
    begun = time.monotonic()
    for number in itertools.count():
        if ended.wait(max(0.0, begun + number / _RATE - time.monotonic())):
            break
        produce(producer, topic, number % groups)
    producer.flush()


def produce(producer: Producer, topic: str, cause: int) -> None:
    """A dead letter with one of the causes."""
    headers: Pairs = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"queue.%d" % cause)]
    producer.produce(topic, b"x" * 300, headers=headers)
    producer.poll(0)


def live(
    browser: webdriver.Chrome, servers: str, folder: Path, groups: int, seconds: float
) -> dict[str, Any]:
    """What changes on the page of groups while dead letters come."""
    create(servers, NewTopic("live.dlq", 4, 1))
    producer = Producer({"bootstrap.servers": servers})
    for number in range(groups * 3):
        produce(producer, "live.dlq", number % groups)
    producer.flush()
    ended = threading.Event()
    rules = {"live.dlq": "WAIT(YES)\nREASON(1) ACTION(DISCARD)\n"}
    with (
        running_job(servers, folder / "live", rules),
        console(folder / "live" / "redrive.toml") as (address, process),
    ):
        rows = "return document.querySelectorAll('#live tbody tr').length"
        deadline = time.monotonic() + _PATIENCE
        while True:
            browser.get(f"{address}/groups?limit={groups}")
            while browser.execute_script("return document.querySelector('[aria-busy]') !== null"):
                time.sleep(0.1)
            if browser.execute_script(rows) >= groups:
                break
            if time.monotonic() > deadline:
                raise SystemExit("the groups did not come")
            time.sleep(2)
        thread = threading.Thread(target=letters, args=(servers, "live.dlq", groups, ended))
        thread.start()
        time.sleep(10)
        browser.execute_script(_OBSERVE)
        time.sleep(seconds)
        moved, busy, changes = browser.execute_script(
            "return [window.moved, window.busy, window.changes]"
        )
        ended.set()
        thread.join()
        memory = resident_bytes(process) / 1e6
    return {
        "groups": groups,
        "changes": len(changes),
        "between two changes, ms": percentiles([b - a for a, b in itertools.pairwise(changes)]),
        "layout shifts": round(moved, 3),
        "longest task, ms": round(busy),
        "memory, MB": round(memory),
    }


def main() -> int:
    """Measures, prints, and returns 1 if a goal is missed."""
    arguments = parser(__doc__, rows=10_000_000, groups=200, seconds=30.0).parse_args()
    with broker() as (folder, servers), chromium() as browser:
        create(servers, NewTopic("orders.dlq", 4, 1))
        settings, without = folder / "asked" / "redrive.toml", "[ledger]\nenabled = false\n"
        with running_job(servers, settings.parent, {"orders.dlq": "ACTION(RETRY)\n"}, without):
            await_topic(servers, "redrive-asked-outcomes")
        settings.write_text(settings.read_text().removesuffix(without))
        fill(settings.parent / "job" / "ledger", arguments.rows)
        with console(settings) as (address, process):
            pages = visits(browser, address, process)
            memory = resident_bytes(process) / 1e6
        show({"rows": arguments.rows, "pages, ms": pages, "memory, MB": round(memory)})
        show({"live": live(browser, servers, folder, arguments.groups, arguments.seconds)})
    are_met = memory < MEMORY and all(
        figures["first paint"] < PAINT and figures["whole page"] < GOALS.get(name, float("inf"))
        for name, figures in pages.items()
    )
    return 0 if are_met else 1


if __name__ == "__main__":
    sys.exit(main())
