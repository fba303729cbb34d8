"""Where a sentence begins, in any script: for what is quoted of somebody who was cut off."""

from __future__ import annotations

import re

__all__ = ["last_sentence"]

_END = re.compile(
    r"""[.!?\u2026\u061f\u06d4\u0964]["'\u201d\u2019\u00bb)\]]*\s+"""
    r"""|[\u3002\uff01\uff1f][\u300d\u300f]*\s*"""
)


def last_sentence(text: str) -> str:
    """Return the last sentence of a text, be it complete or cut off; a comma ends none."""
    text = text.strip()
    begins = [found.end() for found in _END.finditer(text) if found.end() < len(text)]
    return text[begins[-1] :] if begins else text
