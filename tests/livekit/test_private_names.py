"""Names that are private to LiveKit are looked for: without any of them a call goes on, and is
recorded from LiveKit's events."""

from __future__ import annotations

import ast
import builtins
import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from livekit.agents import Agent, function_tool, llm

import recall_livekit
from recall_livekit import CallState, Recall, RecallAgent, attach
from recall_livekit.livekit import bring_back, caller_link
from recall_livekit.livekit.seeds import notes, realtime
from recall_livekit.livekit.sound import echo
from recall_livekit.livekit.tools import executors
from recall_livekit.testing.voices import said, tool_call

from ..conftest import OpenRecall
from .line import Line, until
from .test_agent import ROOM, talk, turns

pytestmark = pytest.mark.anyio
T = TypeVar("T", bound=ast.AST)
SOURCE = Path(recall_livekit.__file__).parent

NO_EXECUTOR = "no tool executor that we know"
NO_WARM_UP = "does not show its AEC warm-up"
NO_START = "does not tell when an agent starts"

LOOKED_FOR: dict[tuple[ModuleType, str], str | None] = {
    (executors, "_activity"): NO_EXECUTOR,
    (executors, "_tool_executor"): NO_EXECUTOR,
    (executors, "_executor"): None,  # of async toolsets alone
    (bring_back, "_started"): None,  # the session's state says nearly the same
    (caller_link, "_options"): None,
    (echo, "_aec_warmup_duration_explicit"): NO_WARM_UP,
    (echo, "_aec_warmup_remaining"): NO_WARM_UP,
    (echo, "_on_aec_warmup_expired"): NO_WARM_UP,
    (notes, "_instructions"): None,
    (realtime, "_activity"): None,
    (realtime, "_started"): None,
}
"""Each private name that is looked for in an object of LiveKit's, where; and what is warned of."""

SET = {("echo", "_aec_warmup_duration_explicit"), ("notes", "_instructions")}
"""Those that are set, after they were looked for."""


class Teller(RecallAgent):
    def __init__(self, recall: Recall, **options: Any) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall, **options)

    async def on_fresh(self) -> None:
        self.session.say("hello there")

    @function_tool
    async def charge(self) -> str:
        """Charge the card."""
        return "card charged"


def reply(chat_ctx: llm.ChatContext) -> Any:
    last = chat_ctx.items[-1]
    if isinstance(last, llm.FunctionCallOutput):
        return f"it says {last.output}"
    users = said(chat_ctx, "user")
    if users and users[-1] == "charge me":
        return [tool_call("charge")]
    return f"you said {users[-1]}" if users else "hello there"


def hide(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Let this module not find the name; LiveKit itself has it all the same."""

    def seen(thing: object, wanted: str, *default: object) -> object:
        if wanted != name:
            return builtins.getattr(thing, wanted, *default)
        if default:
            return default[0]
        raise AttributeError(name)

    monkeypatch.setattr(module, "getattr", seen, raising=False)


async def a_call_that_is_cut_off_and_goes_on(open_recall: OpenRecall) -> None:
    """Greeting, tool, and turns; and again on a second worker, where billing comes back."""
    first = Teller(open_recall())
    async with Line(first, reply).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await until(lambda: first.session.agent_state == "listening")
        line.stt.say("charge me")
        await until(lambda: "it says card charged" in line.subtitles.text)
        await talk(line, "thank you")
        assert await first.call.flush(2)
        assert first.call.state is CallState.HOLDING
        first.call.record_handoff("billing", previous="teller")
    second = Teller(
        open_recall(),
        resume_agents={"billing": lambda: Billing(instructions="You do the bills.")},
    )
    async with Line(second, reply).open() as line:
        await until(lambda: "you said thank you" in line.subtitles.text)
        assert isinstance(line.session.current_agent, Billing)
        await talk(line, "and now")
        assert await second.call.flush(2)
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "charge me"),
        ("assistant", "it says card charged"),
        ("user", "thank you"),
        ("assistant", "you said thank you"),
        ("assistant", "you said thank you"),
        ("user", "and now"),
        ("assistant", "you said and now"),
    ]
    [charged] = (await open_recall().read(ROOM)).finished
    assert (charged.tool, charged.status, charged.result) == ("charge", "done", "card charged")


class Billing(Agent):
    """The agent that was active."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "recall_livekit" and record.levelno >= logging.WARNING
    ]


