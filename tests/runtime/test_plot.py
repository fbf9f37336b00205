"""What a long run ends with: a picture that any browser shows, and whether memory was flat."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from benchmarks.plot import Panel, svg
from benchmarks.soak import Sample, trends

SVG = "{http://www.w3.org/2000/svg}"


def read(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - we wrote it


def test_every_curve_and_every_mark_is_in_the_picture() -> None:
    panels = [Panel("a < b", {"one": [0.0, None, 40.0], "two": [10.0, 20.0, 30.0]})]
    root = read(svg("R & D", [0.0, 5.0, 10.0], panels, {5.0: "kill <job>"}))
    first, second = (line.get("points", "").split() for line in root.iter(f"{SVG}polyline"))
    assert [len(first), len(second)] == [2, 3]
    frame = next(box for box in root.iter(f"{SVG}rect") if box.get("stroke"))
    assert float(first[-1].split(",")[1]) == float(frame.get("y", ""))
    (mark,) = root.iter(f"{SVG}line")
    assert mark.get("x1") == mark.get("x2") == second[1].split(",")[0]
    texts = {label.text for label in root.iter(f"{SVG}text")}
    assert {"R & D", "a < b", "one", "two", "kill <job>"} <= texts


def test_a_run_without_samples_has_a_picture_too() -> None:
    read(svg("nothing", [], [Panel("empty", {"none": []})], {}))


def noted(memory: float, at: float, age: float = 1_000.0) -> Sample:
    """A moment of a run, at which Java had so many MB."""
    return Sample(at, age, 0, 0, 0, {"memory": {"java": memory}, "files": {}, "threads": {}})


@pytest.mark.parametrize(("growth", "is_flat"), [(0.0, True), (0.1, True), (0.5, False)])
def test_memory_that_grows_with_the_hours_is_told(growth: float, *, is_flat: bool) -> None:
    samples = [noted(1_000 * (1 + growth * at / 7_200), at) for at in range(0, 7_200, 60)]
    samples[20] = noted(90_000, 1_200.0)
    (trend,) = trends(samples)
    assert trend.name == "memory of java"
    assert trend.is_flat is is_flat, str(trend)


def test_a_job_that_was_just_started_and_a_short_run_are_not_judged() -> None:
    steady = [noted(1_000, at) for at in range(0, 7_200, 60)]
    assert trends([*steady, *(noted(1, at, age=5.0) for at in range(1_000, 7_200, 7))])[0].is_flat
    killed = Sample(3_600, 1_000.0, 0, 0, 0, {})
    assert trends([*steady[:60], killed, *steady[60:]]) == trends(steady)
    assert not trends([noted(1_000, at) for at in range(0, 120, 10)])
    assert not trends([])
