"""The command line of a benchmark, and a broker to measure on."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redrive.broker import EmbeddedBroker


def parser(description: str | None, **numbers: float) -> argparse.ArgumentParser:
    """A parser with an option for each number, and ``--json``.

    Args:
        description: The docstring of the benchmark.
        numbers: Default of each option by its name.
    """
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    for name, default in numbers.items():
        made.add_argument(f"--{name}", type=type(default), default=default, metavar="N")
    made.add_argument("--json", action="store_true", help="figures as JSON, for programs")
    return made


def hidden(made: argparse.ArgumentParser, *names: str) -> argparse.ArgumentParser:
    """Adds options that the benchmark gives to processes that it starts."""
    for name in names:
        made.add_argument(f"--{name}", help=argparse.SUPPRESS)
    return made


def show(figures: Any) -> None:  # noqa: ANN401 - whatever JSON has
    """Prints figures as JSON."""
    print(json.dumps(figures, indent=2), flush=True)


@contextmanager
def broker(**settings: Any) -> Iterator[tuple[Path, str]]:  # noqa: ANN401 - those of the broker
    """A folder and a broker for the time of the context.

    Args:
        settings: Of ``EmbeddedBroker``.

    Yields:
        The folder, and where the broker listens.
    """
    with (
        TemporaryDirectory(prefix="redrive-bench-") as folder,
        EmbeddedBroker(Path(folder) / "broker", **settings) as embedded,
    ):
        yield Path(folder), embedded.bootstrap_servers


def in_process(module: str, contestant: str, *given: object) -> dict[str, Any]:
    """Measures one contestant in a fresh process of a benchmark.

    Args:
        module: The benchmark; with ``--contestant`` it prints its figures as JSON.
        contestant: Its name.
        given: More arguments.

    Raises:
        SystemExit: It failed.
    """
    command = [sys.executable, "-m", module, "--contestant", contestant, *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{contestant} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures
