"""Every route, asked as a worker asks it."""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
import pytest

from recall_livekit.call_ids import encode_call_id
from recall_livekit.wire import TURNS

from .house import House, append, kind, lease, problem, turn, unit

pytestmark = pytest.mark.anyio


async def held(client: httpx.AsyncClient, call: str = "room", **more: Any) -> int:
    response = await client.post(f"/v1/calls/{call}/lease", json=lease(**more))
    assert response.status_code == 200, response.text
    return int(response.json()["epoch"])


async def test_a_call_is_held_recorded_read_and_released(admin: httpx.AsyncClient) -> None:
    grant = (await admin.post("/v1/calls/room/lease", json=lease())).json()
    assert (grant["epoch"], grant["run"], grant["resumed"]) == (1, 1, False)
    assert await append(admin, unit("room", 1, turn("my order is 4711"))) == [
        {"ack": {"last": 1, "position": 3}, "problem": None}
    ]
    renewed = await admin.put("/v1/calls/room/lease/1", json={"writer": "w1"})
    assert (renewed.status_code, renewed.content) == (204, b"")
    response = await admin.get("/v1/calls/room")
    assert response.headers["etag"] == 'W/"3"'
    reading = response.json()
    assert (reading["position"], reading["epoch"], reading["holder"]) == (3, 1, "w1")
    assert reading["liveness"] == "live"
    assert "my order is 4711" in reading["briefing"]["text"]
    released = await admin.post("/v1/calls/room/lease/1/release", json={"writer": "w1"})
    assert released.status_code == 204
    assert (await admin.get("/v1/calls/room")).json()["liveness"] == "free"


async def test_the_same_attempt_has_the_same_grant(admin: httpx.AsyncClient) -> None:
    first = (await admin.post("/v1/calls/room/lease", json=lease())).json()
    assert (await admin.post("/v1/calls/room/lease", json=lease())).json()["epoch"] == 1
    assert first["epoch"] == 1


async def test_a_held_call_says_who_has_it(admin: httpx.AsyncClient) -> None:
    await held(admin)
    response = await admin.post("/v1/calls/room/lease", json=lease("w2", attempt="a2"))
    told = problem(response)
    assert (told["status"], told["holder"], told["epoch"]) == (409, "w1", 1)
    assert kind(response) == "held"


async def test_a_writer_whose_call_was_taken_is_fenced(admin: httpx.AsyncClient) -> None:
    await held(admin)
    await held(admin, writer="w2", attempt="a2", steal=True)
    for response in (
        await admin.put("/v1/calls/room/lease/1", json={"writer": "w1"}),
        await admin.post("/v1/calls/room/lease/1/release", json={"writer": "w1"}),
    ):
        told = problem(response)
        assert (kind(response), told["epoch"], told["holder"]) == ("fenced", 2, "w2")
    (answer,) = await append(admin, unit("room"))
    assert answer["ack"] is None
    assert answer["problem"]["type"].endswith(":fenced")
    assert answer["problem"]["holder"] == "w2"


async def test_units_are_answered_each_on_its_own(admin: httpx.AsyncClient) -> None:
    for call in ("one", "two"):
        await held(admin, call)
    answers = await append(
        admin,
        unit("one"),
        unit("two", 5),
        unit("never", provisional={"run": 7, "epoch_read": 0}),
        unit("one", 2),
    )
    assert [bool(answer["ack"]) for answer in answers] == [True, False, False, True]
    gap = answers[1]["problem"]
    assert (gap["type"].rpartition(":")[2], gap["expected"], gap["got"]) == ("gap", 1, 5)
    assert answers[2]["problem"]["type"].endswith(":unknown-run")


async def test_a_unit_sent_again_is_answered_as_done(admin: httpx.AsyncClient) -> None:
    await held(admin)
    before = await append(admin, unit("room"))
    assert (await append(admin, unit("room")))[0]["ack"]["last"] == before[0]["ack"]["last"]
    assert (await admin.get("/v1/calls/room/turns")).json()["turns"][0]["content"] == "said 1"
    assert len((await admin.get("/v1/calls/room/turns")).json()["turns"]) == 1


async def test_provisional_records_go_to_the_run_that_was_opened(admin: httpx.AsyncClient) -> None:
    run = (await admin.post("/v1/calls/room/runs", json=lease())).json()
    assert run == {"run": 1}
    provisional = {"run": 1, "epoch_read": 0}
    (answer,) = await append(admin, unit("room", 1, turn("early"), provisional=provisional))
    assert answer["ack"]["last"] == 1
    assert (await admin.get("/v1/calls/room/turns")).json()["turns"][0]["content"] == "early"


async def test_partials_are_shown_until_they_are_said(admin: httpx.AsyncClient) -> None:
    partial = {"role": "user", "text": "I would li", "at": 1.0, "after": 1}
    body = {"writer": "w1", "run": 1, "partials": [partial]}
    await held(admin)
    await append(admin, unit("room"))
    written = await admin.put("/v1/calls/room/partials", json=body)
    assert written.json() == {"written": True}
    reading = (await admin.get("/v1/calls/room")).json()
    assert [p["text"] for p in reading["briefing"]["partials"]] == ["I would li"]
    unknown = await admin.put("/v1/calls/other/partials", json=body)
    assert unknown.json() == {"written": False}


