"""Cells: changed only from the version that was named."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from ...errors import Conflict
from ...stores.base import Store
from .base import Conformance, at_once

__all__ = ["CellConformance"]


class CellConformance(Conformance):
    """What a store promises about cells, with two handles on one event loop."""

    async def test_a_cell_is_created_once(self) -> None:
        async with self.opened() as store, self.opened() as other:
            version = await store.put_cell("call", "output/1", b"kept", None)
            with pytest.raises(Conflict):
                await other.put_cell("call", "output/1", b"late", None)
            cell = await other.get_cell("call", "output/1")
            assert cell is not None
            assert (cell.value, cell.version) == (b"kept", version)

    async def test_a_cell_is_changed_only_from_the_version_that_was_named(self) -> None:
        async with self.opened() as store, self.opened() as other:
            first = await store.put_cell("call", "renewal", b"1", None)
            second = await other.put_cell("call", "renewal", b"2", first)
            for stale in (first, None, "0", "nonsense", ""):
                with pytest.raises(Conflict):
                    await store.put_cell("call", "renewal", b"3", stale)
            with pytest.raises(Conflict):
                await store.put_cell("call", "missing", b"1", second)
            cell = await store.get_cell("call", "renewal")
            assert cell is not None
            assert (cell.value, cell.version) == (b"2", second)

    async def test_of_two_that_change_one_version_one_wins(self) -> None:
        async with self.opened() as store, self.opened() as other:
            won: list[str] = []

            async def change(handle: Store, version: str | None) -> None:
                with suppress(Conflict):
                    won.append(await handle.put_cell("call", "cell", b"same", version))

            version: str | None = None
            for turn in range(20):
                won.clear()
                await at_once(partial(change, store, version), partial(change, other, version))
                assert len(won) == 1, turn
                version = won[0]

    async def test_a_version_never_comes_again_even_if_the_value_does(self) -> None:
        async with self.opened() as store:
            versions = [await store.put_cell("call", "cell", b"a", None)]
            for value in (b"b", b"a", b"a", b"", b"a"):
                versions.append(await store.put_cell("call", "cell", value, versions[-1]))
            assert len(set(versions)) == len(versions)
            with pytest.raises(Conflict):
                await store.put_cell("call", "cell", b"c", versions[0])

    async def test_cells_of_one_call_are_apart(self) -> None:
        names = ["partial", "partial/1", "partial/1/2", "partial/12", "output/1"]
        async with self.opened() as store:
            for name in names:
                await store.put_cell("call", name, name.encode(), None)
            for name in names:
                cell = await store.get_cell("call", name)
                assert cell is not None
                assert cell.value == name.encode()
