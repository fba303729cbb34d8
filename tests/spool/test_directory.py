"""The machine's own disk, as the spool uses it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit.errors import Conflict, OutboxFull, StoreUnusable
from recall_livekit.spool.directory import FileDisk

pytestmark = pytest.mark.anyio
NAME = "a-b-c.spool"


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[FileDisk]:
    disk = FileDisk(tmp_path / "spool", max_bytes=1000)
    yield disk
    await disk.aclose()


async def test_what_is_behind_the_offset_is_cut_off(disk: FileDisk, tmp_path: Path) -> None:
    file = disk.file(NAME)
    await file.create(b"head\n")
    await file.append(5, b"a long line that was never told\n")
    await file.append(5, b"short\n")
    assert (tmp_path / "spool" / NAME).read_bytes() == b"head\nshort\n"


async def test_one_handle_has_it_alone(disk: FileDisk, tmp_path: Path) -> None:
    mine, other = disk.file(NAME), disk.file(NAME)
    elsewhere = FileDisk(tmp_path / "spool", max_bytes=1000)
    await mine.create(b"x")
    for handle in (other, elsewhere.file(NAME)):
        assert await handle.take(bytes) is None
        await handle.remove()
        await handle.set_aside()
        await handle.let_go()
        with pytest.raises(Conflict):
            await handle.append(0, b"y")
    assert (tmp_path / "spool" / NAME).read_bytes() == b"x"
    await mine.let_go()
    assert await other.take(bytes) == b"x"
    await elsewhere.aclose()


async def test_what_its_maker_makes_again_is_replaced_and_still_held(
    disk: FileDisk, tmp_path: Path
) -> None:
    file = disk.file(NAME)
    await file.create(b"one")
    await file.create(b"two")
    await file.append(3, b"!")
    assert (tmp_path / "spool" / NAME).read_bytes() == b"two!"
    assert await disk.file(NAME).take(bytes) is None
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [NAME]


async def test_what_is_not_there_is_not_taken(disk: FileDisk) -> None:
    assert await disk.file(NAME).take(bytes) is None
    assert await disk.listed() == []


async def test_a_file_of_another_user_is_not_read(disk: FileDisk, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    file = disk.file(NAME)
    await file.create(b"x")
    await file.let_go()
    os.chown(tmp_path / "spool" / NAME, 12345, 12345)
    with pytest.raises(StoreUnusable, match="not a file of this user"):
        await disk.file(NAME).take(bytes)


async def test_a_directory_that_is_full_takes_no_more(disk: FileDisk) -> None:
    file = disk.file(NAME)
    await file.create(b"x" * 900)
    with pytest.raises(OutboxFull, match="spool_bytes"):
        await file.append(900, b"y" * 200)
    with pytest.raises(OutboxFull):
        await disk.file("another.spool").create(b"z" * 200)
    await file.remove()
    await disk.file("another.spool").create(b"z" * 200)


async def test_what_died_while_it_was_made_is_swept(disk: FileDisk, tmp_path: Path) -> None:
    file = disk.file(NAME)
    await file.create(b"x")
    left = tmp_path / "spool" / f".{NAME}.4711"
    left.write_bytes(b"half")
    assert [one.name for one in await disk.listed()] == [NAME]
    assert not left.exists()


async def test_the_one_that_waits_longest_is_first(disk: FileDisk, tmp_path: Path) -> None:
    for name, age in (("new.spool", 10), ("old.spool", 1000), ("aside.spool.aside", 100)):
        file = disk.file(name)
        await file.create(b"x")
        await file.let_go()
        os.utime(tmp_path / "spool" / name, (2e9 - age, 2e9 - age))
    (tmp_path / "spool" / "README").write_text("somebody's own")
    names = [one.name for one in await disk.listed()]
    assert names == ["old.spool", "aside.spool.aside", "new.spool"]