async def test_an_output_is_kept_once_and_fetched_by_its_ref(admin: httpx.AsyncClient) -> None:
    body = {"writer": "w1", "counter": 0, "text": "a long report"}
    early = await admin.put("/v1/calls/room/outputs", json=body)
    assert (early.status_code, early.json()) == (200, {"ref": None})
    await held(admin)
    for _ in range(2):
        kept = await admin.put("/v1/calls/room/outputs", json=body)
        assert kept.json() == {"ref": "0/0"}
    told = await admin.get("/v1/calls/room/outputs/0/0")
    assert told.json() == {"ref": "0/0", "text": "a long report"}
    missing = await admin.get("/v1/calls/room/outputs/0/1")
    assert (missing.status_code, kind(missing)) == (404, "output-missing")
    no_ref = await admin.get("/v1/calls/room/outputs/0/x")
    assert (no_ref.status_code, kind(no_ref)) == (400, "invalid-input")
    assert (await admin.delete("/v1/calls/room")).status_code == 204
    gone = await admin.get("/v1/calls/room/outputs/0/0")
    assert (gone.status_code, kind(gone)) == (404, "output-missing")
    late = await admin.put("/v1/calls/room/outputs", json={**body, "counter": 1})
    assert (late.status_code, kind(late)) == (410, "erased")


