"""The demos from the wheel: Spark, a broker and the job, with nothing of the checkout.

They run on the packaged Java, whatever the machine has.
"""

from __future__ import annotations

import json

from tests.release.conftest import Run

from redrive.java import cache_directory

WHERE = {"REDRIVE_CACHE": str(cache_directory()), "REDRIVE_JAVA": "packaged"}


def test_the_demo_of_the_wheel_reconciles(run: Run) -> None:
    answer = run("redrive", "demo", "mq", "--messages", "300", "--fast", **WHERE)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 lost, 0 duplicated" in answer.stdout


def test_demo_of_kafka_adds_up(run: Run) -> None:
    asked = ("demo", "--messages", "60", "--fast", "--seed", "7", "--json")
    answer = run("redrive", *asked, **WHERE)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    result = json.loads(answer.stdout)
    assert result["adds_up"]
    assert (result["in"], result["lost"], result["duplicated"]) == (60, 0, 0)
    assert (result["problems"], result["retries"]["early"]) == ([], 0)
    kinds = {kind["what"]: kind for kind in result["kinds"]}
    late = kinds["a listener whose topic does not exist"]
    assert late["failures"]["MQRC_UNKNOWN_OBJECT_NAME"] >= late["messages"] > 0