@pytest.mark.parametrize(
    ("module", "name", "told"),
    [(*where, told) for where, told in LOOKED_FOR.items()],
    ids=[f"{module.__name__.rpartition('.')[2]}{name}" for module, name in LOOKED_FOR],
)
async def test_without_a_private_name_a_call_is_recorded_with_one_warning(
    open_recall: OpenRecall,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    name: str,
    told: str | None,
) -> None:
    echo._warn_once.cache_clear()
    hide(monkeypatch, module, name)
    await a_call_that_is_cut_off_and_goes_on(open_recall)
    expected = {None: 0, NO_EXECUTOR: 2, NO_WARM_UP: 1}[told]  # each worker says it, or the process
    assert [told in warning for warning in warnings(caplog) if told] == [True] * expected
    assert len(warnings(caplog)) == expected


async def test_with_all_names_nothing_is_warned_of(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    await a_call_that_is_cut_off_and_goes_on(open_recall)
    assert warnings(caplog) == []


@pytest.mark.parametrize("overriding", [False, True])
async def test_an_agent_whose_start_is_not_told_is_observed_from_on_enter_on(
    open_recall: OpenRecall,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    overriding: bool,
) -> None:
    """`_activity` of an agent is LiveKit's to set; here it sets another name."""

    class Own(Teller):
        async def on_enter(self) -> None:
            self.session.say("hello there")

    def keep(agent: RecallAgent, activity: Any) -> None:
        agent.__dict__["_live_activity"] = activity

    getter = RecallAgent.__dict__["_activity"].fget
    monkeypatch.setattr(RecallAgent, "_activity", property(getter, keep))
    agent = (Own if overriding else Teller)(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "thank you")
        assert await agent.call.flush(2)
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "thank you"),
        ("assistant", "you said thank you"),
    ]
    assert [NO_START in warning for warning in warnings(caplog)] == [True]


async def test_attach_needs_none_of_them(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All hidden at once: public events tell of the agents and of what is said."""
    echo._warn_once.cache_clear()
    for module in {module for module, _ in LOOKED_FOR}:
        monkeypatch.setattr(module, "getattr", _blind, raising=False)
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "my number is seven")
    agent = Agent(instructions="Be kind.")
    line = Line(agent, reply)
    attached = attach(line.session, resume=ROOM, recall=open_recall())
    async with line.open():
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        await talk(line, "and eight")
        assert await attached.call.flush(2)
    await attached.closed()
    assert ("assistant", "you said and eight") in await turns(open_recall())
    said_of = [NO_EXECUTOR, NO_WARM_UP]
    assert [[told in w for w in warnings(caplog)].count(True) for told in said_of] == [1, 1]


def _blind(thing: object, wanted: str, *default: object) -> object:
    private = wanted.startswith("_") and wanted != "__await__"
    return default[0] if private and default else builtins.getattr(thing, wanted, *default)


# --- the list is whole ------------------------------------------------------------------------


def test_every_private_name_that_is_looked_for_has_a_case() -> None:
    found = {
        (path.stem, str(call.args[1].value))
        for path, call in _calls("getattr", "hasattr")
        if isinstance(call.args[1], ast.Constant) and str(call.args[1].value).startswith("_")
    }
    listed = {(module.__name__.rpartition(".")[2], name) for module, name in LOOKED_FOR}
    assert found - {("actions", "__await__")} == listed


def test_no_private_name_of_livekits_is_used_unlooked() -> None:
    """`a._b` is ours where `a` is `self`, or an object of a class that the package defines."""
    used = set()
    for path, node in _nodes(ast.Attribute):
        base = node.value
        ours = isinstance(base, ast.Name) and base.id in ("self", "cls", "live")
        if node.attr.startswith("_") and not node.attr.startswith("__") and not ours:
            used.add((path.stem, node.attr))
    assert {name for name in used if not _is_defined(name[1])} == SET


def _is_defined(name: str) -> bool:
    return any(
        isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr == name
        for _, node in _nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Store)
    )


def _calls(*names: str) -> Iterator[tuple[Path, ast.Call]]:
    for path, node in _nodes(ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in names:
            yield path, node


def _nodes(kind: type[T]) -> Iterator[tuple[Path, T]]:
    for path in [*sorted((SOURCE / "livekit").rglob("*.py")), *sorted(SOURCE.glob("at*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kind):
                yield path, node
