"""The picture at the end of a long run is an SVG that any browser shows."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.plot import Panel, svg

SVG = "{http://www.w3.org/2000/svg}"


def read(text: str) -> ET.Element:
    """The root of a picture."""
    return ET.fromstring(text)  # noqa: S314 - we wrote it


def test_every_curve_and_every_mark_is_in_the_picture() -> None:
    """The highest value touches the top, nothing stands for what is not known, texts are safe."""
    panels = [Panel("a < b", {"one": [0.0, None, 40.0], "two": [10.0, 20.0, 30.0]})]
    root = read(svg("R & D", [0.0, 5.0, 10.0], panels, {5.0: "kill <job>"}))
    first, second = (one.get("points", "").split() for one in root.iter(f"{SVG}polyline"))
    assert [len(first), len(second)] == [2, 3]
    frame = next(one for one in root.iter(f"{SVG}rect") if one.get("stroke"))
    assert float(first[-1].split(",")[1]) == float(frame.get("y", ""))
    (mark,) = root.iter(f"{SVG}line")
    assert mark.get("x1") == mark.get("x2") == second[1].split(",")[0]
    texts = {one.text for one in root.iter(f"{SVG}text")}
    assert {"R & D", "a < b", "one", "two", "kill <job>"} <= texts


def test_a_run_without_samples_has_a_picture_too() -> None:
    """Whatever went wrong: a report never fails for want of values."""
    read(svg("nothing", [], [Panel("empty", {"none": []})], {}))
