"""`ObjectStore`: the contract on a bucket that knows nothing but single objects.

A bucket creates an object if it is absent and changes one if it is still the version that was
read; two objects never change together, and nothing here relies on it. The objects::

    ids/<key>                       the call's id, written before its first entry
    calls/<key>/entries/<position>  twelve digits
    calls/<key>/cells/<name>        eight bytes that count the changes, then the value

`<key>` is a hash: object names end up in logs, and a call id may be personal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio

from ..errors import Closed, Conflict, StoreUnavailable
from .base import Cell
from .keys import call_key

__all__ = ["Bucket", "ObjectStore"]

KNOWN_CALLS = 10_000
"""Of how many calls the highest position is remembered."""
REPLACE_ATTEMPTS = 10
COUNTER_BYTES = 8


class Bucket(Protocol):
    """What an object store can do; each of these is atomic, and no two of them are."""

    async def get(self, name: str) -> tuple[bytes, str] | None:
        """Return the object and its etag, or None."""

    async def create(self, name: str, data: bytes) -> str:
        """Create the object if it is absent and return its etag; Conflict if it is not."""

    async def update(self, name: str, data: bytes, etag: str) -> str:
        """Change the object if it has this etag and return the new one; Conflict if it has not."""

    def list(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names that begin with `prefix`, in no particular order."""


class ObjectStore:
    """Keeps the contract of `Store` on `bucket`, whose versioning must be off (erasure).

    Every method answers or raises StoreUnavailable within `timeout` seconds.
    """

    def __init__(self, bucket: Bucket, *, timeout: float = 5.0) -> None:
        self._bucket = bucket
        self._timeout = timeout
        self._closed = False
        self._highest: OrderedDict[str, int] = OrderedDict()

    async def append(self, call: str, position: int, entry: bytes) -> None:
        with self._bounded():
            key = call_key(call)
            if position == 0:
                await self._create_id(key, call)
            elif not await self._has(key, position - 1):
                raise Conflict(f"nothing is at the position before {position}")
            await self._bucket.create(_entry(key, position), entry)
            self._remember(key, position)

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        with self._bounded():
            key = call_key(call)
            found: list[bytes] = []
            while len(found) < limit:
                entry = await self._bucket.get(_entry(key, start + len(found)))
                if entry is None:
                    break
                found.append(entry[0])
            if found:
                self._remember(key, start + len(found) - 1)
            return found

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        with self._bounded():
            key = call_key(call)
            for position in range(start, start + len(entries)):
                if not await self._has(key, position):
                    raise Conflict(f"nothing is at position {position}")
            for position, entry in enumerate(entries, start):
                await self._overwrite(_entry(key, position), entry)

    async def get_cell(self, call: str, name: str) -> Cell | None:
        with self._bounded():
            found = await self._bucket.get(_cell(call_key(call), name))
            if found is None:
                return None
            data, etag = found
            return Cell(data[COUNTER_BYTES:], f"{_counted(data)}:{etag}")

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        """As in the contract.

        Many buckets' etags are a hash of the content, and would come again with the same value;
        the count that is stored with it makes every content, and so every etag, a new one.
        """
        with self._bounded():
            changes, etag = _parsed(version) if version is not None else (0, None)
            data = (changes + 1).to_bytes(COUNTER_BYTES, "big") + value
            path = _cell(call_key(call), name)
            if etag is None:
                return f"1:{await self._bucket.create(path, data)}"
            return f"{changes + 1}:{await self._bucket.update(path, data, etag)}"

    async def scrub(self, call: str) -> None:
        """Nothing is left to do: an object that was changed is gone from the bucket."""
        with self._bounded():
            call_key(call)

    async def calls(self) -> AsyncIterator[str]:
        with self._bounded():
            names = [name async for name in self._bucket.list("ids/")]
        for name in names:
            with self._bounded():
                call = await self._call_of(name)
            if call is not None:
                yield call

    async def aclose(self) -> None:
        self._closed = True

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        if self._closed:
            raise Closed("the store was closed")
        try:
            with anyio.fail_after(self._timeout):
                yield
        except TimeoutError as error:
            raise StoreUnavailable(
                f"no answer within {self._timeout:g} s; outcome unknown"
            ) from error

    async def _create_id(self, key: str, call: str) -> None:
        """Before entry 0, so that no call that has one is missing from the list."""
        if key not in self._highest:
            try:
                await self._bucket.create(f"ids/{key}", call.encode())
            except Conflict:
                return  # Whoever wrote it wrote the same.

    async def _call_of(self, name: str) -> str | None:
        found = await self._bucket.get(name)
        if found is None or not await self._has(name.removeprefix("ids/"), 0):
            return None
        return found[0].decode()

    async def _has(self, key: str, position: int) -> bool:
        """Entries never go away, so one that was seen need not be looked for again."""
        if self._highest.get(key, -1) >= position:
            return True
        return await self._bucket.get(_entry(key, position)) is not None

    def _remember(self, key: str, position: int) -> None:
        self._highest[key] = max(position, self._highest.get(key, -1))
        self._highest.move_to_end(key)
        if len(self._highest) > KNOWN_CALLS:
            self._highest.popitem(last=False)

    async def _overwrite(self, name: str, data: bytes) -> None:
        for _ in range(REPLACE_ATTEMPTS):
            found = await self._bucket.get(name)
            if found is None:
                break
            if found[0] == data:
                return
            try:
                await self._bucket.update(name, data, found[1])
            except Conflict:
                continue  # Another eraser was quicker; look again.
            return
        raise StoreUnavailable(f"{name} changes all the time")


def _entry(key: str, position: int) -> str:
    return f"calls/{key}/entries/{position:012d}"


def _cell(key: str, name: str) -> str:
    return f"calls/{key}/cells/{name}"


def _counted(data: bytes) -> int:
    return int.from_bytes(data[:COUNTER_BYTES], "big")


def _parsed(version: str) -> tuple[int, str]:
    changes, _, etag = version.partition(":")
    if not changes.isdecimal() or not etag:
        raise Conflict(f"no cell ever had version {version!r}")
    return int(changes), etag
