"""The worker to copy, as it is: its calls survive it. Real LiveKit server, OpenAI's plugins."""

import asyncio
import sys
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from livekit_demo import script
from livekit_demo.caller import Caller, caller
from recovery.process import python

from recall_livekit.testing.leash import kill, leashed, started
from recall_livekit.testing.livekit_server import LiveKitServer

from .fake_openai import FakeOpenAI, fake_openai, text_of

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).with_name("loopback_worker.py")
ROOM = "table"
AGENT = ""
"""An agent that gives no name is known by none."""
START_S = 40.0
STEP_S = 15.0


def worker(
    directory: Path, name: str, livekit: LiveKitServer, openai: FakeOpenAI
) -> AbstractAsyncContextManager[Process]:
    environment = {
        key: value
        for key, value in python(
            **livekit.environment,
            OPENAI_BASE_URL=openai.url,
            OPENAI_API_KEY="nobody's",
            RECALL_URL=f"sqlite:///{directory / 'records'}",
        ).items()
        if "proxy" not in key.lower()
    }
    command = (sys.executable, str(WORKER), "start")
    return leashed(*command, log=directory / f"{name}.log", env=environment, cwd=directory)


async def registered(process: Process, log: Path) -> None:
    async def told() -> bool:
        return "registered worker" in log.read_text()  # noqa: ASYNC240

    await started(process, told, log, within=START_S)


@pytest.mark.livekit
async def test_its_calls_survive_it(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(100),
        LiveKitServer(tmp_path) as livekit,
        fake_openai() as openai,
        worker(tmp_path, "first", livekit, openai) as first,
    ):
        await registered(first, tmp_path / "first.log")
        token = livekit.token(ROOM, "ada", "bistro")
        async with caller(livekit.url, token, script.CALLER_VOICE) as ada:
            await says(ada, script.GREETING)
            async with worker(tmp_path, "second", livekit, openai) as second:
                await registered(second, tmp_path / "second.log")
                await ada.say(script.ORDER)
                await says(ada, "table for four")
                kill(first)
                await says(ada, script.RESUMED)
                await ada.say(script.YES)
                await says(ada, "Booked: Order(people='four'")
        assert ada.said_by(AGENT).count(script.GREETING) == 1
    resumed = next(one for one in openai.prompts if "dropped" in text_of(one[-1]))
    assert script.ORDER in [text_of(message) for message in resumed]
    assert any("cut off after saying" in text_of(message) for message in resumed)


async def says(ada: Caller, words: str) -> None:
    """Returns when an agent was heard, or read, to say this, and is done with it."""
    heard = await ada.until(lambda: words in ada.said_by(AGENT), within=STEP_S)
    assert heard, f"never said {words!r}: {ada.said_by(AGENT)!r}"
