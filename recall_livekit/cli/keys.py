"""``key``: who may ask a server. The secret is alone on stdout, and is shown once."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .codes import Failed
from .opening import directory_of
from .paper import Paper, Span, note, put
from .serving import with_server
from .texts import safe
from .times import moment

if TYPE_CHECKING:
    from ..server.keys import KeyInfo, Keys, Role

__all__ = ["create", "listed", "revoke"]


@asynccontextmanager
async def _keys(store: str) -> AsyncIterator[Keys]:
    with_server()
    from ..server.keys import open_keys

    keys = open_keys(store)
    try:
        yield keys
    finally:
        await keys.aclose()


def _existing(store: str) -> str:
    directory = directory_of(store)
    if directory is not None and not directory.is_dir():
        raise Failed(
            f"there is no directory {directory}, so no key: give --store, or set RECALL_STORE, "
            "to what the server serves"
        )
    return store


async def create(store: str, namespace: str, role: Role, name: str) -> None:
    """Make a key.

    Raises:
        Failed: What a server needs is not installed.
        InvalidSettings, StoreError.
    """
    async with _keys(store) as keys:
        made = await keys.create(namespace, role, name)
    sys.stdout.write(f"{made.key}\n")
    sys.stdout.flush()
    note(
        f"key {made.info.key_id} for the namespace {namespace}, role {role}. It is shown only now: "
        "give it to its workers as RECALL_API_KEY"
    )


async def listed(store: str, as_json: bool) -> None:
    """List every key that was ever made.

    Raises:
        Failed: Nothing is there.
        InvalidSettings, StoreError.
    """
    async with _keys(_existing(store)) as keys:
        found = await keys.listed()
    paper = Paper()
    for key in found:
        if as_json:
            put(key.model_dump_json())
        else:
            _line(paper, key)
    if not found:
        note("no key was made yet: `recall-livekit key create --name WHOSE` makes one")


def _line(paper: Paper, key: KeyInfo) -> None:
    now = time.time()
    if key.revoked_at is None:
        state = Span("valid", "green")
    else:
        state = Span(f"revoked {moment(key.revoked_at, now)}", "red")
    paper.line(
        f"{key.key_id}  {key.namespace:<16}  {key.role:<5}  {moment(key.created_at, now):<19}  ",
        state,
        f"  {safe(key.name)}",
    )


async def revoke(store: str, key_id: str) -> None:
    """Revoke a key: servers refuse it within some 2 s.

    Raises:
        Failed: Nothing is there.
        InvalidSettings: There is no such key.
        StoreError.
    """
    async with _keys(_existing(store)) as keys:
        if key_id not in {key.key_id for key in await keys.listed()}:
            raise Failed(f"there is no key {key_id}: `recall-livekit key list` lists them")
        await keys.revoke(key_id)
    note(f"key {key_id} is revoked: every server on this store refuses it within 2 s")