async def test_an_output_is_of_any_text_up_to_its_size(admin: httpx.AsyncClient) -> None:
    await held(admin)
    mebi = 1024 * 1024
    texts = ["", '"' * mebi, "{[" * (mebi // 2), "\0" * 600_000, "\u00e4" * (mebi // 2)]
    for counter, text in enumerate(texts):
        body = {"writer": "w1", "counter": counter, "text": text}
        kept = await admin.put("/v1/calls/room/outputs", json=body)
        assert kept.status_code == 200, kept.text[:200]
        told = await admin.get(f"/v1/calls/room/outputs/{kept.json()['ref']}")
        assert told.json()["text"] == text
    for text in ("x" * (mebi + 1), "\u00e4" * (mebi // 2 + 1)):
        body = {"writer": "w1", "counter": 9, "text": text}
        refused = await admin.put("/v1/calls/room/outputs", json=body)
        assert (refused.status_code, kind(refused)) == (422, "invalid-record")
        assert text[:9] not in refused.text


async def test_turns_come_in_pages_from_their_end(admin: httpx.AsyncClient) -> None:
    await held(admin)
    await append(admin, unit("room", 1, *(turn(f"turn {n}") for n in range(1, 8))))
    page = (await admin.get("/v1/calls/room/turns", params={"limit": 3})).json()
    assert [t["content"] for t in page["turns"]] == ["turn 5", "turn 6", "turn 7"]
    assert page["more"]
    query = {"limit": 4, "before": page["turns"][0]["seq"]}
    page = (await admin.get("/v1/calls/room/turns", params=query)).json()
    assert [t["content"] for t in page["turns"]] == ["turn 1", "turn 2", "turn 3", "turn 4"]
    assert not page["more"]


async def test_a_page_of_long_turns_or_entries_is_cut_short(admin: httpx.AsyncClient) -> None:
    await held(admin)
    for number in range(1, 10):
        text = f"{number}" + "x" * 500_000
        assert (await append(admin, unit("room", number, turn(text))))[0]["ack"]
    page = (await admin.get("/v1/calls/room/turns", params={"limit": TURNS})).json()
    assert page["more"]
    assert [t["content"][0] for t in page["turns"]] == list("23456789")
    page = (await admin.get("/v1/calls/room/entries", params={"start": 2})).json()
    assert 1 <= len(page["entries"]) < 9
    rest = (await admin.get("/v1/calls/room/entries", params={"start": 10})).json()
    assert [e["first"] for e in rest["entries"]] == [9]


async def test_entries_are_the_chain_as_it_is(admin: httpx.AsyncClient) -> None:
    await held(admin)
    await append(admin, unit("room"))
    page = (await admin.get("/v1/calls/room/entries", params={"start": 1, "limit": 2})).json()
    assert page["start"] == 1
    assert [entry["kind"] for entry in page["entries"]] == ["lease", "records"]
    end = (await admin.get("/v1/calls/room/entries", params={"start": 3})).json()
    assert end == {"start": 3, "entries": []}


async def test_what_a_worker_is_shown_depends_on_where_it_comes_from(
    admin: httpx.AsyncClient,
) -> None:
    await held(admin, origin={"room_sid": "RM_1", "caller": "ada"})
    await append(admin, unit("room"))

    async def run(**query: Any) -> int:
        reading = (await admin.get("/v1/calls/room", params=query)).json()
        return int(reading["run"])

    assert await run() == 1
    assert await run(worker=1) == 1
    assert await run(room_sid="RM_1") == 1
    assert await run(room_sid="RM_2", caller="bob") == 0
    assert await run(room_sid="RM_2", caller="ada") == 1
    assert await run(room_sid="RM_2", caller="bob", verdict_run=1, verdict=True) == 1
    assert await run(room_sid="RM_2", caller="ada", verdict_run=1, verdict=False) == 0


async def test_the_briefing_keeps_to_the_tokens_asked_for(admin: httpx.AsyncClient) -> None:
    await held(admin)
    await append(admin, unit("room", 1, *(turn("word " * 50) for _ in range(20))))
    short = (await admin.get("/v1/calls/room", params={"tokens": 200})).json()["briefing"]
    long = (await admin.get("/v1/calls/room")).json()["briefing"]
    assert 0 < short["tokens"] <= 200 < long["tokens"]


async def test_the_list_says_how_every_call_stands(admin: httpx.AsyncClient) -> None:
    for call in ("live", "ended", "left", "lapsed"):
        await held(admin, call)
    for call, outcome in (("ended", "ended"), ("left", "left"), ("lapsed", "handover")):
        body = {"writer": "w1", "outcome": outcome}
        await admin.post(f"/v1/calls/{call}/lease/1/release", json=body)

    async def states(**query: str) -> dict[str, str]:
        response = await admin.get("/v1/calls", params=query)
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in response.text.splitlines()]
        return {line["call_id"]: line["state"] for line in lines}

    everything = {name: name for name in ("live", "ended", "left", "lapsed")}
    assert await states() == everything
    for state in everything:
        assert await states(state=state) == {state: state}
    assert await states(state="erased") == {}


async def test_erasing_leaves_nothing_and_the_room_does_not_come_back(
    admin: httpx.AsyncClient, home: House
) -> None:
    await held(admin, origin={"room_sid": "RM_1"})
    await append(admin, unit("room", 1, turn("the card is 4929")))
    assert (await admin.delete("/v1/calls/room")).status_code == 204
    assert (await admin.get("/v1/calls/room/turns")).json()["turns"] == []
    again = await admin.post(
        "/v1/calls/room/lease",
        json=lease("w2", attempt="a2", origin={"room_sid": "RM_1"}, read_position=9),
    )
    assert (again.status_code, kind(again)) == (410, "erased")
    assert (await admin.delete("/v1/calls/never-was")).status_code == 204


@pytest.mark.parametrize("call", ["Kitchen 7", "a/b", "Grüße", "..", "~x", "%2e", "x" * 256])
async def test_any_room_name_is_a_call(admin: httpx.AsyncClient, call: str) -> None:
    await held(admin, encode_call_id(call))
    assert (await append(admin, unit(call)))[0]["ack"]
    reading = (await admin.get(f"/v1/calls/{encode_call_id(call)}")).json()
    assert reading["briefing"]["call_id"] == call


async def test_fields_that_the_server_does_not_know_are_ignored(admin: httpx.AsyncClient) -> None:
    body = lease(colour="green", origin={"room_sid": "RM_1", "floor": 3})
    assert (await admin.post("/v1/calls/room/lease", json=body)).status_code == 200
    known = unit("room", 1, {**turn(), "mood": "glad"}, urgent=True)
    request = {"units": [known], "compressed": False}
    response = await admin.post("/v1/records", json=request, params={"trace": "1"})
    assert response.json()["answers"][0]["ack"]["last"] == 1
    assert (await admin.get("/v1/calls/room", params={"colour": "green"})).status_code == 200
    entries = (await admin.get("/v1/calls/room/entries")).json()["entries"]
    assert "mood" not in json.dumps(entries)


@pytest.mark.parametrize("newer", [{"kind": "song", "at": 1.0}, {**turn(), "v": 2}])
async def test_a_record_newer_than_the_server_is_left_with_the_client(
    admin: httpx.AsyncClient, newer: dict[str, object]
) -> None:
    for call in ("room", "other"):
        await held(admin, call)
    newer_answer, answer = await append(admin, unit("room", 1, turn(), newer), unit("other"))
    assert newer_answer["problem"]["type"].endswith(":store-unusable")
    assert "upgrade" in newer_answer["problem"]["detail"]
    assert answer["ack"]
    assert (await admin.get("/v1/calls/room")).json()["position"] == 2


async def test_a_lease_is_counted_as_taken_over_only_from_another(
    admin: httpx.AsyncClient, home: House
) -> None:
    async def counted(name: str) -> float:
        value = home.server.metrics.registry.get_sample_value(name)
        assert value is not None
        return value

    await held(admin)
    await held(admin)
    assert await counted("recall_leases_taken_over_total") == 0
    await held(admin, writer="w2", attempt="a2", steal=True)
    assert await counted("recall_leases_taken_over_total") == 1
    await append(admin, unit("room", 1, turn(), turn(), writer="w2", epoch=2))
    assert await counted("recall_records_appended_total") == 2
    assert await counted("recall_leases_granted_total") == 3
