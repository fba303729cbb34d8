"""`show`: what a person sees of a call, and what a program reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recall_livekit.cli.show import Shown
from recall_livekit.stores.keys import call_key

from .conftest import Invoke
from .filled import FORGOTTEN, LIVE, ODD, SECRET, TABLE, Living
from .terminal import COMMAND, Terminal, at, interrupted, shown_at_a_terminal

PAGE = """\
table-for-two  lapsed  position 12, epoch 4

Runs
  run 1   DAY TIME, room RM_1, caller anna, 2 turns, ended TIME
  run 2   DAY TIME, room RM_2, caller bob, 5 turns, goes on

Said in run 2
  TIME  -- epoch 2: support, writer WRITER
  TIME  caller      A table for two, tomorrow at half past seven.
                        Under Bob.
  TIME  booking     For two, at half past se [interrupted]
  TIME  -- epoch 3: backup, writer WRITER
  TIME  booking     Yes, sorry: the line dropped.
  TIME  caller      Hello? Can you hear me? [late]
  TIME  -- epoch 4: support, writer WRITER
  TIME  caller      Is there a window seat?
  TIME  agent       There is, just beside the — [cut off here]

Working state, version 2
  goal            Book a table
  plan            ask for the time; book
  progress        time is known
  step            1

Its updates
  TIME  v1          goal: Book a table, plan: ask for the time; book
  TIME  v2          progress: time is known, step: 1

Userdata, version 2
  guests=2, at=19:30

Actions
  TIME  done        find_table({"guests": 2}) pure in LONG → table 7 is free
  TIME  unknown     charge_deposit({"amount": 10}) external

Leases
  epoch 1   DAY TIME   night (writer WRITER), LONG, released: the call ended
  epoch 2   DAY TIME   support (writer WRITER), LONG, taken over by writer WRITER
  epoch 3   DAY TIME   backup (writer WRITER), LONG, handed over
  epoch 4   DAY TIME   support (writer WRITER), not released, and its holder is gone
