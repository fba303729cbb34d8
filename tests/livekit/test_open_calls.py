"""What a dead worker left open is seeded as such, checked, and not done twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest
from livekit.agents import (
    ToolError,
    function_tool,
    llm,
)

from recall_livekit import Action, Resolved, action, action_key
from recall_livekit.livekit.seeds.seeding import seed_items
from recall_livekit.testing.voices import said, tool_call

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, until
from .shop import CARD, ROOM, Shop, ask, charging, pairs, shop, the_action, tool_outputs

pytestmark = pytest.mark.anyio
# --- after a crash ------------------------------------------------------------------------------


async def left_open(
    open_recall: OpenRecall, *, action_class: Any = "external", tool: str = "charge"
) -> str:
    """Another worker died while this ran; return its key."""
    recall = open_recall()
    call = recall.resume(ROOM)
    call.start()
    assert await call.holding(5)
    call.record_turn("user", "charge me please")
    begun = await call.begin_action(
        tool, action_class=action_class, arguments=CARD, call_id="call_of_the_model", agent="shop"
    )
    assert begun.durable is (action_class != "pure")
    assert await call.flush(2)
    await recall.aclose()
    return begun.key


async def test_agents_5092_call_without_output(open_recall: OpenRecall) -> None:
    """The seed has an output for the call that was open, in every provider's format."""
    await left_open(open_recall)
    log: list[str] = []
    async with shop(Shop(open_recall(), charging(log))) as line:
        await until(lambda: line.model.prompts)
        prompt = line.model.prompts[-1]
        call, output = pairs(prompt)["charge"]
        assert "It may have happened" in output
        assert json.loads(call.arguments) == {"card": "seven"}
        messages, _ = prompt.to_provider_format("openai")
        made = [c["id"] for m in messages for c in m.get("tool_calls", [])]
        answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert made == answered == [call.call_id]
        listed, _ = prompt.to_provider_format("openai.responses")
        kinds = [m["type"] for m in listed if "call_id" in m]
        assert kinds == ["function_call", "function_call_output"]
    assert log == []


async def test_a_finished_call_is_seeded_with_its_output_at_its_place(
    open_recall: OpenRecall,
) -> None:
    async with shop(first := Shop(open_recall(), charging([])), tool_call("charge", CARD)) as line:
        await ask(line, "charge me")
        await until(lambda: "it says charged" in line.subtitles.text)
        assert await first.call.flush(2)
    log: list[str] = []
    async with shop(Shop(open_recall(), charging(log))) as line:
        await until(lambda: line.model.prompts)
        prompt = line.model.prompts[-1]
        shape = [
            item.role if isinstance(item, llm.ChatMessage) else item.type for item in prompt.items
        ]
        # the caller asked, the tool was called, and the agent told what it said
        at = shape.index("function_call")
        assert shape[at - 1 : at + 3] == [
            "user",
            "function_call",
            "function_call_output",
            "assistant",
        ]
        assert pairs(prompt)["charge"][1] == "charged"
        assert pairs(line.session.history)["charge"][1] == "charged"
    assert log == []


async def test_the_same_call_of_an_idempotent_tool_gets_the_dead_workers_key_once(
    open_recall: OpenRecall,
) -> None:
    key = await left_open(open_recall, action_class="idempotent", tool="put")
    keys: list[str] = []

    @action("idempotent")
    @function_tool
    async def put(card: str) -> str:
        """Put it."""
        keys.append(action_key())
        return "put"

    agent = Shop(open_recall(), put)
    other = tool_call("put", '{"card": "eight"}')
    same = tool_call("put", '{ "card" : "seven" }')
    async with shop(agent, other, same, tool_call("put", CARD)) as line:
        await until(lambda: line.model.prompts)
        assert "safe to call it again" in pairs(line.model.prompts[0])["put"][1]
        await until(lambda: tool_outputs(line)[1:])  # it goes on with the first one by itself
        for _ in range(2):
            await ask(line)
        assert await agent.call.flush(2)
    assert keys[1] == key
    assert len(set(keys)) == 3, "another call of it, or the same call again, is another one"
    assert (await open_recall().read(ROOM)).actions == ()


async def test_what_is_tried_again_after_an_unknown_outcome_is_the_same_call(
    open_recall: OpenRecall,
) -> None:
    keys: list[str] = []

    @action("idempotent")
    @function_tool
    async def put(card: str) -> str:
        """Put it."""
        keys.append(action_key())
        if len(keys) == 1:
            raise OSError("no answer")
        if len(keys) == 2:
            raise ToolError("declined")
        return "put"

    agent = Shop(open_recall(), put)
    async with shop(agent, *(tool_call("put", CARD) for _ in range(3))) as line:
        for _ in range(3):
            await ask(line)
    assert keys[0] == keys[1], "nobody knows how it went"
    assert keys[1] != keys[2], "the tool said how it went"


