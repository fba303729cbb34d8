"""A handoff is told as what it is, as records come in."""

from __future__ import annotations

import pytest

from recall_livekit.cli.paper import Paper
from recall_livekit.cli.telling import record_line
from recall_livekit.models import Handoff


def test_a_handoff_says_from_whom_to_whom(capsys: pytest.CaptureFixture[str]) -> None:
    for previous in ("reception", None):
        handoff = Handoff(at=0.0, agent="billing", previous=previous)
        record_line(Paper(), handoff, "held")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("from reception to billing")
    assert second.endswith("from nobody to billing")
