from __future__ import annotations

import pytest

from .tally import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was simulated, and how each mutant was caught."""
    if TALLY.seeds:
        terminalreporter.section("simulation")
        terminalreporter.write_line(TALLY.summary())
    if TALLY.caught:
        terminalreporter.section("mutants")
        for line in TALLY.table():
            terminalreporter.write_line(line)
