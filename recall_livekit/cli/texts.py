"""Texts as people and terminals can take them: what others wrote is shown, never obeyed."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

__all__ = ["json_safe", "public_url", "safe", "shortened", "shown_id"]

_JOINERS = "\u200c\u200d"
"""Zero width, but part of words and emoji."""
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SUSPECT = re.compile(r"[^\x20-\x7e]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def safe(text: str) -> str:
    """Return the text with everything escaped that a terminal would act on or hide: control and
    format characters, directions of writing, halves of characters."""
    return _SUSPECT.sub(lambda match: _escaped(match[0], joiners=True), text)


def shown_id(call_id: str) -> str:
    """Return a call id for a person: itself, or, if something in it cannot be seen, as bash and
    zsh read it. Two different ids never look the same by what is invisible in them.
    """
    escaped = _SUSPECT.sub(lambda match: _escaped(match[0], joiners=False), call_id)
    if escaped == call_id == call_id.strip() and not call_id.startswith(("$'", "-")):
        return call_id
    quoted = call_id.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_SUSPECT.sub(lambda match: _escaped(match[0], joiners=False), quoted)}'"


def json_safe(line: str) -> str:
    """Return JSON that reads the same and that a terminal does not act on."""
    return _SUSPECT.sub(lambda match: _json_escaped(match[0]), line)


def shortened(text: str, most: int) -> str:
    """Return the text in one line of at most `most` characters, and say so where it was cut."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def public_url(url: str) -> str:
    """Return the address without a user or password in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if not (parts.username or parts.password):
        return url
    return parts._replace(netloc=f"***@{parts.netloc.rpartition('@')[2]}").geturl()


def _escaped(char: str, *, joiners: bool) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if unicodedata.category(char) not in _UNSAFE or (joiners and char in _JOINERS):
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escaped(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE or char == "\n":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
