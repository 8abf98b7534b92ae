"""Targets, table, plot and JSON of a report."""

from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from server.bench.figures import Figures
from server.bench.growth import Growth
from server.bench.machine import Machine
from server.bench.plot import svg, ticks
from server.bench.report import Cell, Report, read_json, write_json
from server.bench.table import render
from server.bench.targets import Target, serving_targets, shape_targets


def found(rate: float, seconds: float = 1.0, step: float | None = 0.01) -> Figures:
    return Figures(seconds, rate, 0.1, 0.2, 0.01, 0.02, step, None, 3e8, 2e8)


MEDIANS = {
    ("paceline", 1): found(100),
    ("engine", 1): found(110),
    ("og-threads", 1): found(80),
    ("openvino", 1): found(50),
    ("paceline", 32): found(1100),
    ("engine", 32): found(1110),
    ("og-threads", 32): found(85),
    ("openvino", 32): found(800),
}


def test_each_concurrency_is_held_against_its_best_peer() -> None:
    against = {t.what: t for t in serving_targets(MEDIANS) if "best peer" in t.what}
    alone, crowd = against.values()
    assert (alone.value, alone.bound, alone.met) == (100 / 80, 1.25, True)
    assert "og-threads" in alone.what
    assert (crowd.value, crowd.bound, crowd.met) == (1100 / 800, 1.5, False)
    assert "openvino" in crowd.what


def test_paceline_is_held_against_itself_alone_against_generators_and_against_its_engine() -> None:
    values = [t.value for t in serving_targets(MEDIANS) if "best peer" not in t.what]
    assert values == [pytest.approx(11.0), pytest.approx(1100 / 85), pytest.approx(1100 / 1110)]


def test_targets_without_their_figures_are_not_listed() -> None:
    assert serving_targets({("paceline", 2): found(1), ("engine", 2): found(1)}) == []


def test_a_shape_is_held_against_one_request_and_its_cache() -> None:
    medians = {("engine", n): found(1, 5.0 + n, 0.125 * n) for n in (1, 4, 16)}
    four, sixteen, memory = shape_targets(medians, 1.2e9, 0.4e9)
    assert (four.value, four.bound, four.met) == (9 / 6, 1.15, False)
    assert (sixteen.value, sixteen.bound) == (16, 1.7)
    assert memory.value == pytest.approx(1.2)
    assert memory.bound == pytest.approx(0.42)


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (Target("", 1.5, 1.5), "met"),
        (Target("", 1.2, 1.5), "missed by 20%"),
        (Target("", 1.1, 1.15, least=False), "met"),
        (Target("", 2.3, 1.15, least=False), "missed by 100%"),
    ],
)
def test_a_verdict_says_by_how_much_a_target_is_missed(target: Target, verdict: str) -> None:
    assert target.verdict == verdict


def report() -> Report:
    cells = [Cell(name, count, figures, [figures]) for (name, count), figures in MEDIANS.items()]
    return Report(
        subject="a <model> & more",
        created="2026-01-02T03:04:05+00:00",
        machine=Machine("a processor", ["avx2"], "avx2", 2, 2**30, "a system", {"paceline": "1"}),
        threads=2,
        prompt_tokens=60,
        new_tokens=48,
        cells=cells,
        left_out={"og-batch": "it had no folder"},
        targets=serving_targets(MEDIANS),
        growth=Growth(4000, 20),
    )


def test_the_table_names_contenders_figures_targets_and_who_was_left_out() -> None:
    text = StringIO()
    Console(width=160, file=text).print(render(report()))
    for part in ("paceline, HTTP", "1100.0", "missed by 8%", "static batch was left out: it had no folder", "avx2"):
        assert part in text.getvalue()


def test_the_plot_is_xml_with_a_line_for_each_contender_in_each_panel() -> None:
    root = ElementTree.fromstring(svg(report()))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 5 * 4
    assert root.find("{http://www.w3.org/2000/svg}text").text == "a <model> & more"  # type: ignore[union-attr]


def test_a_plot_of_one_concurrency_can_be_drawn() -> None:
    figures = found(1.0, step=None)
    one = Report("m", "2026", report().machine, 1, 2, 2, [Cell("engine", 4, figures, [figures])], {})
    assert svg(one).startswith("<svg")


@pytest.mark.parametrize(
    ("most", "expected"), [(100, (20, 5)), (101, (50, 3)), (0.9, (0.2, 5)), (2000, (500, 4)), (0, (1, 2))]
)
def test_ticks_are_round_and_reach_the_most(most: float, expected: tuple[float, int]) -> None:
    step, number = ticks(most)
    assert step == pytest.approx(expected[0])
    assert number == expected[1]


def test_json_holds_everything(tmp_path: Path) -> None:
    write_json(report(), tmp_path / "made" / "bench.json")
    assert read_json(tmp_path / "made" / "bench.json") == report()


def test_growth_is_stated_for_any_number_of_tokens() -> None:
    assert Growth(4000, 20).of(2048) == 409600
