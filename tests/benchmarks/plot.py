"""A picture of what should not depend on how long a call was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .recorded import LENGTHS
from .registry import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows named `names` with a length, each with its floor."""

    names: str
    label: str
    floor: str
    colour: str
    value: Callable[[Row], float] = lambda row: row.value

    def rows(self, measured: Mapping[str, Row]) -> list[Row]:
        """Its rows from the shortest call to the longest. Raises KeyError if one is missing."""
        return [measured[f"{self.names}_{turns}"] for turns in LENGTHS]


CURVES = (
    Curve(
        "takeover_sigkill",
        "SIGKILL until a waiting worker holds the call",
        "floor: until it holds a bare file lock",
        "#d55e00",
    ),
    Curve(
        "on_enter_resume",
        "a resumed agent until on_enter",
        "floor: a plain LiveKit agent",
        "#0072b2",
        lambda row: row.floor + row.value,  # its rows tell what is extra
    ),
)


def write_plot(rows: Sequence[Row], path: Path) -> bool:
    """Draws the rows with a length; False, and nothing is written, if one was not measured."""
    measured = {row.name: row for row in rows}
    try:
        drawn = [(curve, curve.rows(measured)) for curve in CURVES]
    except KeyError:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    _draw(drawn, path)
    return True


def _draw(drawn: Sequence[tuple[Curve, Sequence[Row]]], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "recall", "font.size": 11}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for curve, rows in drawn:
            floors = [row.floor for row in rows]
            axes.plot(
                LENGTHS, list(map(curve.value, rows)), "o-", color=curve.colour, label=curve.label
            )
            axes.plot(LENGTHS, floors, ".--", color=curve.colour, label=curve.floor)
        _label(axes)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _label(axes: Axes) -> None:
    axes.set_title("Resuming a call, by its length")
    axes.set_xscale("log")
    axes.set_xticks(LENGTHS, [f"{turns:,}" for turns in LENGTHS])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("turns recorded before (log scale)")
    axes.set_ylabel("time in ms")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
