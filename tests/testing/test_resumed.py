"""`resumed`: a recorded call, gone on with by the application's own agent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from livekit.agents import Agent, AgentSession, AgentTask, function_tool, llm
from livekit.agents.testing import fake_job_context

from recall_livekit import (
    Action,
    Briefing,
    InvalidInput,
    Recall,
    RecallAgent,
    Resolved,
    Settings,
    attach,
)
from recall_livekit.cli.export import export
from recall_livekit.engine.history import history
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing import Past, resumed
from recall_livekit.testing.voices import Reply, ScriptedLLM, said, tool_call

from ..livekit.line import until
from .calls import DONE, ROOM, TURNS, Support, careful, careless, exported, record, recorded

pytestmark = pytest.mark.anyio


def support(past: Past) -> Support:
    return Support(past.call_id)


@pytest.fixture
async def store() -> AsyncIterator[Recall]:
    async with recorded() as recall:
        yield recall


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    return await exported(tmp_path)


# ---- what it is for


async def test_a_careful_agent_does_not_charge_twice(file: Path) -> None:
    """Killed while the charge ran: it says so, looks, and charges nothing."""
    model = ScriptedLLM(careful)
    async with resumed(support, file, during="charge", llm=model) as call:
        assert call.said == ("Sorry, the line dropped; one moment.",)
        assert [action.tool for action in call.briefing.may_have_happened] == ["charge"]
        result = await call.hears("Did it work?")
        result.expect.next_event().is_function_call(name="find_charge")
        assert call.called == ("find_charge",)
        assert tuple(call.said)[1:] == ("I looked: charged once.",)


async def test_a_careless_one_is_caught(file: Path) -> None:
    agents: list[Support] = []

    def make(past: Past) -> Support:
        agents.append(Support(past.call_id))
        return agents[0]

    async with resumed(make, file, during="charge", llm=ScriptedLLM(careless)) as call:
        assert call.called == ("charge",)
        assert [json.loads(one.arguments) for one in call.calls] == [{"amount": 10}]
        assert agents[0].charged == [10], "a tool that is not mocked runs"
        call.first.expect.next_event().is_agent_handoff()
        call.first.expect.next_event().is_function_call(name="charge")


def output_of(model: ScriptedLLM) -> str:
    """What the model was told that its tool call gave."""
    output = model.prompts[-1].items[-1]
    assert isinstance(output, llm.FunctionCallOutput)
    return output.output


async def test_a_tool_may_be_another_one_for_the_test(file: Path) -> None:
    agents: list[Support] = []

    def make(past: Past) -> Support:
        agents.append(Support(past.call_id))
        return agents[0]

    fakes = {"charge": lambda amount: f"fake {amount}"}
    model = ScriptedLLM(careless)
    async with resumed(make, file, during="charge", llm=model, tools=fakes) as call:
        assert call.called == ("charge",)
        assert output_of(model) == "fake 10"
    assert agents[0].charged == []


async def test_a_name_that_no_tool_has_is_warned_of(file: Path) -> None:
    fakes = {"chrage": lambda: "fake", "charge": lambda: "fake"}
    with pytest.warns(UserWarning, match="no agent had a tool of the name chrage: not mocked"):
        async with resumed(support, file, llm=ScriptedLLM(careful), tools=fakes):
            pass


async def test_also_on_the_agent_that_it_hands_over_to(file: Path) -> None:
    class Till(Support):
        pass

    def reply(chat_ctx: llm.ChatContext) -> Reply:
        if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
            return "done"
        return [tool_call("charge", '{"amount": 1}')] if said(chat_ctx, "user")[-1:] else "hm"

    fakes, model = {"charge": lambda: "fake"}, ScriptedLLM(reply)
    async with resumed(support, file, at_turn=1, llm=model, tools=fakes) as call:
        till = Till(ROOM)
        call.session.update_agent(till)
        assert till.call is not call.call
        await call.session.wait_for_idle()
        await call.hears("pay")
        assert call.called == ("charge",)
        assert till.charged == []
        assert output_of(model) == "fake"


async def test_also_while_an_agent_hands_over(file: Path) -> None:
    """A tool of the old agent runs when the new one is the session's already."""

    class Till(Support):
        pass

    def reply(chat_ctx: llm.ChatContext) -> Reply:
        if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
            return "done"
        return [tool_call("charge", '{"amount": 1}')] if said(chat_ctx, "user") else "hm"

    agents: list[Support] = []

    def make(past: Past) -> Support:
        agents.append(Support(past.call_id))
        return agents[0]

    fakes, model = {"charge": lambda: "fake"}, ScriptedLLM(reply)
    async with resumed(make, file, at_turn=1, llm=model, tools=fakes) as call:
        model.first_delay = 0.3
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call.hears("pay"))
            await until(lambda: len(model.prompts) > 1)
            agents.append(Till(ROOM))
            call.session.update_agent(agents[1])
        assert call.called == ("charge",)
    assert [agent.charged for agent in agents] == [[], []]


