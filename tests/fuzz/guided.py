"""Coverage-guided fuzzing of both parsers and of the reader of dead-letter headers.

    python -m pip install atheris
    python -m tests.fuzz.guided mqdlh --seconds 60

atheris (libFuzzer for Python) exists for Linux only, so it is not among the locked packages. An
input that breaks something is left in the current folder as ``crash-...``; then it belongs into the
seeds of its target.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

TARGETS: Final = ("rules", "mqsc", "mqdlh")


def target(name: str) -> tuple[Callable[[bytes], None], Iterable[bytes]]:
    """What takes an input, and inputs to begin with."""
    if name == "rules":
        from tests.fuzz import rules_table  # noqa: PLC0415 - is instrumented when it is imported

        def check(data: bytes) -> None:
            rules_table.check(data.decode("utf-8", "replace"))

        return check, [text.encode() for text in rules_table.corpus()]
    if name == "mqsc":
        from tests.fuzz import mqsc  # noqa: PLC0415 - as above

        return mqsc.check, [text.encode() for text in mqsc.SEEDS]
    from tests.fuzz import mqdlh  # noqa: PLC0415 - as above

    return mqdlh.check, mqdlh.SEEDS


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz a reader, guided by coverage.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        raise SystemExit("atheris is missing: python -m pip install atheris") from None
    with atheris.instrument_imports(include=["redrive"]):
        check, seeds = target(options.target)
    with tempfile.TemporaryDirectory(prefix="redrive-fuzz-") as folder:
        for number, seed in enumerate(seeds):
            (Path(folder) / str(number)).write_bytes(seed)
        limits = [f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-max_len=4096"]
        atheris.Setup([sys.argv[0], *limits, folder], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
