"""A long text in pages, each no longer than a model can be given at once."""

from __future__ import annotations

import anyio
import anyio.to_thread

from ...engine.tokens import Estimator

__all__ = ["PAGE_CHARS", "PAGE_TOKENS", "page_of", "split"]

PAGE_TOKENS = 800
"""What a page may take, by estimate."""
PAGE_CHARS = 3200
"""The most characters of a page: what 800 tokens hold in most languages."""
AT_ONCE = 32 * 1024
"""Texts up to this many characters are split in passing; it takes some 2 ms."""


async def page_of(text: str, part: int, chars: int = PAGE_CHARS) -> tuple[str, int]:
    """Return page `part`, counted from 1, and how many there are; an empty text if there is none
    of this number. It does not hold up the event loop."""
    if len(text) <= AT_ONCE:
        pages = split(text, chars)
    else:
        pages = await anyio.to_thread.run_sync(split, text, chars)
    return (pages[part - 1] if 1 <= part <= len(pages) else ""), len(pages)


def split(text: str, chars: int = PAGE_CHARS) -> list[str]:
    """Return the text in pages of at most `PAGE_TOKENS` and `chars`, which together are the text.
    They end where a line or a word does, if there is such a place."""
    pages: list[str] = []
    at = 0
    while at < len(text) or not pages:
        end = _end(text, at, chars)
        pages.append(text[at:end])
        at = end
    return pages


def _tokens(page: str) -> int:
    """Estimate them; a table of short cells has a token at the end of each line."""
    return Estimator().count(page) + page.count("\n")


def _end(text: str, at: int, chars: int) -> int:
    end = at + chars
    while end - at > 1 and _tokens(text[at:end]) > PAGE_TOKENS:
        end = at + (end - at) * 3 // 4
    if end >= len(text):
        return len(text)
    for between in ("\n", " "):
        found = text.rfind(between, at + (end - at) // 2, end)
        if found >= 0:
            return found + 1
    return end
