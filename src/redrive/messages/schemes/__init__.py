"""The schemes in which dead letters say why and where they failed, one file for each."""

from __future__ import annotations

from redrive.messages.schemes.view import NO_SCHEME, UNKNOWN_ORIGIN, DeadLetterView, Origin

__all__ = ["NO_SCHEME", "UNKNOWN_ORIGIN", "DeadLetterView", "Origin"]
