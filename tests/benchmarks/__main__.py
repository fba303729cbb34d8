"""`python -m tests.benchmarks [NAME ...]`: measures, prints a table, writes .bench/results.json."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .registry import Benchmark, Row, Scale, Skipped, benchmarks
from .report import print_table, write_results

RESULTS = Path(__file__).parents[2] / ".bench" / "results.json"


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
