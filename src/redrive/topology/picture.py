"""Pictures as values - boxes, arrows, a legend - and as SVG text.

Nothing here knows what is drawn. Texts stay texts, so that they can be searched and read aloud; the
SVG needs no script, no style sheet and no font from elsewhere.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

LINE = 18
"""Height of a line of text, in pixels."""
PADDING = 10
"""Space between the border of a box and its text, in pixels."""
OUTLINE = 5
"""Space between a box and an outline around it, and between two outlines, in pixels."""

_FONT_SIZE = 12
# The widest of the usual monospaced fonts; a character of East Asia takes two columns.
_COLUMN = 7.4
_HEAD = 2 * LINE
_REACH = 40
_LEGEND_SAMPLE = 40
_UNPRINTABLE = re.compile("[^\x09\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Tone(StrEnum):
    """What a line or a box says by its colour."""

    PLAIN = "plain"
    QUIET = "quiet"
    STRONG = "strong"
    GOOD = "good"
    BAD = "bad"


class Stroke(StrEnum):
    """What an arrow stands for."""

    CHANNEL = "channel"
    """A channel or a connection: messages move along it."""
    DEFINITION = "definition"
    """A definition that names a queue or a manager elsewhere."""
    ALIAS = "alias"
    """A definition that names a queue of its own manager."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a box."""

    text: str
    """The text, as far as there is room for it."""
    tone: Tone = Tone.PLAIN
    """How it looks."""
    full: str = ""
    """The whole text, if the line is shortened; shown by a pointer that rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box with a head and lines of text."""

    title: str
    """First line of the head."""
    subtitle: str = ""
    """Second line of the head."""
    lines: tuple[Line, ...] = ()
    """What stands below the head."""
    tone: Tone = Tone.PLAIN
    """Colour of the head."""
    outlines: tuple[str, ...] = ()
    """Colours of the outlines around it, from the inner to the outer one."""
    x: int = 0
    """Left edge, in pixels."""
    y: int = 0
    """Upper edge, in pixels."""

    @property
    def width(self) -> int:
        """Width in pixels, without outlines."""
        texts = [self.title, self.subtitle, *(line.text for line in self.lines)]
        return 2 * PADDING + int(max(map(_columns, texts)) * _COLUMN) + 1

    @property
    def height(self) -> int:
        """Height in pixels, without outlines."""
        return _HEAD + PADDING + (len(self.lines) * LINE + PADDING if self.lines else 0)

    def middle_of(self, line: int | None = None) -> int:
        """The height of a line's middle in the picture; that of the head without a line."""
        if line is None:
            return self.y + (_HEAD + PADDING) // 2
        return self.y + _HEAD + 2 * PADDING + line * LINE + LINE // 2 - PADDING // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An arrow between the edges of boxes."""

    start: tuple[int, int]
    """Where it begins, in pixels."""
    end: tuple[int, int]
    """Where its head is, in pixels."""
    leaves: int = 1
    """The direction in which it leaves: 1 to the right, -1 to the left, 0 down."""
    arrives: int = -1
    """The side at which it arrives: -1 from the left, 1 from the right, 0 from above."""
    stroke: Stroke
    """What it stands for."""
    title: str = ""
    """What it is, shown by a pointer that rests on it and read aloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A whole picture."""

    title: str
    """What it shows, in a few words."""
    description: str
    """What it shows, for those who do not see it."""
    boxes: tuple[Box, ...]
    """The boxes; no two overlap."""
    arrows: tuple[Arrow, ...] = ()
    """The arrows, which run below the boxes."""
    outlines: tuple[tuple[str, str], ...] = ()
    """What the colours of outlines mean: colour and meaning."""
    strokes: tuple[tuple[Stroke, str], ...] = ()
    """What the strokes mean."""


def shortened(text: str, longest: int) -> str:
    """A text with an ellipsis at its end if it is longer than so many columns."""
    if _columns(text) <= longest:
        return text
    while _columns(text) >= longest:
        text = text[:-1]
    return f"{text}…"


