"""Long texts beside the records: kept before they are named, fetched by whatever worker."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import anyio
import pytest

from recall_livekit import (
    CallState,
    Closed,
    Erased,
    InvalidRecord,
    OutboxFull,
    Output,
    OutputMissing,
    ReadOnly,
    Recall,
    StoreUnavailable,
)
from recall_livekit.models import Action
from recall_livekit.redaction import WITHHELD
from recall_livekit.testing.faults import Faults

from ..conftest import OpenRecall, transport_of
from .test_call import CALL, faulty, until

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]
REPORT = "line of a report\n" * 1000
MISSING = "7/0"


async def test_the_next_worker_is_told_of_an_output_and_fetches_it(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        output = await call.keep_output("report", REPORT)
        assert (output.name, output.chars) == ("report", len(REPORT))
        assert REPORT.startswith(output.preview)
    async with open_recall().resume(CALL) as call:
        (told,) = call.briefing.outputs
        assert told == output
        assert f"report ({len(REPORT)} characters, ref {output.ref})" in call.briefing.notes
        assert REPORT not in call.briefing.text
        assert await call.fetch_output(told.ref) == REPORT
        assert await open_recall().fetch_output(CALL, told.ref) == REPORT


async def test_many_outputs_each_have_their_ref(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        kept: dict[str, str] = {}

        async def keep(text: str) -> None:
            kept[text] = (await call.keep_output("same name", text)).ref

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(keep, f"text {number % 5}, {number}")
        assert len(set(kept.values())) == 10
        for text, ref in kept.items():
            assert await call.fetch_output(ref) == text
        assert sorted(ref.partition("/")[2] for ref in kept.values()) == list("0123456789")


async def test_the_text_is_durable_before_the_record_that_names_it(open_recall: OpenRecall) -> None:
    recall = open_recall()
    async with recall.resume(CALL) as call:
        there: list[bool] = []
        record = call._outputs._record

        def looked_first(output: Output) -> object:
            there.append(output.ref in kept)
            return record(output)

        kept: list[str | None] = []
        put = transport_of(recall).put_output

        async def noted(*args: Any) -> str | None:
            kept.append(await put(*args))
            return kept[-1]

        transport_of(recall).put_output = noted
        call._outputs._record = looked_first
        await call.keep_output("report", REPORT)
        assert there == [True]


async def test_an_output_waits_for_the_writer_s_first_entry(open_recall: OpenRecall) -> None:
    """A worker that has not written anything has no name for it yet: it is not lost for that."""
    call = open_recall().resume(CALL)
    call.start()
    assert call.state is CallState.READING
    output = await call.keep_output("report", REPORT)
    assert await open_recall().fetch_output(CALL, output.ref) == REPORT
    await call.aclose()


@pytest.mark.parametrize("seed", range(3))
async def test_lost_requests_and_answers_keep_each_text_once(
    open_recall: OpenRecall, seed: int
) -> None:
    faults = Faults(drop_request=0.2, drop_answer=0.3, late_request=0.1, duplicate=0.2)
    opened = partial(faulty, faults=faults)
    recall = open_recall(faults=opened, output_wait=20.0, retry_first=0.001, retry_last=0.01)
    async with recall.resume(CALL) as call:
        refs = [(await call.keep_output("n", f"text {seed} {n}")).ref for n in range(20)]
        assert await call.flush(20)
    recall = open_recall()
    assert [await recall.fetch_output(CALL, ref) for ref in refs] == [
        f"text {seed} {n}" for n in range(20)
    ]
    assert [ref.partition("/")[2] for ref in refs] == [str(n) for n in range(20)]
    with pytest.raises(OutputMissing):
        await recall.fetch_output(CALL, refs[0].replace("/0", "/20"))


# --- what cannot be kept --------------------------------------------------------------------------


async def away(*_: object) -> str:
    raise StoreUnavailable("no route to the records")


async def test_with_the_store_away_it_is_told_in_time_counted_and_logged_once(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recall = open_recall(output_wait=0.2, retry_first=0.01)
    async with recall.resume(CALL) as call:
        with monkeypatch.context() as outage, anyio.fail_after(5):
            outage.setattr(transport_of(recall), "put_output", away)
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=r"0\.2 s"):
                    await call.keep_output("report", REPORT)
        assert call.unkept == 2
        warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len([w for w in warnings if "an output is not kept" in w.getMessage()]) == 1
        assert not call.lag, "no record names what is not there"
        assert await call.fetch_output((await call.keep_output("report", REPORT)).ref) == REPORT
        assert call.unkept == 2


async def test_a_store_that_hangs_holds_nobody_up(open_recall: OpenRecall) -> None:
    recall = open_recall(output_wait=0.1)
    async with recall.resume(CALL) as call:

        async def hangs(*_: object) -> str:
            await anyio.sleep_forever()
            raise AssertionError

        transport_of(recall).put_output = hangs
        refused: list[str] = []

        async def keep() -> None:
            with pytest.raises((StoreUnavailable, OutboxFull)) as told:
                await call.keep_output("report", REPORT)
            refused.append(type(told.value).__name__)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(keep)
        assert (refused.count("OutboxFull"), refused.count("StoreUnavailable")) == (4, 16)
        assert call.unkept == 20


async def test_who_does_not_have_the_call_keeps_nothing(open_recall: OpenRecall) -> None:
    first = open_recall().resume(CALL, if_lease_lost="leave")
    async with first, open_recall().resume(CALL, if_held="steal"):
        await until(lambda: first.state is CallState.READ_ONLY)
        with pytest.raises(ReadOnly):
            await first.keep_output("report", REPORT)
    with pytest.raises(Closed):
        await first.keep_output("report", REPORT)


async def test_an_output_kept_as_the_call_is_lost_is_told_and_counted(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall()
    async with recall.resume(CALL, if_lease_lost="leave") as first:
        put = transport_of(recall).put_output

        async def put_and_lose(*args: Any) -> str | None:
            ref = await put(*args)
            taker = open_recall().resume(CALL, if_held="steal")
            async with taker:
                await until(lambda: first.state is CallState.READ_ONLY)
            return str(ref)

        transport_of(recall).put_output = put_and_lose
        with pytest.raises(ReadOnly):
            await first.keep_output("report", REPORT)
        assert first.unkept == 1


@pytest.mark.parametrize("end", ["close", "hand over"])
async def test_what_is_being_kept_when_the_call_is_given_away_is_kept(
    open_recall: OpenRecall, end: str
) -> None:
    recall = open_recall()
    began = anyio.Event()
    put = transport_of(recall).put_output

    async def slowly(*args: Any) -> str | None:
        began.set()
        await anyio.sleep(0.5)
        return str(await put(*args))

    call = recall.resume(CALL)
    async with call, anyio.create_task_group() as tasks:
        transport_of(recall).put_output = slowly
        tasks.start_soon(call.keep_output, "report", REPORT)
        await began.wait()
        if end == "close":
            await call.aclose()
        else:
            second = open_recall().resume(CALL)
            second.start()
            await until(lambda: second.state is CallState.STANDBY)
            assert await call.hand_over(5)
            await second.aclose()
    assert call.unkept == 0
    (output,) = (await open_recall().read(CALL)).outputs
    assert await open_recall().fetch_output(CALL, output.ref) == REPORT


@pytest.mark.parametrize("text", ["ä" * 600_000, "x" * 1_100_000, "\1" * 1_000_000, "[" * 900_000])
async def test_a_text_that_is_too_long_is_cut_and_says_so(
    open_recall: OpenRecall, text: str
) -> None:
    async with open_recall().resume(CALL) as call:
        output = await call.keep_output("report", text)
        kept = await call.fetch_output(output.ref)
    assert len(kept.encode()) <= 1024 * 1024
    if text[0] == "[":
        assert kept == text, "brackets in a text are no nested values"
    else:
        assert kept.endswith(f" [cut here: {len(text)} characters]")
        assert text.startswith(kept.rpartition(" [cut")[0])


async def test_what_is_no_text_is_refused_and_a_broken_one_is_kept(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        with pytest.raises(InvalidRecord):
            await call.keep_output("report", b"bytes")  # type: ignore[arg-type]
        output = await call.keep_output("", "half an emoji: \ud83d")
        assert await call.fetch_output(output.ref) == "half an emoji: \\ud83d"


# --- redaction ------------------------------------------------------------------------------------


async def test_an_output_is_redacted_whole_and_before_it_is_cut(open_recall: OpenRecall) -> None:
    card = "4111 1111 1111 1111"
    text = f"{'x' * 190} {card} paid"  # the preview ends within the number
    async with open_recall().resume(CALL, redact=lambda t: t.replace(card, "[card]")) as call:
        output = await call.keep_output(f"receipt of {card}", text)
        assert "4111" not in output.preview
        assert await call.fetch_output(output.ref) == text.replace(card, "[card]")
    briefing = await open_recall().read(CALL)
    assert briefing.outputs[0].name == "receipt of [card]"
    assert "4111" not in briefing.model_dump_json()


async def test_half_a_number_at_the_end_of_a_cut_text_is_not_kept(open_recall: OpenRecall) -> None:
    card = "4111 1111 1111 1111"
    begin = f"{card} " * 30  # which gets shorter, so that the end of what was cut stays
    text = begin + "x" * (1024 * 1024 - len(begin) - 9) + card + "y" * 5000
    async with open_recall().resume(CALL, redact=lambda t: t.replace(card, "[card]")) as call:
        kept = await call.fetch_output((await call.keep_output("log", text)).ref)
    assert "4111" not in kept
    assert "[cut here" in kept


async def test_if_redaction_fails_the_text_is_withheld_and_counted(open_recall: OpenRecall) -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    async with open_recall().resume(CALL, redact=fails) as call:
        output = await call.keep_output("report", REPORT)
        assert await call.fetch_output(output.ref) == WITHHELD
        assert call.withheld >= 1


# --- what is not there ----------------------------------------------------------------------------


async def record(recall: Recall, *records: tuple[str, Any]) -> None:
    async with recall.resume(CALL) as call:
        for _, one in records:
            call._outbox.add(one)
        assert await call.flush(5)


async def test_a_ref_that_dangles_says_what_to_do_and_the_next_briefing_tells_it(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Output(at=1.0, ref=MISSING, name="report", chars=9000, preview="It began so")
    await record(open_recall(), ("output", lost))
    async with open_recall().resume(CALL) as call:
        assert "lost" not in call.briefing.notes
        for _ in range(3):
            with pytest.raises(OutputMissing, match="go on without it"):
                await call.fetch_output(MISSING)
        assert await call.flush(5)
        told = [r for r in caplog.records if "is not there" in r.getMessage()]
        assert len(told) == 1
    briefing = await open_recall().read(CALL)
    (output,) = briefing.outputs
    assert output.missing
    assert "ref 7/0): lost, do not fetch it; it began: It began so" in briefing.notes


async def test_a_tool_s_result_that_dangles_is_told_with_the_tool_call(
    open_recall: OpenRecall,
) -> None:
    action = Action(
        at=1.0, key="k", tool="search", status="done", result="It began so", result_ref=MISSING
    )
    await record(open_recall(), ("action", action))
    async with open_recall().resume(CALL) as call:
        assert f"(all of it: ref {MISSING})" in call.briefing.text
        with pytest.raises(OutputMissing):
            await call.fetch_output(MISSING)
    text = (await open_recall().read(CALL)).text
    assert "It began so (the rest of it is lost)" in text
    assert f"all of it: ref {MISSING}" not in text


@pytest.mark.parametrize("ref", ["99/9", "nonsense", "", "../../v1/calls", "0/0"])
async def test_a_ref_that_a_model_made_up_is_refused_and_nothing_is_recorded(
    open_recall: OpenRecall, ref: str
) -> None:
    async with open_recall().resume(CALL) as call:
        with pytest.raises(OutputMissing):
            await call.fetch_output(ref)
        assert not call.lag
        assert call.state is CallState.HOLDING
    assert (await open_recall().read(CALL)).outputs == ()


async def test_an_erased_output_is_missing_and_a_late_one_is_not_kept(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(CALL) as call:
        output = await call.keep_output("report", REPORT)
        await open_recall().erase(CALL)
        with pytest.raises(OutputMissing, match="was erased"):
            await open_recall().fetch_output(CALL, output.ref)
        with pytest.raises((OutputMissing, ReadOnly)):
            await call.fetch_output(output.ref)
        with pytest.raises((Erased, ReadOnly)):
            await call.keep_output("report", REPORT)
    with pytest.raises(OutputMissing):
        await open_recall().fetch_output(CALL, output.ref.replace("/0", "/1"))


async def test_an_output_that_cannot_be_read_now_is_not_called_missing(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(request_wait=0.2)
    async with recall.resume(CALL) as call:
        output = await call.keep_output("report", REPORT)

        async def hangs(*_: object) -> str:
            await anyio.sleep_forever()
            raise AssertionError

        for outage in (away, hangs):
            with monkeypatch.context() as patch, anyio.fail_after(5):
                patch.setattr(transport_of(recall), "get_output", outage)
                with pytest.raises(StoreUnavailable):
                    await call.fetch_output(output.ref)
        assert await call.fetch_output(output.ref) == REPORT
    assert not (await open_recall().read(CALL)).outputs[0].missing
