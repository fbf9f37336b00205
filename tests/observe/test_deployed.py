"""The alert rules and the dashboard ask for what the job exports, in expressions that are right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from tests.observe.test_metrics import exported

from redrive.observe.observer import MetricsObserver

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "redrive.rules.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "redrive.json").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

OF_A_SCRAPE = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything it reads."""
OF_ALL = OF_A_SCRAPE | {"application"}
"""Labels of every metric of a job."""
OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression with where it stands; variables of Grafana have some value."""
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], re.sub(r"\$\w+", "x", expression)


def visited(expression: str) -> list[Any]:
    """Every part of an expression."""
    parts: list[Any] = []
    promql.walk(promql.parse(expression), parts.append)
    return parts


@pytest.fixture
def known(observer: MetricsObserver) -> dict[str, frozenset[str]]:
    """The labels of each series that there can be."""
    series = {"up": OF_A_SCRAPE}
    for name, kind, labels in exported(observer.metrics.registry):
        if kind == "histogram":
            series |= {f"{name}{end}": labels | OF_ALL | {"le"} for end in OF_A_HISTOGRAM}
        else:
            series[name] = labels | OF_ALL
    return series


def test_every_expression_asks_for_what_is_exported(known: dict[str, frozenset[str]]) -> None:
    for place, expression in expressions():
        labels: set[str] = set()
        for part in visited(expression):
            if isinstance(part, promql.VectorSelector):
                assert part.name is not None
                assert part.name in known, f"{place}: {part.name}"
                asked = {matcher.name for matcher in part.matchers.matchers}
                assert asked <= known[part.name], f"{place}: {part.name} has not {asked}"
                labels |= known[part.name]
        for part in visited(expression):
            if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
                assert set(part.modifier.labels or ()) <= labels, place


def test_counters_are_asked_for_their_rate_only() -> None:
    for place, expression in expressions():
        counters = re.findall(r"redrive_\w+(?:_total|_bucket)\b", expression)
        rates = re.findall(r"(?:rate|increase)\(redrive_\w+(?:_total|_bucket)\b", expression)
        assert len(counters) == len(rates), place


def test_the_dashboard_shows_every_metric(known: dict[str, frozenset[str]]) -> None:
    shown = {
        part.name
        for panel in PANELS
        for target in panel["targets"]
        for part in visited(re.sub(r"\$\w+", "x", target["expr"].replace("$__rate_interval", "5m")))
        if isinstance(part, promql.VectorSelector)
    }
    hidden = {name for name in known if not name.endswith(("_sum", "_count"))} - shown
    assert hidden == {"up"}


def test_an_alert_says_what_is_wrong_and_what_to_do(known: dict[str, frozenset[str]]) -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Redrive[A-Z]\w+", alert["alert"])
        assert re.fullmatch(r"[1-9][0-9]*m", alert["for"])
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert set(alert["annotations"]) == {"summary", "action"}
        parts = visited(alert["expr"])
        assert isinstance(parts[0], promql.BinaryExpr), "it is compared with a bound"
        kept = [
            part.modifier.labels
            for part in parts
            if isinstance(part, promql.AggregateExpr) and part.modifier is not None
        ]
        has = (
            set(kept[0])
            if kept
            else {
                label
                for part in parts
                if isinstance(part, promql.VectorSelector)
                for label in known[part.name or ""]
            }
        )
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
        assert named <= has, alert["alert"]


def test_the_alerts_of_the_reference_are_there() -> None:
    assert {alert["alert"] for alert in ALERTS} >= {
        "RedriveDown", "RedriveStalled", "RedriveRemainingTooLong", "RedriveMessagesExpire",
        "RedriveTargetFails", "RedriveBreakerOpen",
    }  # fmt: skip


def test_a_panel_stands_beside_others_and_on_none() -> None:
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids) > 0


def test_variables_of_the_dashboard_are_all_defined() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used - {"__rate_interval"} <= defined
