"""A job process dies by SIGKILL on a real livekit-server; a real caller listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from .caller import Caller
from .crash import NUMBER, Crash, crash
from .records import RecordsServer
from .server import find_server
from .stage import Mode, Stage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.livekit,
    pytest.mark.skipif(find_server() is None, reason="no livekit-server binary"),
]

ROOM = "billing"
PATIENCE_S = 60
SANE_GAP_S = 5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_new_agent_knows_what_was_said(tmp_path: Path) -> None:
    async with on_stage(tmp_path, "recall") as (stage, caller):
        crashed = await crash(stage, caller, ROOM)
        await assert_resumed(caller, crashed)
        report("dispatched again at once", crashed)


async def test_a_standby_is_silent_and_takes_over(tmp_path: Path) -> None:
    async with on_stage(tmp_path, "recall", idle=3) as (stage, caller):
        crashed = await crash(stage, caller, ROOM, standby=True)
        assert caller.timeline.voices(before=crashed.at) == [crashed.killed.identity]
        await assert_resumed(caller, crashed)
        report("with a standby", crashed)


async def test_over_a_recall_server_a_new_agent_knows_what_was_said(tmp_path: Path) -> None:
    async with (
        RecordsServer(tmp_path) as records,
        on_stage(tmp_path, "recall", records=records.url) as (stage, caller),
    ):
        crashed = await crash(stage, caller, ROOM)
        await assert_resumed(caller, crashed)
        report("over a server, dispatched again at once", crashed)


async def test_over_a_recall_server_a_standby_takes_over(tmp_path: Path) -> None:
    async with (
        RecordsServer(tmp_path) as records,
        on_stage(tmp_path, "recall", idle=3, records=records.url) as (stage, caller),
    ):
        crashed = await crash(stage, caller, ROOM, standby=True)
        assert caller.timeline.voices(before=crashed.at) == [crashed.killed.identity]
        await assert_resumed(caller, crashed)
        report("over a server, with a standby", crashed)


async def test_the_recall_server_is_restarted_while_the_agent_is_dead(tmp_path: Path) -> None:
    async with (
        RecordsServer(tmp_path) as records,
        on_stage(tmp_path, "recall", records=records.url) as (stage, caller),
    ):

        async def restart() -> None:
            await records.killed()
            await records.restarted()

        crashed = await crash(stage, caller, ROOM, meanwhile=restart)
        await assert_resumed(caller, crashed)
        report("the server restarted meanwhile", crashed)


async def test_livekit_alone_has_forgotten_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path, "livekit") as (stage, caller):
        crashed = await crash(stage, caller, ROOM)
        await caller.hears_words("hello number", crashed.successor.identity, within=5)
        assert NUMBER not in caller.read(crashed.successor.identity)
        report("livekit alone", crashed)


@asynccontextmanager
async def on_stage(
    directory: Path, mode: Mode, *, idle: int = 2, records: str | None = None
) -> AsyncIterator[tuple[Stage, Caller]]:
    async with (
        asyncio.timeout(PATIENCE_S),
        Stage(directory, mode, idle=idle, records=records) as stage,
        stage.caller(ROOM) as caller,
    ):
        yield stage, caller


async def assert_resumed(caller: Caller, crashed: Crash) -> None:
    """The successor tells the number back, by voice and in writing, and does not greet again."""
    agent = crashed.successor.identity
    await caller.hears_words(NUMBER, agent, within=5)
    await caller.until(lambda: NUMBER in caller.read(agent), within=5)
    assert "hello" not in caller.read(agent)


def report(what: str, crashed: Crash) -> None:
    print(f"{what}: {1000 * crashed.gap:.0f} ms of silence at the caller's ear")
    assert crashed.gap < SANE_GAP_S
