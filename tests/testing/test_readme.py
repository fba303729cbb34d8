"""The README's very lines on testing: they run, and they catch an agent that charges twice."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from livekit.agents import llm
from livekit.plugins import openai

from recall_livekit.testing.voices import Reply, ScriptedLLM, said, tool_call

from .calls import Support, careful, exported

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


def lines() -> str:
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    [found] = [block for block in blocks if "resumed(" in block]
    return str(found)


def written(
    monkeypatch: pytest.MonkeyPatch, reply: Callable[[llm.ChatContext], Reply]
) -> Callable[[], Awaitable[None]]:
    """The README's test, with an application and a model in place of the reader's."""
    application = ModuleType("my_agent")
    application.Support = Support  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_agent", application)
    monkeypatch.setattr(openai, "LLM", lambda: ScriptedLLM(reply))
    names: dict[str, Any] = {}
    exec(compile(lines(), "README.md", "exec"), names)
    test: Callable[[], Awaitable[None]] = names["test_it_does_not_charge_twice"]
    return test


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the call of which the README speaks."""
    await exported(tmp_path)
    monkeypatch.chdir(tmp_path)


def pays_again_when_asked(chat_ctx: llm.ChatContext) -> Reply:
    """A model that looks like it works, until the caller asks."""
    if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
        return "It did."
    if said(chat_ctx, "user")[-1:] == ["Did my payment go through?"]:
        return [tool_call("charge", '{"amount": 10}')]
    return "Sorry, the line dropped."


async def test_they_pass_with_an_agent_that_looks_first(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(monkeypatch, careful)()


async def test_they_fail_with_an_agent_that_charges_twice(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError) as raised:
        await written(monkeypatch, pays_again_when_asked)()
    *_, (frame, _) = traceback.walk_tb(raised.tb)
    assert frame.f_locals["call"].called == ("charge",), "and they fail for that"


def test_they_are_about_ten() -> None:
    body = lines().partition("async def ")[2]
    assert len(body.rstrip().splitlines()) <= 11
