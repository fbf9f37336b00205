"""``redrive plan``: what another rules table would do with the existing messages.

Both tables are tried on every message by the job's own decision code; nothing is written.
"""

from __future__ import annotations

from redrive.what_if.answer import WhatIf
from redrive.what_if.question import Question, ask
from redrive.what_if.sources import Over

__all__ = ["Over", "Question", "WhatIf", "answer", "ask", "text"]