"""


def without_times(shown: str) -> str:
    """The page, with what is another at every run named by its kind."""
    for pattern, kind in (
        (r"\b[0-9a-f]{16}\b", "WRITER"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"\b\d+(\.\d+)? (ms|s)\b", "LONG"),
        (r"\b(today|yesterday|\d\d-\d\d) TIME( {2,})?", r"DAY TIME\2"),
    ):
        shown = re.sub(pattern, kind, shown)
    return re.sub(r"(DAY TIME) {2,}", r"\1   ", shown)


def test_a_person_sees_what_was_said_by_whom_and_how_it_counts(
    invoke: Invoke, filled: Path
) -> None:
    ran = invoke("show", TABLE, at=filled)
    assert (ran.code, ran.stderr) == (0, "")
    assert without_times(ran.stdout) == PAGE


def test_at_a_terminal_it_is_the_same_with_colours(filled: Path) -> None:
    terminal = Terminal("show", TABLE, *at(filled))
    assert terminal.end() == 0
    assert "\x1b[1mWorking state, version 2\x1b[0m" in terminal.raw
    narrow = re.sub(r"\n {20,}", " ", without_times(terminal.shown))
    assert re.sub(" +", " ", narrow) == re.sub(" +", " ", re.sub(r"\n {20,}", " ", PAGE))


def test_no_colour_is_shown_to_whom_wants_none(filled: Path) -> None:
    terminal = Terminal("show", TABLE, *at(filled), NO_COLOR="1")
    assert terminal.end() == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", terminal.raw)


def test_long_speech_wraps_below_its_beginning(filled: Path) -> None:
    shown, _ = shown_at_a_terminal(["show", TABLE, *at(filled)])
    assert max(map(len, shown.splitlines())) <= 100


# --- another run, another time ------------------------------------------------------------------


def test_an_earlier_run_can_be_shown(invoke: Invoke, filled: Path) -> None:
    shown = invoke("show", TABLE, "--run", "1", at=filled).stdout
    assert "anna        Are you open on Sunday?" in shown
    assert "window seat" not in shown
    assert "cut off" not in shown


def test_it_can_be_shown_as_it_stood(invoke: Invoke, filled: Path) -> None:
    shown = invoke("show", TABLE, "--at", "6", at=filled).stdout
    assert shown.startswith("table-for-two  as it stood at position 6  position 6, epoch 2\n")
    assert "For two, at half past se" in shown
    assert "the line dropped" not in shown
    assert "started     charge_deposit" in shown
    assert "in force for" in shown


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("show", "nobody"), "there is no call nobody here"),
        (("show", TABLE, "--run", "9"), "has no run 9: it has 1, 2"),
        (("show", TABLE, "--at", "99"), "has positions 0 to 12, not 99"),
    ],
)
def test_what_is_not_there_is_said(
    invoke: Invoke, filled: Path, args: tuple[str, ...], says: str
) -> None:
    ran = invoke(*args, at=filled)
    assert (ran.code, ran.stdout) == (1, "")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("show", ""),
        ("show", "x" * 257),
        ("show", TABLE, "--follow", "--at", "3"),
        ("show", TABLE, "--at", "-1"),
        ("show",),
    ],
)
def test_what_makes_no_sense_is_refused(
    invoke: Invoke, filled: Path, args: tuple[str, ...]
) -> None:
    ran = invoke(*args, at=filled)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr


# --- odd ids, and what they must not do ---------------------------------------------------------


@pytest.mark.parametrize("odd", ODD)
def test_any_id_is_taken_and_none_drives_the_terminal(
    invoke: Invoke, filled: Path, odd: str
) -> None:
    ran = invoke("show", "--", odd, at=filled)
    assert ran.code == 0
    assert "I am " in ran.stdout
    assert not set(ran.stdout) & set("\x1b\x07\u202e\r")
    assert json.loads(invoke("show", "--json", "--", odd, at=filled).stdout)["call_id"] == odd


def test_nor_at_a_terminal(filled: Path) -> None:
    terminal = Terminal("show", *at(filled), "--", ODD[0])
    assert terminal.end() == 0
    assert "I am red\\e[31m\\x07 alert" in terminal.shown
    assert not re.search(r"\x07|\x1b\]|\x1b\[31m\x07|\x1b\[2J", terminal.raw)


def test_of_an_erased_call_nothing_is_shown_but_who_had_it(invoke: Invoke, filled: Path) -> None:
    ran = invoke("show", FORGOTTEN, at=filled)
    assert "erased" in ran.stdout
    assert "released" in ran.stdout
    assert SECRET not in ran.stdout + invoke("show", FORGOTTEN, "--json", at=filled).stdout


# --- JSON ---------------------------------------------------------------------------------------


def test_json_has_a_stable_form(invoke: Invoke, filled: Path) -> None:
    ran = invoke("show", TABLE, "--json", at=filled)
    told = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    assert list(told) == ["v", "call_id", "at", "state", "history", "partials"]
    assert list(told["history"]) == [
        "v", "position", "epoch", "runs", "leases", "erasures", "unreadable",
    ]  # fmt: skip
    assert list(told["history"]["runs"][1]) == [
        "number", "position", "opened_at", "room_sid", "caller", "said_at", "outcome",
        "outcome_at", "turns", "states", "userdata", "pointers", "handoffs", "actions",
        "outputs", "dropped",
    ]  # fmt: skip
    assert list(told["history"]["leases"][0]) == [
        "epoch", "writer", "position", "taken_at", "run", "agent_name", "ttl", "sign", "end",
        "ended_at", "ended_by",
    ]  # fmt: skip
    assert [turn["standing"] for turn in told["history"]["runs"][1]["turns"]] == [
        "held", "held", "held", "late", "held",
    ]  # fmt: skip
    assert told["partials"][0]["text"] == "There is, just beside the"
    shown = Shown.model_validate_json(ran.stdout)
    assert (shown.state, shown.history.run(1)) == ("lapsed", shown.history.runs[0])


def test_json_of_an_earlier_position_tells_nothing_of_now(invoke: Invoke, filled: Path) -> None:
    told = json.loads(invoke("show", TABLE, "--json", "--at", "4", at=filled).stdout)
    assert (told["at"], told["state"], told["partials"]) == (4, None, [])
    assert told["history"]["position"] == 5


# --- following ----------------------------------------------------------------------------------


def test_following_shows_what_comes_until_it_is_interrupted(own: Path) -> None:
    with Living(own) as living:
        living.say("before")
        terminal = Terminal("show", LIVE, "--follow", *at(own))
        terminal.until("Ctrl-C ends it")
        assert "on the phone  live" in terminal.shown
        living.say("after")
        terminal.until("caller      after")
        living.say("much later")
        terminal.until("caller      much later")
        terminal.interrupt()
        assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    for said in ("before", "after", "much later"):
        assert terminal.shown.count(said) == 1


def test_following_tells_of_leases_and_the_end(own: Path) -> None:
    terminal = Terminal("show", TABLE, "--follow", *at(own))
    terminal.until("Ctrl-C ends it")
    with Living(own, TABLE) as living:
        living.say("here again")
        terminal.until("epoch 5: support, writer ")
        terminal.until("caller      here again")
    terminal.until("epoch 5: handed over")
    terminal.interrupt()
    assert terminal.end() == 130


def test_following_as_json_begins_with_the_first_entry(own: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "show", TABLE, "--follow", "--json", *at(own)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(13)]
    assert [line["position"] for line in lines] == list(range(13))
    assert [lines[0]["entry"]["kind"], lines[1]["entry"]["kind"]] == ["run", "lease"]
    with Living(own, TABLE):
        assert json.loads(process.stdout.readline())["entry"]["epoch"] == 5
    ran = interrupted(process)
    assert (ran.code, ran.stderr) == (130, "")


def test_following_a_call_that_is_not_there_ends_at_once(invoke: Invoke, filled: Path) -> None:
    assert invoke("show", "nobody", "--follow", at=filled).code == 1
    assert invoke("show", "nobody", "--follow", "--json", at=filled).code == 1


# --- damage -------------------------------------------------------------------------------------

DAMAGE = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
db.execute("UPDATE entries SET entry = ? WHERE position = 6", (b"{no entry}",)).fetchall()
db.close()
"""


def test_one_damaged_entry_hides_none_of_the_others(invoke: Invoke, own: Path) -> None:
    file = own / "calls" / f"{call_key(TABLE)}.db"
    subprocess.run([sys.executable, "-c", DAMAGE, str(file)], check=True, timeout=20)
    ran = invoke("show", TABLE, at=own)
    assert ran.code == 0
    assert "1 newer than this version, or damaged" in ran.stdout
    assert "the line dropped" in ran.stdout