class Card(AgentTask[str]):
    """Takes the card, and gives the call back."""

    charged = 0

    def __init__(self) -> None:
        super().__init__(instructions="Take the card.")

    async def on_enter(self) -> None:
        self.session.generate_reply()

    @function_tool
    async def charge(self) -> str:
        """Charge it."""
        Card.charged += 1
        return "charged"

    @function_tool
    async def finish(self) -> None:
        """Say that it is done."""
        self.complete("paid")


class Cashier(Support):
    @function_tool
    async def take_card(self) -> str:
        """Take the caller's card."""
        return await Card()


async def test_also_on_a_task_that_it_awaits(file: Path) -> None:
    steps = {"fake": "finish", None: "charge"}

    def reply(chat_ctx: llm.ChatContext) -> Reply:
        last = chat_ctx.items[-1]
        told = last.output if isinstance(last, llm.FunctionCallOutput) else None
        if said(chat_ctx, "system")[:1] == ["Take the card."]:
            return [tool_call(steps[told])]
        if said(chat_ctx, "user")[-1:] == ["pay"] and told is None:
            return [tool_call("take_card")]
        return "done"

    async with resumed(
        lambda past: Cashier(past.call_id),
        file,
        at_turn=1,
        llm=ScriptedLLM(reply),
        tools={"charge": lambda: "fake"},
    ) as call:
        await call.hears("pay")
        await call.session.wait_for_idle()
        assert sorted(call.called) == ["charge", "finish", "take_card"]
        assert Card.charged == 0


async def test_two_calls_at_once_keep_apart(file: Path, store: Recall) -> None:
    """Each agent opens its own past, though both just say `Recall.open()`."""

    async def turns(source: Path | Recall, call_id: str | None, at_turn: int) -> int:
        async with resumed(
            support, source, call_id, at_turn=at_turn, llm=ScriptedLLM(careful)
        ) as call:
            await call.hears("Hello?")
            return len(call.briefing.turns)

    opened = Recall.open
    found = await asyncio.gather(turns(file, None, 1), turns(store, ROOM, 3), turns(file, None, 4))
    assert tuple(found) == (1, 3, 4)
    assert Recall.open == opened


async def test_a_charge_that_was_looked_up_is_not_told_as_open(file: Path) -> None:
    class Asking(Support):
        async def on_resume(self, briefing: Briefing | None) -> None:
            await self.reconcile(self.look_up)
            await super().on_resume(briefing)

        async def look_up(self, action: Action) -> Resolved | None:
            return Resolved(status="done", result="receipt 4711")

    model = ScriptedLLM(careful)
    async with resumed(lambda past: Asking(past.call_id), file, during="charge", llm=model) as call:
        told = said(model.prompts[0], "system")[-1]
        assert "under way" not in told
        outputs = [i for i in model.prompts[0].items if isinstance(i, llm.FunctionCallOutput)]
        assert [one.output for one in outputs] == ["receipt 4711"]
        assert call.briefing.may_have_happened == ()


async def test_a_call_that_an_agent_had_is_loaded_while_its_tool_ran(file: Path) -> None:
    """What is recorded of a tool as it runs is what `during` finds; a test may load a test's."""
    async with resumed(support, file, at_turn=4, llm=ScriptedLLM(careless)) as first:
        assert first.said == ("Paid.",)
        assert await first.call.flush(10)
        model = ScriptedLLM(careful)
        async with resumed(support, first.past.recall, ROOM, during="charge", llm=model) as second:
            [action] = second.briefing.may_have_happened
            assert (action.tool, json.loads(action.arguments)) == ("charge", {"amount": 10})
            assert action.call_id == first.calls[0].call_id
            assert "Paid." not in said(model.prompts[0])
            told = said(model.prompts[0], "system")[-1]
            assert "A call of charge was under way" in told
            outputs = [i for i in model.prompts[0].items if isinstance(i, llm.FunctionCallOutput)]
            assert [one.name for one in outputs] == ["charge"], "what it says is not known yet"
            assert "charged 10" not in outputs[0].output