@pytest.mark.parametrize("found", ["done", "failed", None, "raises", "hangs"])
async def test_reconcile_settles_what_was_left_open(
    open_recall: OpenRecall, found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    key = await left_open(open_recall)
    asked: list[Action] = []

    async def look(action: Action) -> Resolved | None:
        asked.append(action)
        if found == "raises":
            raise OSError("the provider is away")
        if found == "hangs":
            await anyio.sleep(60)
        return None if found not in ("done", "failed") else Resolved(found, f"receipt: {found}")

    agent = Shop(open_recall(), charging([]))
    agent.resolver = look
    if found == "hangs":
        wait = agent.reconcile
        agent.reconcile = lambda resolver, seconds=0.1: wait(resolver, seconds)  # type: ignore
    async with shop(agent) as line:
        await until(lambda: line.model.prompts)
        output = pairs(line.model.prompts[0])["charge"][1]
        assert pairs(line.session.history)["charge"][1] == output
        settled = found in ("done", "failed")
        assert (f"receipt: {found}" == output) is settled
        assert ("It may have happened" in output) is not settled
        notes = said(line.model.prompts[0], "developer")[0]
        assert ("Tool calls whose outcome is open" in notes) is not settled
        assert len(agent.call.open_actions) == (not settled)
        assert await agent.call.flush(2)
    assert [(a.key, a.status, a.arguments) for a in asked] == [(key, "unknown", CARD)] or (
        asked[0].key == key
    )
    told = await the_action(open_recall())
    assert told.status == (found if settled else "unknown")
    assert (told.tool, told.arguments, told.call_id) == ("charge", CARD, "call_of_the_model")
    assert ("a resolver failed" in caplog.text) is (found == "raises")


async def test_reconcile_with_unread_records_says_so_and_the_agent_speaks(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    freezer = Freezer(timeout=0.3, frozen=True)

    async def look(action: Action) -> Resolved | None:
        raise AssertionError("there is nothing to ask about")

    agent = Shop(open_recall(faults=freezer, seed_wait=0.05, flush_wait=0.3))
    agent.resolver = look
    async with shop(agent) as line:
        await until(lambda: line.session.current_agent is agent)
        await agent.on_resume(None)
        await until(lambda: line.heard)
    assert "the records were not read in time" in caplog.text


async def test_the_end_of_a_tool_that_ran_when_the_call_was_taken_is_still_told(
    open_recall: OpenRecall,
) -> None:
    """As a late record: the next one who reads knows that it was done."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @function_tool
    async def charge(card: str) -> str:
        """Charge the card."""
        began.set()
        await go_on.wait()
        return "charged"

    agent = Shop(open_recall(), charge)
    async with shop(agent, tool_call("charge", CARD)) as line:
        line.stt.say("please")
        await until(began.is_set)
        async with open_recall().resume(ROOM, if_held="steal") as other:
            assert [a.status for a in other.open_actions] == ["unknown"]
            await until(lambda: not agent.call.may_act)
            go_on.set()
            await until(lambda: not agent.call._open_calls._running)
            await agent.call.flush(2)
            briefing = await open_recall().read(ROOM)
    assert briefing.actions == ()
    assert [(a.tool, a.status, a.result) for a in briefing.finished] == [
        ("charge", "done", "charged")
    ]


# --- public issues ------------------------------------------------------------------------------


async def test_agents_3702_tool_results_lost_on_interruption_duplicate_orders(
    open_recall: OpenRecall,
) -> None:
    """The caller interrupts while the order runs: it is placed once, its result is recorded, and
    neither this worker nor the next one orders again."""
    orders: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    @function_tool
    async def order(what: str) -> str:
        """Order it."""
        orders.append(what)
        began.set()
        await go_on.wait()
        return "order 17 placed"

    def reply(chat_ctx: llm.ChatContext) -> Any:
        outputs = [i for i in chat_ctx.items if isinstance(i, llm.FunctionCallOutput)]
        if any("17" in o.output for o in outputs):
            return "your order is placed"
        if "tea please" in said(chat_ctx, "user") and not outputs:
            return [tool_call("order", '{"what": "tea"}')]
        return "one moment"

    agent = Shop(open_recall(), order)
    async with Line(agent, reply).open() as line:
        line.stt.say("tea please")
        await until(began.is_set)
        await line.session.interrupt(force=True)
        go_on.set()
        await until(lambda: not agent.call._open_calls._running)
        await until(lambda: any("17" in o.output for o in tool_outputs(line)))
        line.stt.say("are you there")
        await until(lambda: "your order is placed" in line.subtitles.text)
        assert await agent.call.flush(2)
    second = Line(Shop(open_recall(), order), reply)
    async with second.open() as line:
        await until(lambda: "your order is placed" in line.subtitles.text)
        assert "17" in pairs(line.model.prompts[0])["order"][1]
    assert orders == ["tea"]


async def test_agents_995_orphan_tool_result_in_a_truncated_seed(open_recall: OpenRecall) -> None:
    """Whatever the budget cuts, each call that is seeded has its output, each output its call."""
    async with open_recall().resume(ROOM) as earlier:
        for number in range(12):
            earlier.record_turn("user", f"question {number} " + "and more of it " * 12)
            begun = await earlier.begin_action(
                "look", action_class="pure", arguments=json.dumps({"number": number})
            )
            earlier.end_action(begun.key, "done", result=f"answer {number} " * 12)
    seeded = set()
    for tokens in range(20, 1500, 60):
        async with open_recall(briefing_tokens=tokens).resume(ROOM) as call:
            context = llm.ChatContext(seed_items(call.briefing))
        pairs(context)
        seeded.add(sum(item.type == "function_call" for item in context.items))
    assert len(seeded) > 3, "the budget cut at other places"
