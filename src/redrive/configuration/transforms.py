"""Transforms as settings, and the objects made from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from redrive.engine.edits import Content, FunctionTransform, PatchTransform, Transform
from redrive.entry_point import imported
from redrive.messages.json_patch import JsonPatch, read_json
from redrive.topology.put import Refusal


@dataclass(frozen=True, slots=True)
class TransformConfiguration:
    """One ``[transforms.NAME]``, checked."""

    name: str
    patch: bytes = b""
    """The text of a JSON Patch; empty if it is a function."""
    function: str = ""
    """``package.module:function``."""

    def applied(self, content: Content) -> Content | Refusal:
        """See ``Transform.applied``.

        Raises:
            ConfigurationError: The function cannot be imported in this process.
        """
        return _transform(self).applied(content)


@lru_cache(maxsize=256)
def _transform(settings: TransformConfiguration) -> Transform:
    if settings.function:
        return FunctionTransform(settings.name, imported(settings.function))
    return PatchTransform(settings.name, JsonPatch.of(read_json(settings.patch)))
