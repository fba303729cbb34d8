"""Call ids: any room name, and the form of it that every URL, proxy and object store keeps."""

from __future__ import annotations

import base64
import hashlib
import re

from .errors import InvalidCallId

__all__ = [
    "CALL_ID_BYTES",
    "RESERVED",
    "WATCHER_CALL_ID",
    "check_call_id",
    "decode_call_id",
    "encode_call_id",
    "is_reserved",
    "standby_call_id",
]

CALL_ID_BYTES = 256
RESERVED = "\x1erecall/"
"""How the ids of chains begin that are no call, but a lease of Recall's own: nobody lists them."""
WATCHER_CALL_ID = f"{RESERVED}watcher"
"""Whoever holds its lease is the watcher that acts."""
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def check_call_id(call_id: str) -> str:
    """Return `call_id` if it is a string of 1 to 256 bytes in UTF-8.

    Raises:
        InvalidCallId: It is empty, longer, or cannot be encoded.
    """
    if not isinstance(call_id, str):
        raise InvalidCallId(f"a call id is a str, the room's name; this is {type(call_id)}")
    try:
        size = len(call_id.encode())
    except UnicodeEncodeError as error:
        raise InvalidCallId("a call id must be valid Unicode: this one has a surrogate") from error
    if not 1 <= size <= CALL_ID_BYTES:
        raise InvalidCallId(
            f"a call id has 1 to {CALL_ID_BYTES} bytes in UTF-8, this one has {size}: "
            "pass the room name"
        )
    return call_id


def is_reserved(call_id: str) -> bool:
    """Whether a chain is Recall's own, and no call of an application's."""
    return call_id.startswith(RESERVED)


def standby_call_id(call_id: str) -> str:
    """Return the id of the chain whose lease the call's standby holds. It is erased with the call,
    whose name is not in it.

    Raises:
        InvalidCallId: Not 1 to 256 bytes.
    """
    digest = hashlib.sha256(check_call_id(call_id).encode()).hexdigest()
    return f"{RESERVED}standby/{digest}"


def encode_call_id(call_id: str) -> str:
    """Return the form of a call id that every URL, proxy and object store keeps as it is."""
    check_call_id(call_id)
    if _PLAIN.fullmatch(call_id):
        return call_id
    return "~" + base64.urlsafe_b64encode(call_id.encode()).decode().rstrip("=")


def decode_call_id(encoded: str) -> str:
    """Return the call id of its encoded form.

    Raises:
        InvalidCallId: It is not something that `encode_call_id` returns.
    """
    try:
        call_id = encoded
        if encoded.startswith("~"):
            padded = encoded[1:] + "=" * (-len(encoded[1:]) % 4)
            call_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        if encode_call_id(call_id) == encoded:
            return call_id
    except ValueError as error:
        raise InvalidCallId(f"not an encoded call id: {encoded!r}") from error
    raise InvalidCallId(f"not an encoded call id: {encoded!r}")
