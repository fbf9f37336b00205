"""The commands of Redrive run in this process, and Python in another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner, Result

from redrive.__main__ import main


def redrive(
    *words: str | Path, typed: str | bytes | None = None, code: int | None = None
) -> Result:
    """What a command says: ``redrive("check", "orders.rul", code=0)``.

    Args:
        words: The command line.
        typed: What it reads from its standard input.
        code: The exit code that it has to end with; None for any.
    """
    result = CliRunner().invoke(main, [*map(str, words)], input=typed, prog_name="redrive")
    assert code is None or result.exit_code == code, result.output
    return result


def json_of(*words: str | Path) -> Any:
    """What a command that succeeds says in JSON."""
    return orjson.loads(redrive(*words, "--json", code=0).stdout)


def python(
    *arguments: str | Path, code: int | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """What a Python process says: ``python("-m", "redrive", "status", code=0)``.

    Args:
        arguments: Those of Python.
        code: The exit code that it has to end with; None for any.
        more: Arguments of ``subprocess.run``.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert code is None or done.returncode == code, done.stderr
    return done