# ---- the moment


async def test_at_a_turn_the_agent_knows_what_was_said_until_then(store: Recall) -> None:
    model = ScriptedLLM(careful)
    async with resumed(support, store, ROOM, at_turn=2, llm=model) as call:
        assert [turn.content for turn in call.briefing.turns] == [text for _, text in TURNS[:2]]
        assert said(model.prompts[0], "user", "assistant") == [text for _, text in TURNS[:2]]
        assert call.briefing.actions == ()
        assert call.briefing.awaits_answer
        await call.hears("Hello?")
        assert await call.call.flush(10)
        turns = await call.past.recall.turns(ROOM)
        assert [turn.content for turn in turns][2:] == [
            "Sorry, the line dropped; one moment.",
            "Hello?",
            "Sorry, the line dropped; one moment.",
        ]


async def test_in_the_middle_of_the_agents_sentence(store: Recall) -> None:
    model = ScriptedLLM(careful)
    async with resumed(support, store, ROOM, at_turn=3, cut=5, llm=model) as call:
        assert call.briefing.agent_words == "Gladly. So that is four"
        assert call.briefing.speaker == "agent"
        told = said(model.prompts[0], "system")[-1]
        assert 'cut off while saying "So that is four"' in told
        assert "half past seven" not in " ".join(said(model.prompts[0]))


async def test_in_the_middle_of_the_callers_words(store: Recall) -> None:
    model = ScriptedLLM(careful)
    async with resumed(support, store, ROOM, at_turn=4, cut="Yes. And here", llm=model) as call:
        assert (call.briefing.speaker, call.briefing.caller_words) == ("caller", "Yes. And here")
        assert 'caller was cut off while saying "Yes. And here"' in said(model.prompts[0])[-1]


async def test_at_an_entry_of_the_chain(store: Recall) -> None:
    """As `show --at` shows it: run, lease, and then nothing was said yet."""

    class Greeter(Support):
        async def on_fresh(self) -> None:
            await self.session.generate_reply(instructions="Greet.")

    model = ScriptedLLM(lambda _: "Good evening.")
    async with resumed(
        lambda past: Greeter(past.call_id), store, ROOM, at_entry=1, llm=model
    ) as call:
        assert call.briefing.fresh
        assert said(model.prompts[0])[-1] == "Greet."


async def test_with_no_moment_it_died_at_the_end_though_it_ended_then(file: Path) -> None:
    async with resumed(support, file, llm=ScriptedLLM(careful)) as call:
        assert call.briefing.turns[-1].content == DONE
        assert [action.tool for action in call.briefing.finished] == ["charge"]
        assert not call.briefing.fresh


@asynccontextmanager
async def dying(store: Recall, long: str) -> AsyncIterator[str]:
    """A call whose worker is in the middle of a sentence; yields the ref of an output of it."""
    async with store.resume(ROOM) as call:
        call.record_turn("user", "list it")
        kept = await call.keep_output("list", long)
        assert await call.flush(10)
        call.partial("assistant", "Here it is. I am just about to")
        with anyio.fail_after(10):
            while not (await store.read(ROOM)).partials:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield kept.ref


