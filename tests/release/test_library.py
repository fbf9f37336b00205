"""``import redrive`` from the wheel: by ``spark-submit``, and in a notebook."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conftest import KafkaClient
from tests.release.conftest import DONE, ROOT, Run, Submit, link
from tests.streaming.conftest import letter

NOTEBOOK = ROOT / "examples" / "orders" / "notebook.ipynb"
OTHER = 2085
"""A reason of a message that the example discards."""


def test_spark_submit_runs_a_job_with_the_jars_that_setup_prints(submit: Submit) -> None:
    done = submit("--master", "local[2]")
    assert done.stdout.splitlines() == DONE, done.stderr[-3000:]
    assert done.returncode == 0


def test_notebook_of_the_orders_runs(
    kafka: KafkaClient, run: Run, where: dict[str, str], tmp_path: Path
) -> None:
    """With what runs notebooks beside what the wheel requires."""
    dlq = kafka.topic("dlq")
    for name in ("redrive.toml", "orders.rul", NOTEBOOK.name):
        text = (NOTEBOOK.with_name(name)).read_text()
        text = text.replace("localhost:9092", kafka.bootstrap_servers)
        text = text.replace("orders.dlq", dlq).replace('name = "orders"', f'name = "{dlq}"')
        (tmp_path / name).write_text(text)
    kafka.produce(dlq, [letter(OTHER, "orders.replies"), letter(OTHER, "nowhere")])
    (tmp_path / "jupyter").mkdir()
    link(tmp_path / "jupyter", ["ipykernel", "nbclient"])
    program = "from nbclient.cli import main; main()"
    options = ("--inplace", "--startup_timeout=600", NOTEBOOK.name)
    path = str(tmp_path / "jupyter")
    done = run("python", "-c", program, *options, PYTHONPATH=path, **where)
    assert done.returncode == 0, done.stderr[-3000:]
    _, _, decided, handled = json.loads((tmp_path / NOTEBOOK.name).read_text())["cells"]
    table = "".join(decided["outputs"][0]["data"]["text/plain"])
    assert {"DISCARD", "RETRY"} <= set(table.split())
    said = "".join(handled["outputs"][0]["text"])
    assert {"discarded", "parked"} <= set(re.findall(r"\b1 (\w+)", said))
    assert "".join(handled["outputs"][1]["data"]["text/plain"]).count(dlq) == 2
