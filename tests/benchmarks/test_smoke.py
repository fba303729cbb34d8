"""Every benchmark still runs, on as little as there is. How long things take is not looked at."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks import real_livekit
from tests.benchmarks.plot import CURVES, write_plot
from tests.benchmarks.recorded import LENGTHS
from tests.benchmarks.registry import Benchmark, Row, Scale, benchmarks
from tests.benchmarks.report import print_table, write_results

# what needs the real server is tried in tests/real/test_measure.py
RUN_HERE = [one for one in benchmarks() if one.measure.__module__ != real_livekit.__name__]


@pytest.mark.parametrize("one", RUN_HERE, ids=lambda one: one.names[0])
def test_it_runs(one: Benchmark) -> None:
    rows = list(one.measure(Scale(tiny=True)))
    assert [row.name for row in rows] == list(one.names)
    assert all(math.isfinite(row.value) and row.floor > 0 for row in rows)


def test_results_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("speed", 6.0, "ms", 4.0, "< 10 ms"), Row("rate", 1234.5, "per s", 2000.0)]
    print_table(rows)
    write_results(rows, tmp_path / "bench" / "results.json")
    found = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert found[0] == {"name": "speed", "value": 6.0, "unit": "ms", "floor": 4.0, "ratio": 1.5}
    assert "1.50" in capsys.readouterr().out


def test_what_was_measured_is_plotted(tmp_path: Path) -> None:
    names = [f"{curve.names}_{turns}" for curve in CURVES for turns in LENGTHS]
    rows = [Row(name, 6.0, "ms", 4.0) for name in names]
    assert write_plot(rows, tmp_path / "bench" / "plot.svg")
    picture = ElementTree.parse(tmp_path / "bench" / "plot.svg")
    words = "".join(picture.getroot().itertext())
    assert all(curve.label in words and curve.floor in words for curve in CURVES)


def test_part_of_it_is_not_plotted(tmp_path: Path) -> None:
    assert not write_plot([Row("on_enter_resume_10", 6.0, "ms", 4.0)], tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())


def test_names_choose() -> None:
    assert [one.names for one in benchmarks(["turn_durable"])] == [("turn_durable",)]
    with pytest.raises(LookupError, match="no benchmark nothing"):
        benchmarks(["nothing"])
