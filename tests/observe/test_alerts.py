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
    """Series by the minute in promtool's notation; ``0+1x9`` grows from 0 to 9."""

    alert: str
    minutes: int
    """When the alert is asked for."""
    fires: dict[str, str]
    """The series for which it fires, which have the label ``handler``, ``topic`` or the like A."""
    silent: dict[str, str]
    """The series for which it does not."""
    labels: str
    """The labels of the alert that fires, of those in ``NAMED``."""
    of_none: bool = False
    """Fires where there are no such series: those that keep it silent are left out then."""


NAMED = "handler, topic, target, reason, cause, instance"
CASES = [
    Case(
        "RedriveDown", 9,
        {'up{job="redrive",instance="A"}': "1x4 0x9"},
        {'up{job="redrive",instance="B"}': "1x7 0x9", 'up{job="others",instance="C"}': "0x15"},
        '{instance="A"}',
    ),
    Case(
        "RedriveAbsent", 9,
        {'up{job="others",instance="A"}': "1x15"},
        {'up{job="redrive",instance="B"}': "0x15"},
        "{}", of_none=True,
    ),
    Case(
        "RedriveStalled", 9,
        {'redrive_stalled_seconds{instance="A"}': "0x5 60+60x9"},
        {'redrive_stalled_seconds{instance="B"}': "0x4 60 0x9"},
        '{instance="A"}',
    ),
    Case(
        "RedriveSilent", 9,
        {'redrive_supervision_timestamp_seconds{instance="A"}': "0+60x4 240x9"},
        {'redrive_supervision_timestamp_seconds{instance="B"}': "0+60x15"},
        '{instance="A"}',
    ),
    Case(
        "RedriveRestartRefused", 9,
        {'redrive_last_restart_successful{instance="A"}': "1 1 0x15"},
        {'redrive_last_restart_successful{instance="B"}': "1x3 0 0 1x15"},
        '{instance="A"}',
    ),
    Case(
        "RedriveMessagesExpire", 9,
        {'redrive_expiring_messages{topic="A",instance="1"}': "0 0 4x15"},
        {'redrive_expiring_messages{topic="B",instance="1"}': "0x6 4x15"},
        '{topic="A"}',
    ),
    Case(
        "RedriveRemainingTooLong", 20,
        {'redrive_unacknowledged_oldest_seconds{handler="A"}': "86000+60x30"},
        {
            'redrive_unacknowledged_oldest_seconds{handler="B"}': "80000+60x30",
            # All that is old is acknowledged.
            'redrive_remaining_oldest_seconds{handler="C"}': "1000000+60x30",
            'redrive_unacknowledged_oldest_seconds{handler="C"}': "0x30",
        },
        '{handler="A"}',
    ),
    Case(
        "RedriveRemainingGrows", 80,
        {'redrive_unacknowledged_messages{handler="A"}': "0+3x90"},
        {
            'redrive_unacknowledged_messages{handler="B"}': "100000+1x90",
            'redrive_unacknowledged_messages{handler="C"}': "9000-50x90",
        },
        '{handler="A"}',
    ),
    Case(
        "RedriveNewDeadLetters", 30,
        {'redrive_dead_letters_total{handler="A",cause="E",destination="d"}': "0+50x40",
         'redrive_dead_letters_total{handler="A",cause="E",destination="e"}': "0+50x40"},
        {'redrive_dead_letters_total{handler="B",cause="E",destination="d"}': "0+50x40",
         'redrive_dead_letters_total{handler="C",cause="E",destination="d"}': "900000x40"},
        '{handler="A",cause="E"}',
    ),
    Case(
        "RedriveNewCause", 100,
        {'redrive_cause_first_seen_timestamp_seconds{handler="A",cause="E"}': "_x90 5400x30"},
        {'redrive_cause_first_seen_timestamp_seconds{handler="A",cause="F"}': "600x130"},
        '{handler="A",cause="E"}',
    ),
    Case(
        "RedriveBacklogGrows", 60,
        {'redrive_backlog_messages{topic="A"}': "0+1000x70"},
        {'redrive_backlog_messages{topic="B"}': "1000000-1000x70"},
        '{topic="A"}',
    ),
    Case(
        "RedriveHandlerStopped", 9,
        {'redrive_handler_state{handler="A",redrive_handler_state="stopped"}': "0x3 1x15"},
        {'redrive_handler_state{handler="B",redrive_handler_state="stopped"}': "0x8 1x15",
         'redrive_handler_state{handler="C",redrive_handler_state="running"}': "1x15"},
        '{handler="A"}',
    ),
    Case(
        "RedriveShareVacant", 9,
        {'redrive_vacant_shares{instance="1/2"}': "0 1x15",
         'redrive_vacant_shares{instance="2/2"}': "0x15"},
        {'redrive_vacant_shares{job="B",instance="1/2"}': "1x4 0x3 1x9"},
        "{}",
    ),
    Case(
        "RedriveOpenTransaction", 9,
        {'redrive_hidden_seconds{topic="A"}': "0x2 0+60x9"},
        {'redrive_hidden_seconds{topic="B"}': "0x6 30 61 0x9"},
        '{topic="A"}',
    ),
    Case(
        "RedriveTopicMissing", 40,
        {'redrive_handler_state{handler="A",redrive_handler_state="waiting"}': "1x50"},
        {'redrive_handler_state{handler="B",redrive_handler_state="waiting"}': "0x15 1x35"},
        '{handler="A"}',
    ),
    Case(
        "RedriveTargetFails", 40,
        {'redrive_failed_puts_total{handler="A",target="T",reason="R"}': "0+1x50"},
        {'redrive_failed_puts_total{handler="B",target="T",reason="R"}': "0+1x20 20x30"},
        '{handler="A",target="T",reason="R"}',
    ),
    Case(
        "RedriveBreakerOpen", 9,
        {'redrive_open_breakers{handler="A",instance="1"}': "0 1x15"},
        {'redrive_open_breakers{handler="B",instance="1"}': "1x4 0 1x15"},
        '{handler="A",instance="1"}',
    ),
    Case(
        "RedriveRetriesLate", 30,
        {'redrive_retry_lateness_seconds_bucket{handler="A",le="30"}': "0+1x40",
         'redrive_retry_lateness_seconds_bucket{handler="A",le="60"}': "0+2x40",
         'redrive_retry_lateness_seconds_bucket{handler="A",le="+Inf"}': "0+2x40"},
        {'redrive_retry_lateness_seconds_bucket{handler="B",le="30"}': "0+99x40",
         'redrive_retry_lateness_seconds_bucket{handler="B",le="60"}': "0+100x40",
         'redrive_retry_lateness_seconds_bucket{handler="B",le="+Inf"}': "0+100x40"},
        '{handler="A"}',
    ),
    Case(
        "RedriveLedgerLate", 30,
        {'redrive_ledger_delay_seconds{instance="A"}': "0+60x40"},
        {'redrive_ledger_delay_seconds{instance="B"}': "0+20x40"},
        '{instance="A"}',
    ),
    Case(
        "RedriveSurveyFails", 30,
        {'redrive_broker_answer_timestamp_seconds{instance="A"}': "0x40"},
        {'redrive_broker_answer_timestamp_seconds{instance="B"}': "0+60x40"},
        '{instance="A"}',
    ),
    Case(
        "RedriveLedgerSurveyFails", 30,
        {'redrive_ledger_answer_timestamp_seconds{instance="A"}': "60x40"},
        {'redrive_ledger_answer_timestamp_seconds{instance="B"}': "0+60x40",
         'redrive_ledger_answer_timestamp_seconds{instance="C"}': "0x40"},
        '{instance="A"}',
    ),
]  # fmt: skip


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
