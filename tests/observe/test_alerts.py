"""Each alert fires when it should, and is silent for what only resembles that.

``promtool test rules`` of Prometheus evaluates them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client.exposition import generate_latest
from tests.observe.test_deployed import ALERTS, RULES

from redrive.observe.observer import MetricsObserver


class Case(NamedTuple):
    """One of ``alerts.yaml``, where its members are described."""

    alert: str
    minutes: int
    fires: dict[str, str]
    silent: dict[str, str]
    labels: str
    of_none: bool = False


NAMED = "handler, topic, target, reason, cause, instance"
CASES = [
    Case(**case) for case in yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text())
]


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    assert [case.alert for case in CASES] == [alert["alert"] for alert in ALERTS]
    assert all(case.fires and case.silent for case in CASES)


def document_of(case: Case, *, fires: bool) -> dict[str, Any]:
    """A test for promtool; ``fires`` says whether the series for which it fires are there."""
    silent = {} if fires and case.of_none else case.silent
    series = {**(case.fires if fires else {}), **silent}
    question = f'group by ({NAMED}) (ALERTS{{alertname="{case.alert}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": sequence} for name, sequence in series.items()],
        "promql_expr_test": [
            {
                "expr": question,
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": case.labels, "value": 1}] if fires else [],
            }
        ],
    }


def test_alerts_fire_for_these_series_and_for_no_others(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yml"
    tests.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": "1m",
                "tests": [
                    document_of(case, fires=fires) for case in CASES for fires in (True, False)
                ],
            }
        )
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(tests)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules_to_prometheus(observer: MetricsObserver) -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert set(group) == {"name", "rules"}
    text = generate_latest(observer.metrics.registry)
    for arguments, given in ((["rules", str(RULES)], b""), (["metrics"], text)):
        done = subprocess.run(
            ["promtool", "check", *arguments], input=given, capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
