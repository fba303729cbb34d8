"""Every call id: any room name goes through a URL and comes back; all else is refused."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recall_livekit import InvalidCallId
from recall_livekit.call_ids import CALL_ID_BYTES, check_call_id, decode_call_id, encode_call_id

from .strategies import proving

URL_SAFE = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._-]*")
LONGEST_ENCODED = 1 + (CALL_ID_BYTES * 4 + 2) // 3


def shortened(text: str) -> str:
    return text.encode()[:CALL_ID_BYTES].decode(errors="ignore")


PLAIN = st.from_regex(r"[A-Za-z0-9._~-]{1,140}", fullmatch=True)
LONG = st.builds(lambda text, times: shortened(text * times), st.text(min_size=1), st.just(256))
IDS = st.one_of(st.text(min_size=1, max_size=64), PLAIN, LONG)
SURROGATE = st.characters(categories=["Cs"])
NO_IDS = st.one_of(
    st.just(""),
    st.text(min_size=CALL_ID_BYTES + 1, max_size=CALL_ID_BYTES + 9),
    st.builds(lambda text, bad: text + bad + text, st.text(max_size=9), SURROGATE),
    st.binary(),
    st.none() | st.integers() | st.lists(st.text()),
)


@proving(200)
@given(IDS)
@example("room\n")
def test_it_comes_back_from_a_form_that_is_safe_in_urls(call_id: str) -> None:
    encoded = encode_call_id(call_id)
    assert URL_SAFE.fullmatch(encoded)
    assert len(encoded) <= LONGEST_ENCODED
    assert decode_call_id(encoded) == call_id


@proving(100)
@given(st.sets(IDS, min_size=2, max_size=8))
def test_no_two_share_a_form(call_ids: set[str]) -> None:
    encoded = {encode_call_id(one) for one in call_ids}
    forms_as_ids = call_ids | {one for one in encoded if len(one) <= CALL_ID_BYTES}
    assert len({encode_call_id(one) for one in forms_as_ids}) == len(forms_as_ids)


@proving(200)
@given(NO_IDS)
@example("é" * 128 + "x")
def test_whatever_is_none_is_refused(what: Any) -> None:
    for refused in (check_call_id, encode_call_id):
        with pytest.raises(InvalidCallId):
            refused(what)


# --- what comes in from a URL -------------------------------------------------------------------


def as_base64(data: bytes, padded: bool, alphabet: bytes) -> str:
    encoded = base64.b64encode(data, alphabet).decode()
    return "~" + (encoded if padded else encoded.rstrip("="))


def one_changed(call_id: str, at: int, by: str) -> str:
    encoded = encode_call_id(call_id)
    at %= len(encoded)
    return encoded[:at] + by + encoded[at + 1 :]


JUNK = st.one_of(
    st.text(max_size=400),
    st.text(st.characters(), max_size=20).map(lambda text: "~" + text),
    st.builds(as_base64, st.binary(max_size=300), st.booleans(), st.sampled_from((b"-_", b"+/"))),
    st.builds(one_changed, IDS, st.integers(0), st.characters() | st.just("")),
    st.builds(lambda text, bad: text + bad, st.text(max_size=9), SURROGATE),
)


@proving(400)
@given(JUNK)
@example("~YWEb")
@example("~YR")
def test_junk_is_refused_unless_it_is_the_very_form_of_an_id(junk: str) -> None:
    try:
        call_id = decode_call_id(junk)
    except InvalidCallId:
        return
    assert encode_call_id(call_id) == junk
