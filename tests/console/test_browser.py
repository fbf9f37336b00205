"""The console in a real browser, beside a real job: what people come for, and everybody can use it.

It needs Debian's chromium and chromium-driver, and is skipped without them. ``make test-console``
runs nothing else; with SCREENSHOTS=FOLDER it leaves a picture of each page there, in light and in
dark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import oidc_provider_mock
import pytest
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from tests.conftest import eventually, send_records
from tests.console.conftest import answers

from redrive.broker.configuration import free_port
from redrive.operations.process import this_user

PATIENCE = 120.0
"""Seconds for what takes two on a quiet machine."""
PAGES = {
    "now": "/", "groups": "/groups?status=all",
    "messages": "/messages?status=all&handler=payments-dlt",
    "plans": "/plans", "tables": "/tables", "table": "/tables/counts.dlq",
    "network": "/network", "acknowledgements": "/acknowledgements",
}  # fmt: skip
_PROJECT = Path(__file__).parents[2]
MQ_PAGES = {
    "queue-managers": "/network", "queue-manager": "/network?queue_manager=SHOP",
    "resolve": "/resolve?put=REFUNDS&at=SHOP",
}  # fmt: skip

_WIDE = """
return [...document.querySelectorAll("main *")]
  .filter(one => one.getBoundingClientRect().right > 320 && !one.closest(".scroll, details, pre"))
  .map(one => one.outerHTML.slice(0, 80))
"""
"""What reaches beyond the screen of a small telephone, less what scrolls by itself."""

_HIDDEN = """
return [...document.querySelectorAll("main .scroll")]
  .filter(one => one.scrollWidth > one.clientWidth)
  .map(one => one.outerHTML.slice(0, 80))
"""
"""Lists with columns beyond the edge of a telephone."""

_LONG = """
return [...document.querySelectorAll("main p:not(.chips), main .story li, main .hint")]
  .filter(one => one.clientWidth > 50 * parseFloat(getComputedStyle(one).fontSize))
  .map(one => one.outerHTML.slice(0, 80))
"""
"""Texts with more than about a hundred characters in a line."""

_PAINT = """
let moved = 0;
new PerformanceObserver((found) => found.getEntries().forEach((one) => (moved += one.value)))
  .observe({ type: "layout-shift", buffered: true });
const [paint] = performance.getEntriesByName("first-contentful-paint");
const list = performance.getEntriesByType("resource")
  .find((one) => one.initiatorType === "xmlhttprequest");
const answer = arguments[0];
setTimeout(() => answer([moved, paint.startTime, list.responseEnd]), 300);
"""
"""How much moved on the page, when it was painted, and when its list came."""

_ANONYMOUS = """
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  text.data = text.data.replaceAll(arguments[0], "ann@shop").replaceAll(arguments[1], "");
}
"""
"""Pictures name neither who made them nor their machine."""


def redrive(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "redrive", *arguments]


@contextlib.contextmanager
def running(log: Path, *arguments: str) -> Iterator[None]:
    with (
        log.open("wb") as out,
        subprocess.Popen(redrive(*arguments), stdout=out, stderr=out) as process,
    ):
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[Path]:
    """The settings of a job and its broker, after a demo with dead letters of Kafka."""
    options = ("--fast", "-n", "300", "--keep", "--directory", str(folder))
    subprocess.run(redrive("demo", *options), check=True, capture_output=True)
    try:
        yield folder / "redrive.toml"
    finally:
        subprocess.run(redrive("broker", "stop", "-d", str(folder / "broker")), check=True)


@contextlib.contextmanager
def network(folder: Path) -> Iterator[Path]:
    """The settings of examples/mq, with a broker and its topics."""
    broker, servers = str(folder / "broker"), f"localhost:{free_port()}"
    for path in (_PROJECT / "examples" / "mq").iterdir():
        text = path.read_text(encoding="utf-8").replace("localhost:9092", servers)
        (folder / path.name).write_text(text, encoding="utf-8")
    config = folder / "redrive.toml"
    port = servers.partition(":")[2]
    subprocess.run(redrive("broker", "start", "-d", broker, "--port", port), check=True)
    try:
        apply = redrive("topology", "apply", "-c", str(config), "--yes")
        subprocess.run(apply, check=True, capture_output=True)
        yield config
    finally:
        subprocess.run(redrive("broker", "stop", "-d", broker), check=True)


@contextlib.contextmanager
def console(settings: Path, *options: str) -> Iterator[str]:
    """Where the console of a job is."""
    listen = options[1] if options else f"127.0.0.1:{free_port()}"
    options = options or ("--listen", listen)
    with running(settings.parent / "console.log", "console", "-c", str(settings), *options):
        eventually(lambda: answers(listen), "the console answers")
        yield f"http://{listen}"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job that handles dead letters of Kafka's programs."""
    folder = tmp_path_factory.mktemp("console") / "demo"
    with (
        demo(folder) as config,
        running(folder / "run.log", "run", "-c", str(config)),
    ):
        yield config


