"""Functions of users, which settings name as entry points: ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from redrive.errors import ConfigurationError


def imported(name: str) -> Callable[..., Any]:
    """The function named in settings.

    Args:
        name: ``package.module:function``.

    Raises:
        ConfigurationError: It cannot be imported, or is not a function.
    """
    module, _, function = name.partition(":")
    hint = "the folder of the package must be on PYTHONPATH, also on Spark's workers"
    try:
        command = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise ConfigurationError(f"{name} cannot be imported: {error}", hint=hint) from error
    if not callable(command):
        raise ConfigurationError(f"{name} is not a function", hint=hint)
    return command  # type: ignore[no-any-return]  # what is callable has no other type
