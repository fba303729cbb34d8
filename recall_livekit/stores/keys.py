"""Names for calls in file systems and buckets: none contains the call id, which may be personal."""

from __future__ import annotations

import hashlib

from ..call_ids import check_call_id

__all__ = ["call_key"]


def call_key(call: str) -> str:
    """Return 40 hex digits that no other call id has, whatever a file system folds.

    Raises:
        InvalidCallId: `call` is not a string of 1 to 256 bytes in UTF-8.
    """
    return hashlib.sha256(check_call_id(call).encode()).hexdigest()[:40]