@pytest.fixture(scope="module")
def address(settings: Path) -> Iterator[str]:
    with console(settings) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    """Debian's Chromium, without a screen."""
    browser_path, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser_path is None or driver is None:
        pytest.skip("needs Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser_path
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_window_size(1280, 900)
    yield browser
    browser.quit()


class Reader:
    """Somebody before the console."""

    def __init__(self, browser: webdriver.Chrome, address: str) -> None:
        self.browser = browser
        self.address = address

    def open(self, path: str) -> None:
        self.browser.get(self.address + path)
        self._settle()

    def until(self, holds: Callable[[], Any]) -> Any:
        """Waits, whatever is replaced meanwhile."""
        wait = WebDriverWait(
            self.browser, PATIENCE, 0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        return wait.until(lambda _: holds())

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Clicks the first, and waits for the next page."""
        root = self.browser.find_element(By.TAG_NAME, "html")

        def clicked() -> bool:
            # A click may be reported as stale after the next page has come.
            if self.browser.find_element(By.TAG_NAME, "html") == root:
                self.all(selector)[0].click()
            return True

        self.until(clicked)
        self.until(lambda: self.browser.find_element(By.TAG_NAME, "html") != root)
        self._settle()

    def _settle(self) -> None:
        """Waits for the page, and for a list that it asks for."""
        self.until(lambda: self.browser.execute_script("return document.readyState") == "complete")
        self.until(lambda: not self.all("[aria-busy=true]"))

    def text(self, selector: str = "main") -> str:
        return str(self.browser.find_element(By.CSS_SELECTOR, selector).text)


@pytest.fixture
def reader(chromium: webdriver.Chrome, address: str) -> Iterator[Reader]:
    """Somebody, on whose console nothing is logged that a page should not do."""
    reader = Reader(chromium, address)
    yield reader
    logged = [entry["message"] for entry in chromium.get_log("browser")]  # type: ignore[no-untyped-call]
    assert [
        message for message in logged if "Content Security" in message or "Uncaught" in message
    ] == []


def servers_of(settings: Path) -> str:
    return next(
        line.split('"')[1]
        for line in settings.read_text().splitlines()
        if line.startswith("bootstrap_servers")
    )


def waiting(handler: str, state: str) -> str:
    """The number of a handler's messages in a state, on the first page."""
    return f'a[href="/groups?handler={handler}&status={state}"]'


def test_why_one_message_died_is_three_clicks_away(reader: Reader) -> None:
    reader.open("/")
    reader.click(waiting("payments-dlt", "quarantined"))
    reader.click("tbody td a")
    reader.click("tbody th a")
    shown = reader.text()
    assert reader.text("p.quote")
    assert "quarantined by the rule at line" in shown
    assert "What each rule of the present table of payments-dlt says" in shown
    assert '"amount":' in shown


def test_a_bar_leads_to_the_failures_of_its_hour(reader: Reader, settings: Path) -> None:
    now, hour = int(1000 * time.time()), 3_600_000
    ages = [age for age in range(1, 40) for _ in range(1 + age % 7 * (1 + age % 5))]
    records = [{"value": b"x", "timestamp_ms": now - age * hour} for age in ages]
    send_records(servers_of(settings), "counts.dlq", records)
    bar = f"#at-{datetime.fromtimestamp((now - 33 * hour) / 1000, UTC):%d-%H}"
    count = ages.count(33)

    def is_counted() -> bool:
        reader.open("/")
        bars = reader.all(bar)
        return bool(bars) and f": {count} dead letters" in bars[0].get_attribute("aria-label")

    reader.until(is_counted)
    reader.browser.execute_script("arguments[0].focus()", reader.all(bar)[0])
    assert reader.browser.switch_to.active_element == reader.all(bar)[0]
    reader.click(bar)
    assert f"1 to {count} of {count}, the newest failure first" in reader.text("#live p")
    assert not reader.all("#live [rel=next]")


def test_a_wrong_filter_is_corrected_in_its_field(reader: Reader) -> None:
    reader.open("/messages?status=all&since=tomorrow")
    assert "tomorrow is not a time" in reader.text("#wrong-since")
    assert not reader.all("#back")[0].is_displayed()
    field = reader.all("input[name=since]")[0]
    field.clear()
    field.send_keys("2d")
    reader.click(".filters button")
    assert reader.all("#live tbody tr")
    assert not reader.all("[aria-invalid]")


def test_what_comes_is_shown_without_loading_the_page_again(reader: Reader, settings: Path) -> None:
    reader.open("/")
    reader.browser.execute_script("window.same = true")
    number = waiting("counts.dlq", "remaining")
    before = int(reader.text(number))
    send_records(servers_of(settings), "counts.dlq", [{"value": b"no header"}] * 5)

    reader.until(lambda: int(reader.text(number)) == before + 5)
    assert reader.browser.execute_script("return window.same")


def test_a_page_asks_again_once_the_answer_is_there(reader: Reader) -> None:
    reader.open("/groups?status=all")
    reader.until(lambda: reader.all("#live tbody tr"))
    reader.browser.execute_script(
        # Not by the job's own events.
        "const later = setTimeout;"
        "window.setTimeout = (act, delay) => (delay === 200 ? 0 : later(act, delay));"
        "window.sent = window.running = window.most = 0;"
        "function hear() { isBehind = true; catchUp(); }"
        "document.body.addEventListener('htmx:beforeRequest', () => {"
        " sent += 1; running += 1; most = Math.max(most, running);"
        " if (sent === 1) for (const number of [1, 2, 3]) setTimeout(hear); });"
        "document.body.addEventListener('htmx:afterRequest', () => {"
        " running = Math.max(0, running - 1); });"
        "hear();"
    )
    reader.until(lambda: reader.browser.execute_script("return sent >= 2 && !running"))
    assert reader.browser.execute_script("return most") == 1


def test_all_of_one_cause_are_sent_back(reader: Reader) -> None:
    reader.open("/groups?status=quarantined")
    reader.click("tbody td a")
    count = int(reader.text("#live p").split(" of ")[1].split(",")[0])
    reader.click("button.main")
    assert f"{count} messages to their original destinations" in reader.text()
    reader.all("input[name=because]")[0].send_keys("ticket 4711")
    reader.click("button.main")
    reader.until(lambda: "done" in reader.text("h1"))
    assert "ticket 4711" in reader.text()
    reader.until(lambda: f"{count} of {count} done" in reader.text())
    reader.click("dl.facts dd a")
    assert f"of {count}, the newest failure first" in reader.text()


def test_a_list_comes_after_its_page_and_moves_nothing(reader: Reader) -> None:
    reader.open("/groups?status=all")
    moved, painted, came = reader.browser.execute_async_script(_PAINT)
    assert moved == 0
    assert painted < came
    assert reader.all("#live tbody tr")
    assert reader.all("#back")[0].is_displayed()
    reader.open("/messages?where=no_column")
    assert "no_column" in reader.text("#live [role=alert]")
    assert not reader.all("#back")[0].is_displayed()
    reader.open("/messages?status=all#back")
    assert reader.browser.execute_script("return scrollY") > 0


def test_what_is_left_of_a_running_replay_is_cancelled(reader: Reader) -> None:
    reader.open("/messages?status=quarantined")
    reader.all("input[name=rate]")[0].send_keys("0.1")
    reader.click("button.main")
    reader.click("button.main")
    cancel = "form[action$='/cancel']"
    reader.until(lambda: reader.all(f"{cancel} button"))
    reader.browser.execute_script(
        f"document.querySelector(\"{cancel} input[name=because]\").value = 'wrong group'"
    )
    reader.click(f"{cancel} button")
    reader.until(lambda: "being" not in reader.text("h1") and "cancelled" in reader.text("h1"))
    assert "(wrong group)" in reader.text()
    assert not reader.all(cancel)
    reader.open("/messages?status=quarantined")
    reader.click("tbody th a")
    assert reader.all("form[action='/api/plans']"), "it can be sent back again"


def test_a_group_is_acknowledged_with_a_note(reader: Reader, settings: Path) -> None:
    send_records(servers_of(settings), "counts.dlq", [{"value": b"no header"}] * 2)
    reader.open("/")
    number = waiting("counts.dlq", "remaining")
    reader.until(lambda: int(reader.text(number)) > 0)
    reader.open("/groups?status=remaining&handler=counts.dlq")
    form = "form[action='/api/acknowledgements']"
    for name, value in (("until", "7d"), ("note", "ticket 12")):
        reader.all(f"{form} input[name={name}]")[0].send_keys(value)
    reader.click(f"{form} button")
    reader.click("#live a[href='/acknowledgements']")
    assert "ticket 12" in reader.text()
    count = int(reader.text("tbody td.n"))
    reader.click("tbody td.value a")
    assert f"of {count}, the newest failure first" in reader.text("#live p")


def test_a_plan_takes_the_eyes_of_two(
    chromium: webdriver.Chrome, settings: Path, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        "".join(
            f'[[tokens]]\nname = "{user}"\nrole = "approver"\n'
            f'sha256 = "{hashlib.sha256(user.encode()).hexdigest()}"\n'
            for user in ("ann", "bob")
        )
    )
    tokens.chmod(0o600)
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    with console(settings, *listen, "--tokens", str(tokens), "--four-eyes-above", "0") as address:
        reader = Reader(chromium, address)

        def sign_in(name: str) -> None:
            reader.open("/sign-in")
            reader.all("input[name=token]")[0].send_keys(name)
            reader.click("main form button")
            reader.until(lambda: chromium.current_url == f"{address}/")

        sign_in("ann")
        reader.open("/messages?status=quarantined")
        reader.click("tbody th a")
        reader.click("button.main")
        plan = chromium.current_url.removeprefix(address)
        assert "needs another user than ann, who made it" in reader.text()
        assert not reader.all("form[action$='/apply']")
        reader.click("header form button")
        sign_in("bob")
        reader.open(plan)
        reader.click("form[action$='/apply'] button")
        reader.until(lambda: "done" in reader.text("h1"))
        assert "by bob" in reader.text("dl.facts")


def test_a_table_is_tried_on_what_waits_and_put_live(reader: Reader) -> None:
    reader.open("/tables/counts.dlq")
    area = reader.all("textarea")[0]
    text = str(area.get_property("value"))
    area.send_keys(Keys.CONTROL, Keys.END)
    area.send_keys("ACTION(RETRI)")
    reader.until(lambda: "RETRI" in reader.text("#trial"))
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    rule = "SCHEME('none') ACTION(QUARANTINE)"
    changed = re.sub(r"(DIALECT.*\n)", rf"\1{rule}\n", text, count=1)
    reader.browser.execute_script(script, area, changed)
    reader.until(lambda: "RETRI" not in reader.text("#trial"))
    reader.all("button.main")[0].click()
    reader.until(lambda: "What it would do with what waits" in reader.text("#trial"))
    assert "quarantined" in reader.text("#trial").lower()
    reader.all("#trial input[name='because']")[0].send_keys("ticket 4711")
    reader.click("#trial form button")
    assert reader.browser.current_url.endswith("/tables")
    assert "decides now" in reader.text()
    reader.open("/tables/counts.dlq")
    assert rule in str(reader.all("textarea")[0].get_property("value"))


def look_at(reader: Reader, name: str, folder: Path) -> None:
    """No violation that axe finds, in light and dark; from a small telephone to a wide screen."""
    pictures = os.environ.get("SCREENSHOTS")
    for theme in ("light", "dark"):
        reader.browser.execute_script(
            "document.documentElement.dataset.theme = arguments[0]", theme
        )
        violations = Axe().run(reader.browser)["violations"]
        assert [(violation["id"], violation["nodes"]) for violation in violations] == [], (
            name,
            theme,
        )
        if pictures:
            Path(pictures).mkdir(parents=True, exist_ok=True)
            reader.browser.execute_script(_ANONYMOUS, this_user(), f"{folder}/")
            assert reader.browser.save_screenshot(f"{pictures}/{name}-{theme}.png")
    assert at_size(reader, 320, 640, _WIDE) == (320, []), name
    assert at_size(reader, 390, 844, _HIDDEN) == (390, []), name
    width, long = at_size(reader, 3840, 2160, _LONG)
    assert (width <= 3840, long) == (True, []), name


def at_size(reader: Reader, width: int, height: int, script: str) -> tuple[int, Any]:
    """How wide the page is in a window of so many pixels, and what a script finds there."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < height}
    reader.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        scrolled = reader.browser.execute_script("return document.documentElement.scrollWidth")
        return scrolled, reader.browser.execute_script(script)
    finally:
        reader.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everybody_can_use_every_page(reader: Reader, settings: Path) -> None:
    reader.open("/messages?status=all&handler=payments-dlt")
    place = reader.text("tbody th a")
    for name, path in {**PAGES, "message": f"/messages/{place}"}.items():
        reader.open(path)
        look_at(reader, name, settings.parent)
    reader.open("/messages?status=quarantined")
    reader.click("tbody th a")
    reader.click("button[formaction='/api/plans/text']")
    look_at(reader, "edit", settings.parent)
    reader.open("/tables")
    reader.click("form[action='/difference'] button")
    look_at(reader, "difference", settings.parent)


def test_the_keyboard_is_enough(reader: Reader) -> None:
    reader.open("/")
    body = reader.browser.find_element(By.TAG_NAME, "body")
    body.send_keys("g")
    reader.until(lambda: reader.browser.current_url.endswith("/groups"))
    reader.browser.find_element(By.TAG_NAME, "body").send_keys("/")
    search = reader.browser.switch_to.active_element
    assert search.get_attribute("name") == "where"
    search.send_keys("hop > 0", Keys.ENTER)
    reader.until(lambda: "where=hop" in reader.browser.current_url)
    assert [chip.text for chip in reader.all(".chip")] == ["where: hop > 0 \N{MULTIPLICATION SIGN}"]


def test_a_network_is_explored_and_a_channel_stopped_and_started(
    chromium: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("network")
    with network(folder) as config, console(config) as address:
        reader = Reader(chromium, address)
        reader.open("/network")
        reader.click("section h2 a[href*=SHOP]")
        reader.click("tbody a[href*='put=ORDERS']")
        assert "ORDERS@DEPOT" in reader.text()
        reader.click("main p a[href*=SHOP]")
        channel = "[aria-label='Stop: SHOP.OFFICE']"
        reader.click(channel)
        reader.until(lambda: "stopped" in reader.text("ul.to"))
        reader.click(channel.replace("Stop", "Start"))
        reader.until(lambda: "stopped" not in reader.text("ul.to"))
        for name, path in MQ_PAGES.items():
            reader.open(path)
            look_at(reader, name, folder)


@pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")  # the mock's own
def test_somebody_signs_in_at_an_identity_provider_and_out(
    chromium: webdriver.Chrome, tmp_path: Path
) -> None:
    (tmp_path / "orders.rul").write_text("DIALECT(KAFKA)\nACTION(RETRY)\n")
    config = tmp_path / "redrive.toml"
    config.write_text(
        '[application]\nname = "oidc"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        '[[handlers]]\nname = "orders"\nqueue = "dlq"\nrules = "orders.rul"\n'
    )
    listen = f"127.0.0.1:{free_port()}"  # another site than localhost
    ann = oidc_provider_mock.User(sub="ann", claims={"groups": ["developers"]})
    with oidc_provider_mock.run_server_in_thread(user_claims=[ann]) as provider:
        access = tmp_path / "access.toml"
        (tmp_path / "secret").write_text("of the client")
        access.write_text(
            f'[oidc]\nissuer = "http://localhost:{provider.server_port}"\nclient_id = "redrive"\n'
            f'address = "http://{listen}"\nclient_secret_file = "secret"\n'
            '[[roles]]\nrole = "viewer"\ngroups = ["developers"]\n'
        )
        with console(config, "--listen", listen, "--access", str(access)) as address:
            reader = Reader(chromium, address)
            reader.open("/tables/orders")
            reader.click("a.button")
            reader.click("button[value=ann]")
            # The page after the one with which the console answers.
            reader.until(lambda: chromium.current_url == f"{address}/")
            assert reader.text(".user") == "ann, viewer"
            reader.open("/tables/orders")
            assert "ACTION(RETRY)" in reader.text()
            reader.click("header form button")
            assert "You are signed out." in reader.text()
            assert "Sign out of the identity provider too" in reader.text()
            reader.open("/tables/orders")
            assert "Sign in by" in reader.text()