@pytest.mark.parametrize("way", ["store", "file"])
async def test_what_is_kept_beside_the_chain_is_there(tmp_path: Path, way: str) -> None:
    """Words under way, and outputs by reference."""
    long, file = "a long list " * 1000, tmp_path / "call.jsonl"
    records = Recall(SqliteStore(tmp_path / "records"), settings=Settings(partial_interval=0.01))
    async with records as store, dying(store, long) as ref:
        await export(f"sqlite:///{tmp_path / 'records'}", ROOM, file, force=False)
        source, call_id = (file, None) if way == "file" else (store, ROOM)
        async with resumed(support, source, call_id, llm=ScriptedLLM(careful)) as going:
            assert going.briefing.cut_sentence == "I am just about to"
            assert await going.past.recall.fetch_output(ROOM, ref) == long
        async with resumed(support, source, call_id, at_turn=1, llm=ScriptedLLM(careful)) as going:
            assert going.briefing.speaker is None, "they came later"


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        ({"at_turn": 9}, "has turns 1 to 5, not 9"),
        ({"at_turn": 0}, "has turns 1 to 5, not 0"),
        ({"at_entry": 99}, "has entries 0 to"),
        ({"at_entry": -1}, "has entries 0 to"),
        ({"at_entry": 1, "at_turn": 1}, "give nothing else"),
        ({"during": "refund"}, "no call of the tool 'refund' begins in .*: charge"),
        ({"during": "charge", "at_turn": 5}, "after that turn; tools that do: none"),
        ({"cut": 3}, "say which, with at_turn"),
        ({"at_turn": 3, "cut": 0}, "turn 3 has 11 words"),
        ({"at_turn": 3, "cut": 11}, "it can be cut after 1 to 10"),
        ({"at_turn": 3, "cut": "Sorry"}, "does not begin with 'Sorry': it is 'Gladly"),
        ({"silence": -1.0}, "silence"),
        ({"silence": float("nan")}, "silence"),
        ({"silence": float("inf")}, "silence"),
    ],
)
async def test_a_moment_that_it_does_not_have_is_told(
    store: Recall, moment: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        async with resumed(support, store, ROOM, llm=ScriptedLLM(careful), **moment):
            raise AssertionError


async def test_two_calls_of_a_tool_the_last_or_the_first_after_a_turn() -> None:
    async with Recall(MemoryStore()) as recall:
        async with recall.resume("twice") as call:
            call.record_turn("user", "one")
            call.record_action("charge", arguments='{"amount": 1}')
            call.record_turn("user", "two")
            call.record_action("charge", arguments='{"amount": 2}')
            assert await call.flush(10)
        for moment, turns in (({}, 2), ({"at_turn": 1}, 1), ({"at_turn": 2}, 2)):
            async with resumed(
                support,
                recall,
                "twice",
                during="charge",
                llm=ScriptedLLM(careful),
                **moment,  # type: ignore[arg-type]
            ) as going:
                assert len(going.briefing.turns) == turns
                assert len(going.briefing.actions) == turns


# ---- what comes before, what is not there


async def test_of_several_runs_the_newest_goes_on_and_turns_count_through() -> None:
    async with Recall(MemoryStore()) as recall:
        for sid, text in (("RM_1", "yesterday"), ("RM_2", "today")):
            call = recall.resume(ROOM, room_sid=sid)
            async with call:
                call.record_turn("user", text)
                assert await call.flush(10)
                call.outcome = "ended"
        for moment, text in (
            ({}, "today"),
            ({"at_turn": 2}, "today"),
            ({"at_turn": 1}, "yesterday"),
        ):
            async with resumed(
                support,
                recall,
                ROOM,
                llm=ScriptedLLM(careful),
                **moment,  # type: ignore[arg-type]
            ) as going:
                assert [turn.content for turn in going.briefing.turns] == [text]


async def test_an_erased_call_cannot_be_loaded(tmp_path: Path) -> None:
    async with Recall(MemoryStore()) as recall:
        async with recall.resume(ROOM) as call:
            record(call)
            assert await call.flush(10)
        await recall.erase(ROOM)
        with pytest.raises(InvalidInput, match="it was erased"):
            async with resumed(support, recall, ROOM, llm=ScriptedLLM(careful)):
                raise AssertionError
        with pytest.raises(InvalidInput, match="has no turn, not 1"):
            async with resumed(support, recall, ROOM, at_turn=1, llm=ScriptedLLM(careful)):
                raise AssertionError


async def test_a_run_after_an_erasure_is_loaded_alone() -> None:
    async with Recall(MemoryStore()) as recall:
        for sid, text in (("RM_1", "a secret"), ("RM_2", "a new day")):
            async with recall.resume(ROOM, room_sid=sid) as call:
                call.record_turn("user", text)
                assert await call.flush(10)
            if sid == "RM_1":
                await recall.erase(ROOM)
        async with resumed(support, recall, ROOM, at_turn=1, llm=ScriptedLLM(careful)) as going:
            assert [turn.content for turn in going.briefing.turns] == ["a new day"]


def put_something_newer(file: Path) -> None:
    """In place of the release."""
    *lines, _ = file.read_text().splitlines()
    lines.append('{"v": 9, "kind": "hologram", "epoch": 1, "at": 1.0}')
    file.write_text("\n".join(lines) + "\n")


async def test_what_is_newer_stays_unread_and_is_counted(file: Path) -> None:
    put_something_newer(file)
    async with resumed(support, file, llm=ScriptedLLM(careful)) as call:
        assert call.briefing.unreadable == 1
        assert call.briefing.turns[-1].content == DONE


async def test_where_it_came_from_is_not_changed(store: Recall) -> None:
    before = await store.entries(ROOM, 0, 256)
    async with resumed(support, store, ROOM, at_turn=2, llm=ScriptedLLM(careful)) as call:
        await call.hears("Hello?")
        assert call.past.recall is not store
        assert await call.call.flush(10)
    assert await store.entries(ROOM, 0, 256) == before


async def test_what_happened_since_can_be_read_as_of_any_call(store: Recall) -> None:
    async with resumed(support, store, ROOM, at_turn=2, llm=ScriptedLLM(careful)) as call:
        assert await call.call.flush(10)
        told = history(await call.past.recall.entries(ROOM, 0, 256))
        assert [lease.end for lease in told.leases] == ["taken_over", None]


async def test_times_are_moved_so_that_it_just_died(file: Path) -> None:
    asked: list[Briefing | None] = []

    class Curious(Support):
        async def on_resume(self, briefing: Briefing | None) -> None:
            asked.append(briefing)

    async with resumed(lambda past: Curious(past.call_id), file, silence=40.0, llm=None) as call:
        assert call.said == ()
    [briefing] = asked
    assert briefing is not None
    assert briefing.silence is not None
    assert 39.9 < briefing.silence < 60.0


# ---- files


BAD_FILES = [
    ("", "its first line is not what `recall-livekit export"),
    ("not json\n", "its first line is not what"),
    ('["a list"]\n', "its first line is not what"),
    ('{"some": "json"}\n', "its first line is not what"),
    ('{"v":2,"kind":"chain"}\n', "written by a newer version: upgrade"),
    (
        '{"v":1,"kind":"chain","call_id":"x","entries":2,"exported_at":1,"by":"x"}\n',
        "is cut: it has 0 of 2 entries",
    ),
    (
        '{"v":1,"kind":"chain","call_id":"x","entries":1,"exported_at":1,"by":"x"}\n{"kind":7\n',
        "line 2: not an entry",
    ),
    *(
        (
            '{"v":1,"kind":"chain","call_id":"x","entries":0,"exported_at":1,"by":"x"}\n\n' + line,
            "line 3: not a line of an export",
        )
        for line in (
            '{"kind":7',
            "[]",
            '{"kind":"partial"}',
            '{"kind":"output","ref":"1/0"}',
            '{"kind":"output","ref":"../etc","text":""}',
        )
    ),
]


@pytest.mark.parametrize(("content", "told"), BAD_FILES)
async def test_a_file_that_is_no_export_is_told(tmp_path: Path, content: str, told: str) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(content)
    with pytest.raises(InvalidInput, match=told):
        async with resumed(support, bad, llm=ScriptedLLM(careful)):
            raise AssertionError


async def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "nowhere.jsonl", tmp_path, binary):
        with pytest.raises(InvalidInput, match=f"{path.name} cannot be read"):
            async with resumed(support, path, llm=ScriptedLLM(careful)):
                raise AssertionError


