"""`erase` and `prune`: gone is gone, so it is asked for, said, and never a live call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recall_livekit import Recall, StoreUnavailable
from recall_livekit.engine.engine import Engine

from ..files import contains
from .conftest import Invoke
from .filled import LEFT, LIVE, OLD, TABLE, Living
from .terminal import Terminal, at, piped

WORDS = b"half past seven"


def state_of(invoke: Invoke, directory: Path, call: str) -> str:
    return str(json.loads(invoke("show", call, "--json", at=directory).stdout)["state"])


def test_what_is_erased_is_gone_from_the_disk(invoke: Invoke, own: Path) -> None:
    assert contains(own, WORDS)
    ran = invoke("erase", TABLE, "--yes", at=own)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", f"erased: {TABLE}\n")
    assert not contains(own, WORDS)
    assert state_of(invoke, own, TABLE) == "erased"
    assert invoke("erase", TABLE, "--yes", at=own).code == 0


def test_a_call_that_is_not_there_is_not_made(invoke: Invoke, own: Path) -> None:
    before = sorted(path.name for path in (own / "calls").glob("*.db"))
    ran = invoke("erase", "nobody", "--yes", at=own)
    assert ran.code == 1
    assert "there is no call nobody here" in ran.stderr
    assert sorted(path.name for path in (own / "calls").glob("*.db")) == before


def test_without_a_person_it_wants_a_yes(invoke: Invoke, own: Path) -> None:
    for args in (("erase", TABLE), ("prune", "--older-than", "1d")):
        ran = invoke(*args, at=own)
        assert ran.code == 2
        assert "give --yes" in ran.stderr
    assert contains(own, WORDS)


@pytest.mark.parametrize("answer", ["\n", "n\n", "what\n", "\x04"])
def test_a_person_is_told_what_it_means_and_may_say_no(own: Path, answer: str) -> None:
    terminal = Terminal("erase", TABLE, *at(own))
    terminal.until("[y/N]")
    assert "Every word, note and result goes for ever" in terminal.shown
    terminal.type(answer)
    assert terminal.end() == 1
    assert "nothing was erased" in terminal.shown
    assert contains(own, WORDS)


def test_or_yes(own: Path) -> None:
    terminal = Terminal("erase", TABLE, *at(own))
    terminal.until("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert not contains(own, WORDS)


def test_or_ctrl_c(own: Path) -> None:
    terminal = Terminal("erase", TABLE, *at(own))
    terminal.until("[y/N]")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert contains(own, WORDS)


def test_of_a_live_call_it_says_so(own: Path) -> None:
    with Living(own):
        terminal = Terminal("erase", LIVE, *at(own))
        terminal.until("[y/N]")
        assert "It is LIVE" in terminal.shown
        terminal.type("n\n")
        terminal.end()


def test_what_is_not_done_is_not_called_done(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(engine: Engine, call: str) -> None:
        raise StoreUnavailable("the disk does not answer")

    monkeypatch.setattr(Engine, "erase", fails)
    ran = invoke("erase", TABLE, "--yes", at=own)
    assert (ran.code, ran.stderr) == (3, "recall-livekit: the disk does not answer\n")
    ran = invoke("prune", "--older-than", "30d", "--yes", at=own)
    assert ran.code == 1
    assert f"{OLD}: not erased: the disk does not answer" in ran.stderr
    assert "1 could not be erased: run it again" in ran.stderr


# --- prune --------------------------------------------------------------------------------------


def test_only_what_is_old_is_pruned(invoke: Invoke, own: Path) -> None:
    ran = invoke("prune", "--older-than", "30d", "--yes", at=own)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "1 of 1 call erased\n")
    assert state_of(invoke, own, OLD) == "erased"
    assert state_of(invoke, own, TABLE) == "lapsed"
    assert not contains(own, b"in October")
    again = invoke("prune", "--older-than", "30d", "--yes", at=own)
    assert again.code == 0
    assert "no call to erase" in again.stderr


def test_a_dry_run_lists_and_erases_nothing(invoke: Invoke, own: Path) -> None:
    ran = invoke("prune", "--older-than", "30d", "--dry-run", at=own)
    assert ran.code == 0
    assert [line.split()[-1] for line in ran.stdout.splitlines()] == [OLD]
    assert ran.stderr == "1 call would be erased\n"
    assert state_of(invoke, own, OLD) == "lapsed"


def test_a_live_call_is_never_pruned(invoke: Invoke, own: Path) -> None:
    with Living(own) as living, Living(own, OLD):
        living.say("I am here")
        listed = invoke("prune", "--older-than", "0.001s", "--dry-run", at=own).stdout
        assert LEFT in listed
        assert LIVE not in listed
        ran = invoke("prune", "--older-than", "0.001s", "--yes", at=own)
        assert ran.code == 0
        assert state_of(invoke, own, LIVE) == "live"
        assert state_of(invoke, own, OLD) == "live"
    assert state_of(invoke, own, LEFT) == "erased"


def test_nor_one_that_somebody_took_after_it_was_listed(own: Path) -> None:
    terminal = Terminal("prune", "--older-than", "30d", *at(own))
    terminal.until("Erase 1 call not heard of for 30 d?")
    with Living(own, OLD):
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "0 of 1 call erased, 1 kept: they go on after all" in terminal.shown
    assert contains(own, b"in October")


def test_nor_one_of_which_no_time_is_known(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = Recall.summaries

    async def timeless(recall: Recall) -> object:
        async for call in summaries(recall):
            yield call.model_copy(update={"seen_at": 0.0})

    monkeypatch.setattr(Recall, "summaries", timeless)
    assert "no call to erase" in invoke("prune", "--older-than", "1s", "--yes", at=own).stderr


@pytest.mark.parametrize("text", ["30", "soon", "-1d"])
def test_what_is_no_duration_is_refused(own: Path, text: str) -> None:
    ran = piped("prune", "--older-than", text, "--yes", *at(own))
    assert ran.code == 2
    assert "write 90s, 15m, 12h, 30d or 2w" in " ".join(ran.stderr.split())


def test_a_damaged_file_stops_no_pruning_and_is_told(invoke: Invoke, own: Path) -> None:
    (own / "calls" / f"{'0' * 40}.db").write_bytes(b"no database" * 1000)
    ran = invoke("prune", "--older-than", "30d", "--yes", at=own)
    assert ran.code == 1
    assert "is damaged" in ran.stderr
    assert state_of(invoke, own, OLD) == "erased"
