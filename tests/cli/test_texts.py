"""What is shown of what others wrote, and of times."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_livekit.cli.texts import json_safe, public_url, safe, shortened, shown_id
from recall_livekit.cli.times import ago, clock, iso, lasting, moment, seconds_of
from recall_livekit.cli.versions import allows

NOON = 1_700_000_000.0 + 5600  # 2023-11-14 23:46:40 UTC
ANY = st.text(st.characters(), max_size=30)


@given(ANY)
def test_nothing_that_is_shown_drives_a_terminal(text: str) -> None:
    for shown in (safe(text), shown_id(text), json_safe(json.dumps(text, ensure_ascii=False))):
        assert not set(shown) & set("\x1b\x07\x9b\r\n\u202e\u2028\x85\ud800")
        kinds = {unicodedata.category(char) for char in set(shown) - set("\u200c\u200d")}
        assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY, ANY)
def test_two_ids_never_look_the_same(one: str, other: str) -> None:
    assert (shown_id(one) == shown_id(other)) == (one == other)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("my-room", "my-room"),
        ("my room", "my room"),
        ("日本語", "日本語"),
        ("a\\b", "a\\b"),
        (" a ", "$' a '"),
        ("-a", "$'-a'"),
        ("a\x1b\\'", r"$'a\e\\\''"),
        ("$'a'", r"$'$\'a\''"),
        ("a\u202eb", r"$'a\u202eb'"),
        ("a\u200db", r"$'a\u200db'"),
    ],
)
def test_an_id_is_shown_as_it_is_or_in_quotes(call: str, shown: str) -> None:
    assert shown_id(call) == shown


def test_words_and_emoji_stay_whole() -> None:
    assert safe("👩\u200d🚒 می\u200cخواهم") == "👩\u200d🚒 می\u200cخواهم"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_safe_json_reads_the_same(text: str) -> None:
    assert json.loads(json_safe(json.dumps(text, ensure_ascii=False))) == text


def test_a_long_text_is_cut_and_says_so() -> None:
    assert shortened("one  two\nthree", 100) == "one two three"
    assert shortened("one two three", 8) == "one two…"


def test_no_password_is_shown() -> None:
    assert public_url("https://me:secret@host:1/x") == "https://***@host:1/x"
    assert public_url("sqlite:///./recall-data") == "sqlite:///./recall-data"


# --- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("30D", 30 * 86400), (" 2w ", 14 * 86400)]
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "0d", "1y", "1d2h", "nan", "9999999999w"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s"):
        seconds_of(text)


def test_times_are_told_as_far_as_they_do_not_go_without_saying() -> None:
    def told(seconds_ago: float) -> str:
        return moment(NOON - seconds_ago, NOON).split()[0]

    assert [told(60), told(86400), told(3 * 86400)] == ["today", "yesterday", "11-11"]
    assert moment(NOON - 400 * 86400, NOON).startswith("2022-10-")


def test_ago() -> None:
    assert [ago(NOON - past, NOON) for past in (0.2, 42, 200, 7200, 200_000)] == [
        "just now",
        "42 s ago",
        "3 min ago",
        "2 h ago",
        "2 d ago",
    ]
    assert ago(NOON + 3600, NOON).startswith("at ")


def test_lasting() -> None:
    seconds = (0.0421, 12.34, 60, 125, 3600, 3720, 90_000)
    told = ["42 ms", "12.3 s", "1 min", "2 min 5 s", "1 h", "1 h 2 min", "1 d 1 h"]
    assert [lasting(one) for one in seconds] == told


@given(st.floats())
def test_no_writer_s_clock_is_too_wrong_to_be_shown(at: float) -> None:
    for told in (clock(at), iso(at), moment(at, NOON), ago(at, NOON), lasting(at)):
        assert told


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "version", "allowed"),
    [
        (">=1.8.9,<1.9", "1.8.9", True),
        (">=1.8.9,<1.9", "1.8.10", True),
        (">=1.8.9,<1.9", "1.9", False),
        (">=1.8.9,<1.9", "1.8.8", False),
        (">=3.11,<3.14", "3.13.2", True),
        (">=3.11,<3.14", "3.14.0rc1", False),
        ("!=2.0", "2", False),
        ("", "1", True),
    ],
)
def test_a_version_is_in_its_range_or_not(wanted: str, version: str, allowed: bool) -> None:
    assert allows(wanted, version) is allowed