async def test_a_call_that_is_not_there_is_told(file: Path, store: Recall) -> None:
    for source, call_id, told in (
        (store, "nobody", "there is no call 'nobody' here"),
        (store, None, "say which, with call_id="),
        (f"sqlite:///{file.parent / 'records'}", None, "say which, with call_id="),
        (file, "another", "is the call 'a table"),
    ):
        with pytest.raises(InvalidInput, match=told):
            async with resumed(support, source, call_id, llm=ScriptedLLM(careful)):
                raise AssertionError


async def test_a_store_is_read_by_its_address(file: Path) -> None:
    url = f"sqlite:///{file.parent / 'records'}"
    async with resumed(support, url, ROOM, at_turn=1, llm=ScriptedLLM(careful)) as call:
        assert len(call.briefing.turns) == 1


# ---- the agent


def text_session() -> AgentSession[None]:
    manual = {"turn_detection": "manual"}
    return AgentSession(llm=ScriptedLLM(careful), vad=None, turn_handling=manual)  # type: ignore[arg-type]


async def test_an_agent_that_resumes_another_call_is_told(file: Path) -> None:
    with pytest.raises(InvalidInput, match="does not resume the call"):
        async with resumed(lambda _: Support("another"), file, llm=ScriptedLLM(careful)):
            raise AssertionError


