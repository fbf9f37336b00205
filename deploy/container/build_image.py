"""Build the image with podman or buildah, and run it where podman is.

    python deploy/container/build_image.py [TAG]

Where there is neither, or the base of the image can't be had, it says so and ends with 0: that is
no error of the project.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"


def bases(text: str) -> list[str]:
    """The images that a Containerfile begins with, each once."""
    return list(dict.fromkeys(re.findall(r"^FROM (\S+)", text, re.MULTILINE)))


def main(arguments: Sequence[str]) -> int:
    """Build, and return the exit code."""
    tag = next(iter(arguments), "redrive")
    program = shutil.which("podman") or shutil.which("buildah")
    if program is None:
        return _skipped("neither podman nor buildah is installed")
    for base in bases(CONTAINERFILE.read_text()):
        if problem := _missing(program, base):
            return _skipped(f"the base {base} is not here and can't be pulled: {problem}")
    # A health check is not part of the other format.
    command = [program, "build", "--format", "docker", "--file", str(CONTAINERFILE), "--tag", tag]
    built = subprocess.run([*command, str(ROOT)], check=False).returncode
    if built or not program.endswith("podman"):
        return built
    runs = [program, "run", "--rm", "--network=none", "--read-only", "--user=12345:0"]
    return subprocess.run(
        [*runs, "--tmpfs=/tmp", tag, "redrive", "--version"], check=False
    ).returncode


def _missing(program: str, base: str) -> str:
    """Why a base can't be had; empty if it can."""
    there = subprocess.run(
        [program, "inspect", "--type", "image", base], capture_output=True, check=False
    )
    if there.returncode == 0:
        return ""
    pulled = subprocess.run([program, "pull", base], capture_output=True, text=True, check=False)
    lines = pulled.stderr.strip().splitlines() or ["no reason told"]
    return lines[-1] if pulled.returncode else ""


def _skipped(reason: str) -> int:
    sys.stdout.write(f"the image is not built: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
