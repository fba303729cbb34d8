"""The words of a text without LiveKit's expressive markup, and how much of it was said."""

from __future__ import annotations

import re

from livekit.agents import llm

__all__ = ["bare", "letters", "said_part", "visible"]

_OPEN_TAG = re.compile(r"<(/|[A-Za-z][^<>]*)?$")
"""A tag that is not complete yet: words come one by one, and a tag may have spaces in it."""


def visible(text: str) -> str:
    """Return the text as a recorded turn has it: without tags, nor the beginning of one."""
    if "<" not in text:
        return text
    whole = llm.ChatMessage(role="assistant", content=[text]).text_content or ""
    return _OPEN_TAG.sub("", whole)


def bare(text: str) -> str:
    """Return its letters and digits alone, in one case: what two forms of it have in common."""
    return "".join(filter(str.isalnum, text.casefold()))


def letters(text: str) -> int:
    """Return how many letters and digits there are: what two forms of one text have in common,
    however their spaces, marks and line breaks differ."""
    return sum(map(str.isalnum, text))


def said_part(text: str, count: int) -> str:
    """Return the whole words that so many letters at the beginning of the text make."""
    for place, character in enumerate(text):
        if not character.isalnum():
            continue
        if count == 0:
            return _up_to_a_word(text[:place])
        count -= 1
    return text


def _up_to_a_word(text: str) -> str:
    """Return the text without the marks that the next word begins with, "$" for instance."""
    words, space, marks = text.rpartition(" ")
    return text if letters(marks) else words + space