async def test_an_agent_with_records_of_its_own_is_told(file: Path) -> None:
    async with Recall(MemoryStore()) as own:

        def make(past: Past) -> RecallAgent:
            return RecallAgent(instructions="", resume=past.call_id, recall=own)

        with pytest.raises(InvalidInput, match=r"with past\.recall"):
            async with resumed(make, file, llm=ScriptedLLM(careful)):
                raise AssertionError


async def test_an_agent_that_resumes_nothing_is_told(file: Path) -> None:
    with pytest.raises(InvalidInput, match="does not resume the call"):
        async with resumed(lambda _: Agent(instructions=""), file, llm=ScriptedLLM(careful)):
            raise AssertionError


async def test_one_that_is_given_its_records_and_brings_its_model(file: Path) -> None:
    def make(past: Past) -> RecallAgent:
        return RecallAgent(
            instructions="", resume=past.call_id, recall=past.recall, llm=ScriptedLLM(careful)
        )

    async with resumed(make, file) as call:
        assert call.said == ("Sorry, the line dropped; one moment.",)


async def test_agents_with_other_bases_by_attach(file: Path) -> None:
    session = text_session()

    def make(past: Past) -> Agent:
        attach(session, resume=past.call_id)
        return Agent(instructions="You take bookings.")

    async with resumed(make, file, at_turn=2, session=session) as call:
        assert call.said == ("Sorry, the line dropped; one moment.",)
        assert len(call.briefing.turns) == 2


async def test_the_agent_that_was_active_is_brought_back() -> None:
    class Till(Support):
        """Only this one can charge for real."""

    def make(past: Past) -> RecallAgent:
        return RecallAgent(
            instructions="You take bookings.",
            resume=past.call_id,
            recall=past.recall,
            resume_agents={"till": lambda: Till(past.call_id)},
        )

    fakes = {"charge": lambda: "fake"}
    async with Recall(MemoryStore()) as recall:
        async with recall.resume(ROOM) as call:
            call.record_turn("user", "Here is my card.")
            call.record_turn("assistant", "I charge it now.", agent="till")
            assert await call.flush(10)
        model = ScriptedLLM(careless)
        async with resumed(make, recall, ROOM, llm=model, tools=fakes) as going:
            till = going.session.current_agent
            assert isinstance(till, Till)
            assert (going.called, till.charged) == (("charge",), [])
            assert output_of(model) == "fake"
            assert going.said == ("Paid.",)


async def test_a_session_of_ones_own(file: Path) -> None:
    session = text_session()
    async with resumed(support, file, session=session) as call:
        assert call.session is session
    with pytest.raises(InvalidInput, match="not both"):
        async with resumed(support, file, session=session, llm=ScriptedLLM(careful)):
            raise AssertionError


async def test_inside_a_job_it_is_the_same_call_too(file: Path) -> None:
    """The job's room has another sid than the recorded one."""
    with fake_job_context() as job:
        try:
            async with resumed(support, file, at_turn=2, llm=ScriptedLLM(careful)) as call:
                assert len(call.briefing.turns) == 2
        finally:
            job._tempdir.cleanup()


async def test_a_maker_that_fails_raises_what_it_raised(file: Path) -> None:
    def make(past: Past) -> Agent:
        raise LookupError("no prompt")

    opened = Recall.open
    with pytest.raises(LookupError, match="no prompt"):
        async with resumed(make, file, llm=ScriptedLLM(careful)):
            raise AssertionError
    assert Recall.open == opened


async def test_an_agent_that_comes_to_no_end_is_told(file: Path) -> None:
    class Sleeper(Support):
        async def on_resume(self, briefing: Briefing | None) -> None:
            await asyncio.sleep(3600)

    with pytest.raises(TimeoutError, match="what it says as it resumes"):
        async with resumed(
            lambda past: Sleeper(past.call_id), file, llm=ScriptedLLM(careful), timeout=1.0
        ):
            raise AssertionError


async def test_nothing_of_it_is_left(file: Path) -> None:
    before = asyncio.all_tasks()
    async with resumed(support, file, llm=ScriptedLLM(careful)):
        pass
    for _ in range(100):
        if not (left := asyncio.all_tasks() - before):
            break
        await asyncio.sleep(0.05)
    assert not left


def test_importing_it_is_light() -> None:
    script = (
        "import sys, recall_livekit.testing\n"
        "assert 'livekit.agents' not in sys.modules and 'pytest' not in sys.modules\n"
        "from recall_livekit.testing import resumed\n"
        "assert 'pytest' not in sys.modules and 'typer' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
