"""Shares for other processes, which import no more than they have to."""

from __future__ import annotations

import os
from collections.abc import Callable

from redrive.errors import TransientFault
from redrive.what_if.sources import Over
from redrive.what_if.totals import Totals


def counted(advance: Callable[[int], None]) -> Totals:
    """A share of three messages."""
    advance(2)
    advance(1)
    totals = Totals()
    totals.messages[Over.BACKLOG] = 3
    return totals


def failed(_: Callable[[int], None]) -> Totals:
    """A share on a broker that is silent."""
    raise TransientFault("orders:0 gave nothing for 30 s", hint="wait")


def killed(_: Callable[[int], None]) -> Totals:
    """A share whose process ends half-way."""
    os._exit(7)