def _columns(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def svg(picture: Picture) -> str:
    """Write a picture.

    Args:
        picture: The picture.

    Returns:
        A whole SVG document.
    """
    width, height = _extent(picture)
    legend = list(_legend(picture, height))
    height += (len(legend) + 1) * LINE if legend else 0
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"',
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{_escaped(picture.title)}</title>',
        f'<desc id="description">{_escaped(picture.description)}</desc>',
        _STYLE,
        '<rect class="paper" width="100%" height="100%"/>',
        *(_arrow(arrow) for arrow in picture.arrows),
        *(part for box in picture.boxes for part in _box(box)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


_STYLE = f"""<defs>
<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#37474f"/></marker>
</defs>
<style>
.paper {{ fill: #ffffff }}
text {{ font: {_FONT_SIZE}px monospace; fill: #1a1a1a }}
.title, .strong {{ font-weight: bold }}
.quiet {{ fill: #555555 }}
.good {{ fill: #1b5e20 }}
.bad {{ fill: #b71c1c }}
.box {{ fill: #ffffff; stroke: #37474f }}
.head {{ stroke: #37474f }}
.head-plain {{ fill: #eceff1 }}
.head-good {{ fill: #c8e6c9 }}
.head-bad {{ fill: #ffcdd2 }}
.outline {{ fill: none; stroke-width: 3 }}
.arrow {{ fill: none; stroke: #37474f; stroke-width: 1.5 }}
.definition {{ stroke-dasharray: 6 3 }}
.alias {{ stroke-dasharray: 2 3 }}
</style>"""


def _extent(picture: Picture) -> tuple[int, int]:
    margin = 2 * LINE
    texts = [meaning for _, meaning in (*picture.outlines, *picture.strokes)]
    legend = max(map(_columns, texts), default=0) * _COLUMN + 2 * PADDING + _LEGEND_SAMPLE
    right = max((box.x + box.width + _border(box) for box in picture.boxes), default=0)
    bottom = max((box.y + box.height + _border(box) for box in picture.boxes), default=0)
    return int(max(right, legend)) + margin, bottom + margin


def _border(box: Box) -> int:
    return OUTLINE * len(box.outlines)


def _box(box: Box) -> Iterator[str]:
    yield "<g>"
    for number, colour in enumerate(box.outlines, 1):
        away = number * OUTLINE
        yield (
            f'<rect class="outline" x="{box.x - away}" y="{box.y - away}" '
            f'width="{box.width + 2 * away}" height="{box.height + 2 * away}" '
            f'rx="{away}" stroke="{_escaped(colour)}"/>'
        )
    place = f'x="{box.x}" y="{box.y}" width="{box.width}"'
    yield f'<rect class="box" {place} height="{box.height}"/>'
    yield f'<rect class="head head-{box.tone}" {place} height="{_HEAD + PADDING}"/>'
    x, y = box.x + PADDING, box.y + PADDING // 2
    yield _text(Line(box.title), x, y + LINE - 4, "title")
    yield _text(Line(box.subtitle, Tone.QUIET), x, y + 2 * LINE - 4)
    for number, line in enumerate(box.lines):
        yield _text(line, x, box.middle_of(number) + _FONT_SIZE // 3)
    yield "</g>"


def _text(line: Line, x: int, y: int, style: str = "") -> str:
    if not line.text:
        return ""
    title = f"<title>{_escaped(line.full)}</title>" if line.full else ""
    return f'<text class="{style or line.tone}" x="{x}" y="{y}">{title}{_escaped(line.text)}</text>'


def _arrow(arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = arrow.start, arrow.end
    reach = max(_REACH, abs(x2 - x1) // 2) if arrow.leaves else max(1, (y2 - y1) // 2)
    first = (x1 + arrow.leaves * reach, y1 + (0 if arrow.leaves else reach))
    second = (x2 + arrow.arrives * reach, y2 - (0 if arrow.arrives else reach))
    path = f"M{x1} {y1}C{first[0]} {first[1]} {second[0]} {second[1]} {x2} {y2}"
    return (
        f'<path class="arrow {arrow.stroke}" d="{path}" marker-end="url(#head)">'
        f"<title>{_escaped(arrow.title)}</title></path>"
    )


def _legend(picture: Picture, top: int) -> Iterator[str]:
    x, y = 2 * LINE, top
    for stroke, meaning in picture.strokes:
        sample = f"M{x} {y}L{x + _LEGEND_SAMPLE - PADDING} {y}"
        yield (
            f'<path class="arrow {stroke}" d="{sample}" marker-end="url(#head)"/>'
            + _text(Line(meaning), x + _LEGEND_SAMPLE, y + 4)
        )
        y += LINE
    for colour, meaning in picture.outlines:
        yield (
            f'<rect class="outline" x="{x}" y="{y - 5}" width="{_LEGEND_SAMPLE - PADDING}" '
            f'height="10" rx="{OUTLINE}" stroke="{_escaped(colour)}"/>'
            + _text(Line(meaning), x + _LEGEND_SAMPLE, y + 4)
        )
        y += LINE


def _escaped(text: str) -> str:
    """A text for XML; characters that XML does not have become the replacement character."""
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))
