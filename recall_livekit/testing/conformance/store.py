"""What every store promises, on one event loop with two handles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from ...errors import Closed, Conflict, InvalidCallId
from ...stores.base import Store
from .base import at_once, calls_of, entries_of
from .cells import CellConformance
from .entries import EntryConformance

__all__ = ["CALL_IDS", "StoreConformance"]

CALL_IDS = (
    "+49 170 1234567",
    "a/b c",
    "a_b_c",
    "a%2Fb%20c",
    "~YS9iIGM",
    ".",
    "..",
    "../..",
    "/",
    "room",
    "Room",
    "room ",
    "room.",
    "room\n",
    "room\0",
    "caf\u00e9",
    "cafe\u0301",
    "\U0001f4de call \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x" * 256,
    "x" * 255,
    "\u00e9" * 128,
    "NUL",
    "*?<>|\"'`$;&",
)
"""Every kind: those that file systems fold, cut or forbid, and those that look encoded."""


class StoreConformance(EntryConformance, CellConformance):
    """Everything that holds for any store. Subclass it; see the package."""

    @pytest.mark.parametrize(
        ("count", "repeat", "stub"),
        # The second is a history after which a rebuilt page keeps a copy of what moved.
        [(300, 1, b"stub"), (40, 30, b"s" * 5000), (3, 3000, b"")],
    )
    async def test_scrub_leaves_no_byte_of_what_was_overwritten(
        self, count: int, repeat: int, stub: bytes
    ) -> None:
        secret = b"secret 1234"
        async with self.opened() as store, self.opened() as other:
            version = await store.put_cell("call", "partial", secret, None)
            for position in range(count):
                await store.append("call", position, secret * repeat)
            await other.read("call", 0, 1000)
            assert self.contains(secret)
            await store.replace("call", 0, [stub] * count)
            await store.put_cell("call", "partial", b"sealed", version)
            await store.scrub("call")
            assert not self.contains(b"secret")
            assert await entries_of(other, "call") == [stub] * count

    async def test_what_was_written_is_there_after_closing_and_opening(self) -> None:
        async with self.opened() as store:
            await store.append("call", 0, b"entry")
            version = await store.put_cell("call", "cell", b"value", None)
        async with self.opened() as store:
            assert await entries_of(store, "call") == [b"entry"]
            await store.append("call", 1, b"next")
            await store.put_cell("call", "cell", b"changed", version)
            assert await calls_of(store) == ["call"]

    async def test_aclose_finishes_what_was_accepted(self) -> None:
        store = self.open_store()
        done: list[str] = []

        async def write(call: str) -> None:
            with suppress(Closed):
                await store.append(call, 0, b"entry")
                done.append(call)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(write, f"call {number}")
            await anyio.lowlevel.checkpoint()
            await store.aclose()
        async with self.opened() as again:
            assert await calls_of(again) == sorted(done)

    async def test_calls_lists_each_call_with_an_entry_once(self) -> None:
        async with self.opened() as store, self.opened() as other:
            await store.put_cell("only a cell", "cell", b"", None)
            with pytest.raises(Conflict):
                await store.append("nothing", 1, b"")
            for number in range(40):
                for position in range(3):
                    await store.append(f"call {number}", position, b"entry")
            assert await calls_of(other) == sorted(f"call {number}" for number in range(40))

    async def test_call_ids_of_every_kind_do_not_share_data(self) -> None:
        async with self.opened() as store, self.opened() as other:
            for call in CALL_IDS:
                await store.append(call, 0, call.encode())
                await store.put_cell(call, "cell", call.encode(), None)
            for call in CALL_IDS:
                assert await entries_of(other, call) == [call.encode()]
                cell = await other.get_cell(call, "cell")
                assert cell is not None
                assert cell.value == call.encode()
            assert await calls_of(other) == sorted(CALL_IDS)

    @pytest.mark.parametrize("call", ["", "x" * 257, "\u00e9" * 129, "\ud800"])
    async def test_what_is_no_call_id_is_refused(self, call: str) -> None:
        async with self.opened() as store:
            for use in _uses(store, call):
                with pytest.raises(InvalidCallId):
                    await use()

    async def test_fifty_calls_at_once(self) -> None:
        async with self.opened() as store:

            async def talk(call: str) -> None:
                for position in range(10):
                    await store.append(call, position, f"{call} {position}".encode())

            await at_once(*(partial(talk, f"call {n}") for n in range(50)))
            for number in range(50):
                expected = [f"call {number} {position}".encode() for position in range(10)]
                assert await entries_of(store, f"call {number}") == expected

    async def test_a_closed_store_says_so(self) -> None:
        store = self.open_store()
        await store.append("call", 0, b"entry")
        await store.aclose()
        await store.aclose()
        for use in _uses(store, "call"):
            with pytest.raises(Closed):
                await use()
        with pytest.raises(Closed):
            await calls_of(store)


def _uses(store: Store, call: str) -> Sequence[Callable[[], Awaitable[object]]]:
    return (
        lambda: store.append(call, 1, b""),
        lambda: store.read(call, 0, 1),
        lambda: store.replace(call, 0, []),
        lambda: store.get_cell(call, "cell"),
        lambda: store.put_cell(call, "cell", b"", None),
        lambda: store.scrub(call),
    )
