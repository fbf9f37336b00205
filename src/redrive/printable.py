"""Text for a terminal: control characters are shown, never sent.

A message, a table or a file name may have characters that clear a screen, hide a line or reverse
the writing direction. This module imports no package.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_PICTURES: Final = 0x2400
"""The Unicode block with a symbol for each of the first 32 control characters."""
_DELETE: Final = 0x7F
_PICTURE_OF_DELETE: Final = "\u2421"
_UNKNOWN: Final = "\ufffd"
_SHOWN_AS_THEY_ARE: Final = "\n\t"


def printable(text: str) -> str:
    """A text of the same length without effect on a terminal.

    Line ends and tabs stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character in _SHOWN_AS_THEY_ARE:
        return character
    code = ord(character)
    if code < ord(" "):
        return chr(_PICTURES + code)
    if code == _DELETE:
        return _PICTURE_OF_DELETE
    # Blanks of other scripts are unchanged; controls, marks of direction, and what is not a
    # character are replaced.
    return character if unicodedata.category(character) == "Zs" else _UNKNOWN


def plain_text(data: bytes, besides: str = "\t\r\n") -> str | None:
    """Bytes as text; None if not UTF-8, or with a control character not in ``besides``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return (
        text if all(character.isprintable() or character in besides for character in text) else None
    )


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 message``, ``1,234 messages``; ``1 try``, ``2 tries``."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def shortened(text: str, longest: int) -> str:
    """A text, with an ellipsis at its end if it is longer than ``longest`` columns."""
    if _columns(text) <= longest:
        return text
    while _columns(text) >= longest:
        text = text[:-1]
    return f"{text}…"


def _columns(text: str) -> int:
    """Columns of a terminal; a character of East Asia takes two."""
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
