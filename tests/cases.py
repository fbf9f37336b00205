"""Tables of cases: the arguments that tests are run with, in a YAML file beside their module.

test_a_short_name_is_refused:
- [name, reason]        # of the arguments
- [A, has one character]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

F = TypeVar("F", bound=Callable[..., Any])


def cases_beside(module: str) -> Callable[[F], F]:
    """Runs each test of a module that it decorates with the table of the test's name.

    Args:
        module: Its ``__file__``: the tables of ``test_a.py`` are in ``test_a.yaml``.
    """
    text = Path(module).with_suffix(".yaml").read_text(encoding="utf-8")
    tables: dict[str, list[list[Any]]] = yaml.load(text, yaml.CSafeLoader)

    def with_cases(test: F) -> F:
        names, *rows = tables[test.__name__]
        parametrized: F = pytest.mark.parametrize(names, rows)(test)
        return parametrized

    return with_cases
