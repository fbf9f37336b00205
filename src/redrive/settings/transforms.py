"""Transformations of messages: ``[transforms.NAME]``."""

from __future__ import annotations

import re
from typing import Final

from redrive.configuration.transforms import TransformConfiguration
from redrive.messages.json_patch import JsonPatch, read_json
from redrive.settings.findings import Section

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,48}")


def read_transforms(section: Section) -> tuple[TransformConfiguration, ...]:
    """The transformations of the table ``[transforms]``; errors are reported in the section."""
    return tuple(_transform(section.section(name), name) for name in section.data)


def _transform(section: Section, name: str) -> TransformConfiguration:
    findings, path = section.findings, section.path
    if not _NAME.fullmatch(name):
        expected = "up to 48 letters, digits, dots, hyphens, underscores"
        findings.error_at_key(path, "BAD_VALUE", f"{name!r} is not a name", expected=expected)
    if section.has("json_patch") == section.has("python"):
        message = f"[transforms.{name}] needs either json_patch or python"
        hint = 'json_patch = "fix.json", or python = "package.module:function"'
        findings.error_at_key(path, "MISSING", message, hint=hint)
    return TransformConfiguration(name, _patch(section), section.function("python"))


def _patch(section: Section) -> bytes:
    path = section.file("json_patch")
    if path is None:
        return b""
    try:
        patch = path.read_bytes()
        JsonPatch.of(read_json(patch))
    except OSError as error:
        section.error("json_patch", "BAD_VALUE", f"{path} can't be read: {error.strerror}")
    except ValueError as error:
        told = str(error).replace("the value", "the file", 1)
        hint = 'such as [{"op": "replace", "path": "/currency", "value": "EUR"}]'
        section.error("json_patch", "BAD_VALUE", f"{path}: {told}", hint=hint)
    else:
        return patch
    return b""
