"""``redrive plan``: what another rules table would do with the existing messages."""

from __future__ import annotations

from redrive.what_if.answer import WhatIf
from redrive.what_if.question import Over, Question, ask

__all__ = ["Over", "Question", "WhatIf", "answer", "ask", "text"]
