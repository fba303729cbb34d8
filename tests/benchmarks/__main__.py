"""`python -m tests.benchmarks [NAME ...]`: measures, prints a table, writes .bench/results.json.

Where what its plot shows was measured, it writes .bench/plot.svg, too.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .plot import write_plot
from .registry import Benchmark, Row, Scale, Skipped, benchmarks
from .report import print_table, write_results

RESULTS = Path(__file__).parents[2] / ".bench" / "results.json"
PLOT = RESULTS.with_name("plot.svg")


def main(names: Sequence[str]) -> int:
    logging.disable(logging.ERROR)  # what is killed and frozen here on purpose is no news
    try:
        chosen = benchmarks(names)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    rows = [row for one in chosen for row in _measured(one)]
    print_table(rows)
    write_results(rows, RESULTS)
    if write_plot(rows, PLOT):
        print(f"plot: {PLOT}", file=sys.stderr)
    return 0


def _measured(one: Benchmark) -> Iterator[Row]:
    began = time.monotonic()
    try:
        yield from one.measure(Scale())
        note = f"{time.monotonic() - began:.0f} s"
    except Skipped as skipped:
        note = f"skipped: {skipped}"
    print(f"{', '.join(one.names)}: {note}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
