"""Write the software bill of materials of a release, in CycloneDX 1.6 JSON.

    python deploy/release/sbom.py dist/redrive-0.1.0.cdx.json

It lists what ``requirements.lock`` and ``jars.lock`` pin, which is what an installation needs. The
same checkout always gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from redrive.java import Jar, locked_jars

ROOT: Final = Path(__file__).parents[2]
_PIN: Final = re.compile(
    r"(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))? *\\?$"
)
_VIA: Final = re.compile(r" +#(?: via|  ) +(?P<parent>[\w.-]+)(?:\[[\w,-]+\])?$")


@dataclass(frozen=True)
class Pin:
    """One release that the lock of the Python packages names."""

    name: NormalizedName
    version: str
    marker: str
    """The environments that get this release; empty for all."""
    hashes: list[str] = field(default_factory=list)
    """SHA-256 of each file of the release that may be installed, as hex digits."""
    parents: list[NormalizedName] = field(default_factory=list)
    """Names of the packages that require it, the project itself left out."""

    @property
    def reference(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_pins(lock: str) -> list[Pin]:
    """Every pin of a lock that ``uv pip compile --generate-hashes`` wrote, in its order.

    Args:
        lock: Text of the lock.
    """
    pins: list[Pin] = []
    for line in lock.splitlines():
        if pinned := _PIN.match(line):
            name, version, marker = pinned.group("name", "version", "marker")
            pins.append(Pin(canonicalize_name(name), version, marker or ""))
        elif "--hash=sha256:" in line:
            pins[-1].hashes.append(line.split("sha256:")[1].rstrip(" \\"))
        elif via := _VIA.match(line):
            pins[-1].parents.append(canonicalize_name(via["parent"]))
    return pins


def installed(pins: list[Pin], requirements: list[str]) -> set[NormalizedName]:
    """Names of all packages that some requirements bring, directly or not."""
    found: set[NormalizedName] = set()
    waiting = {canonicalize_name(Requirement(text).name) for text in requirements}
    while waiting:
        found |= waiting
        waiting = {pin.name for pin in pins if found.intersection(pin.parents)} - found
    return found


def bill_of_materials(project: Mapping[str, Any], pins: list[Pin], moment: int) -> dict[str, Any]:
    """The document.

    Args:
        project: The table [project] of pyproject.toml.
        pins: The pins of requirements.lock.
        moment: When the release was made, in seconds since the epoch.
    """
    required = installed(pins, project["dependencies"])
    optional = installed(pins, _optional(project)) - required
    shipped = [pin for pin in pins if pin.name in required | optional]
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [
        *(_python_package(pin, optional=pin.name in optional) for pin in shipped),
        *(_jar(jar) for jar in locked_jars()),
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": list(_dependencies(root, project, shipped)),
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))
    return document | {"serialNumber": f"urn:uuid:{number}"}


def _python_package(pin: Pin, *, optional: bool) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.reference,
        "name": pin.name,
        "version": pin.version,
        "scope": "optional" if optional else "required",
        "hashes": [{"alg": "SHA-256", "content": one} for one in pin.hashes],
        "purl": pin.reference,
    }
    if pin.marker:
        component["properties"] = [{"name": "redrive:marker", "value": pin.marker}]
    return component


def _jar(jar: Jar) -> dict[str, Any]:
    group, name, version = jar.coordinate.split(":")
    return {
        "type": "library",
        "bom-ref": f"{jar.group}:{jar.coordinate}",
        "group": group,
        "name": name,
        "version": version,
        "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        "purl": f"pkg:maven/{group}/{name}@{version}",
        "properties": [{"name": "redrive:class_path", "value": jar.group}],
    }


def _optional(project: Mapping[str, Any]) -> list[str]:
    """What users may install besides: the extras."""
    return [text for texts in project["optional-dependencies"].values() for text in texts]


def _dependencies(
    root: str, project: Mapping[str, Any], shipped: list[Pin]
) -> Iterator[dict[str, Any]]:
    """What the project and each Python package require; jars are the project's own choice."""
    texts = [*project["dependencies"], *_optional(project)]
    direct = {canonicalize_name(Requirement(text).name) for text in texts}
    own = [pin.reference for pin in shipped if pin.name in direct]
    jars = [f"{jar.group}:{jar.coordinate}" for jar in locked_jars()]
    yield {"ref": root, "dependsOn": [*own, *jars]}
    for pin in shipped:
        children = [child.reference for child in shipped if pin.name in child.parents]
        yield {"ref": pin.reference, "dependsOn": children}


def main(target: Path) -> None:
    """Writes the bill of materials of this checkout.

    Args:
        target: The file, which may exist.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = read_pins((ROOT / "requirements.lock").read_text())
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    document = bill_of_materials(project, pins, moment)
    target.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
