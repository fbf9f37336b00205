"""``python -m redrive.broker.training FILE``: writes the archive of the broker's classes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from redrive.broker.embedded import EmbeddedBroker
from redrive.java import training_options

_END: Final = 240.0
"""Seconds that Java may take to write the archive; it takes three on an idle machine."""


def train(path: Path) -> None:
    """Start a broker and stop it, which writes the archive; the file does not exist yet."""
    with tempfile.TemporaryDirectory(prefix="redrive-classes-") as folder:
        broker = EmbeddedBroker(Path(folder), java_options=training_options(path))
        try:
            broker.start()
        finally:
            broker.stop(timeout=_END)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
