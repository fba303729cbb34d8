"""Errors across the wire: every class of the tree, both ways, and what HTTP itself refuses."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest

from recall_livekit import errors
from recall_livekit.errors import (
    Fenced,
    Gap,
    Held,
    InvalidInput,
    KeyRefused,
    ReadOnly,
    RecallError,
    StoreUnavailable,
)
from recall_livekit.models import RECORD_CHARS
from recall_livekit.problems import (
    Problem,
    error_of,
    problem_of,
    problem_of_status,
    problem_type,
    status_of,
)
from recall_livekit.server import bodies
from recall_livekit.wire import BODY_BYTES, UNIT_RECORDS, UNITS

from .house import House, append, kind, lease, problem, turn, unit

TREE = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, RecallError)
]
SAMPLES: dict[type[RecallError], RecallError] = {
    Held: Held("w7", 3),
    Fenced: Fenced(4, "w8"),
    ReadOnly: ReadOnly(5, "standby"),
    Gap: Gap(6, 9),
}


def sample(error: type[RecallError]) -> RecallError:
    return SAMPLES.get(error) or error("what happened")


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_every_error_comes_back_as_itself_with_all_that_it_carries(
    error: type[RecallError],
) -> None:
    raised = sample(error)
    sent = problem_of(raised).model_dump_json(exclude_none=True)
    back = error_of(Problem.model_validate_json(sent))
    assert type(back) is error
    assert vars(back) == vars(raised)
    assert str(back) == str(raised)


def test_every_error_has_a_type_of_its_own_and_a_status_of_its_kind() -> None:
    assert len({problem_type(error) for error in TREE}) == len(TREE) == len(errors.__all__)
    for error in TREE:
        assert 400 <= status_of(error) < 600


def test_an_error_of_a_later_version_is_told_as_its_base() -> None:
    class Rotten(StoreUnavailable):
        pass

    assert problem_of(Rotten("x")).type == problem_type(StoreUnavailable)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (401, KeyRefused),
        (403, KeyRefused),
        (404, StoreUnavailable),
        (408, StoreUnavailable),
        (409, InvalidInput),
        (413, InvalidInput),
        (415, InvalidInput),
        (429, StoreUnavailable),
        (500, StoreUnavailable),
        (502, StoreUnavailable),
        (503, StoreUnavailable),
    ],
)
def test_a_problem_of_no_known_type_is_told_by_its_status(
    status: int, error: type[RecallError]
) -> None:
    told = error_of(problem_of_status(status, "what it says"))
    assert type(told) is error
    assert "what it says" in str(told)


# --- what a server answers to what it cannot take ---------------------------------------------

anyio = pytest.mark.anyio
SPOKEN = "my-card-4929"


@anyio
async def test_a_path_that_is_none_is_a_problem(admin: httpx.AsyncClient) -> None:
    for path in ("/", "/v1", "/v1/calls/", "/v1/calls/room/", "/v2/calls"):
        told = problem(await admin.get(path))
        assert (told["status"], told["type"]) == (404, "about:blank")


@anyio
async def test_a_method_that_is_none_says_which_are(admin: httpx.AsyncClient) -> None:
    response = await admin.patch("/v1/calls/room")
    assert problem(response)["status"] == 405
    assert response.headers["allow"] == "DELETE, GET"


@anyio
@pytest.mark.parametrize("encoded", ["~", "~abc$", "~YQ", ".hidden", "a%20b", "x" * 129])
async def test_a_call_id_that_no_client_writes_is_refused(
    admin: httpx.AsyncClient, encoded: str
) -> None:
    response = await admin.get(f"/v1/calls/{encoded}")
    assert (response.status_code, kind(response)) == (400, "invalid-call-id")


@anyio
@pytest.mark.parametrize("epoch", ["x", "-1", "1.5", "²", "9" * 17, "0x1", "1_0"])
async def test_an_epoch_that_is_none_is_refused(admin: httpx.AsyncClient, epoch: str) -> None:
    response = await admin.put(f"/v1/calls/room/lease/{epoch}", json={"writer": "w1"})
    assert (response.status_code, kind(response)) == (400, "invalid-input")


@anyio
@pytest.mark.parametrize(
    "query",
    [
        "tokens=0",
        "tokens=many",
        "verdict=1",
        "verdict_run=1",
        "worker=perhaps",
        "caller=" + "x" * 1025,
        "tokens=%ff",
        "&".join(f"a{n}=1" for n in range(40)),
    ],
)
async def test_a_query_outside_its_limits_is_refused(admin: httpx.AsyncClient, query: str) -> None:
    response = await admin.get(f"/v1/calls/room?{query}")
    assert (response.status_code, kind(response)) == (400, "invalid-input")


@anyio
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"writer": "w1"}',
        b'{"writer": "w 1", "attempt": "a", "ttl": 6}',
        b'{"writer": "w1", "attempt": "a", "ttl": 1.9}',
        b'{"writer": "w1", "attempt": "a", "ttl": 6, "tokens": 0}',
        b'{"writer": "w1", "attempt": "a", "ttl": 6, "lock": "mine"}',
        b'{"writer": "w1", "attempt": "a", "ttl": 6, "origin": {"caller": "\\ud800"}}',
        b"[" * 100_000,
    ],
    ids=range(12),
)
async def test_a_body_that_is_not_of_its_form_is_refused(
    admin: httpx.AsyncClient, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    response = await admin.post("/v1/calls/room/lease", content=body, headers=headers)
    assert (response.status_code, kind(response)) == (422, "invalid-record")


@anyio
@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
    ids=["text", "none", "gzip"],
)
async def test_a_body_of_another_kind_is_refused(
    admin: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    body = json.dumps(lease()).encode()
    response = await admin.post("/v1/calls/room/lease", content=body, headers=headers)
    assert problem(response)["status"] == 415


@anyio
async def test_a_body_over_its_size_is_refused_however_it_is_sent(
    admin: httpx.AsyncClient,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES // 65536 + 1):
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    for content in (b" " * (BODY_BYTES + 1), chunks()):
        response = await admin.post("/v1/records", content=content, headers=headers)
        assert problem(response)["status"] == 413
        assert response.headers["connection"] == "close"


@anyio
async def test_a_body_that_says_it_is_too_large_is_not_read(admin: httpx.AsyncClient) -> None:
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b" " * 65536

    headers = {"content-type": "application/json", "content-length": str(BODY_BYTES + 1)}
    response = await admin.post("/v1/records", content=chunks(), headers=headers)
    assert problem(response)["status"] == 413
    assert read <= 1


@anyio
async def test_a_body_that_does_not_arrive_is_not_waited_for(
    admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyio import sleep

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await sleep(30)

    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    headers = {"content-type": "application/json"}
    began = time.monotonic()
    response = await admin.post("/v1/records", content=slow(), headers=headers)
    assert problem(response)["status"] == 408
    assert time.monotonic() - began < 2


@anyio
async def test_a_request_has_limits_of_its_parts(admin: httpx.AsyncClient) -> None:
    many = {"units": [unit(f"call{n}") for n in range(UNITS + 1)]}
    assert kind(await admin.post("/v1/records", json=many)) == "invalid-record"
    assert kind(await admin.post("/v1/records", json={"units": []})) == "invalid-record"
    assert (await admin.post("/v1/calls/room/lease", json=lease())).status_code == 200
    long = unit("room", 1, *[turn("x")] * (UNIT_RECORDS + 1))
    large = unit("room", 1, turn("x" * (2 * RECORD_CHARS)))
    whole = unit("room", 1, turn("x" * (2 * RECORD_CHARS - 300)))
    told = [(await append(admin, one))[0]["problem"] for one in (long, large, whole)]
    assert [bool(one) for one in told] == [True, True, False]
    assert "at most" in told[1]["detail"]


@anyio
@pytest.mark.parametrize(
    "broken",
    [
        {"call_id": "", "writer": "w1", "first": 1, "epoch": 1, "records": [turn()]},
        {"call_id": "x" * 257, "writer": "w1", "first": 1, "epoch": 1, "records": [turn()]},
        {"call_id": "ü" * 200, "writer": "w1", "first": 1, "epoch": 1, "records": [turn()]},
        {"call_id": "b", "writer": "w1", "first": 1, "records": [turn()]},
        {"call_id": "b", "writer": "w1", "first": 1, "epoch": 1, "records": []},
        {"call_id": "b", "writer": "w1", "first": 0, "epoch": 1, "records": [turn()]},
        unit("b", 1, {"kind": "turn", "at": 1.0, "role": "ghost", "content": "x"}),
        unit("b", 1, turn(), provisional={"run": 1, "epoch_read": 0}) | {"epoch": 1},
        "not a unit",
        None,
    ],
    ids=range(10),
)
async def test_a_broken_unit_is_refused_and_the_others_are_not(
    admin: httpx.AsyncClient, broken: object
) -> None:
    await admin.post("/v1/calls/room/lease", json=lease())
    body = {"units": [broken, unit("room")]}
    response = await admin.post("/v1/records", json=body)
    first, second = response.json()["answers"]
    assert first["problem"]["type"].rpartition(":")[2] in ("invalid-record", "invalid-call-id")
    assert second["ack"]["last"] == 1


@anyio
async def test_a_refusal_quotes_nothing_of_what_was_sent(admin: httpx.AsyncClient) -> None:

    pointer = {"kind": "pointer", "at": 1.0, "name": "x", "type": "env", "fields": {SPOKEN: 1}}
    (answer,) = await append(admin, unit("room", 1, pointer))
    responses = [
        json.dumps(answer),
        (await admin.post("/v1/calls/a/lease", json=lease(ttl=SPOKEN))).text,
        (await admin.get("/v1/calls/a", params={"tokens": SPOKEN})).text,
        (await admin.post("/v1/records", json={"units": SPOKEN})).text,
    ]
    for told in responses:
        assert "invalid" in told
        assert SPOKEN not in told


@anyio
async def test_a_fault_is_a_problem_and_its_log_quotes_nothing(
    home: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def faulty(*_: object) -> None:
        raise ZeroDivisionError(SPOKEN)

    monkeypatch.setattr(type(home.namespaces.engine("default")), "append", faulty)
    monkeypatch.setattr(type(home.namespaces.engine("default")), "renew", faulty)
    client = await home.client("agent")
    with caplog.at_level(logging.DEBUG):
        response = await client.put("/v1/calls/room/lease/1", json={"writer": "w1"})
        (answer,) = await append(client, unit("room"))
    assert (response.status_code, kind(response)) == (500, "recall-error")
    assert answer["problem"]["type"].endswith(":recall-error")
    assert "ZeroDivisionError" in caplog.text
    assert "4929" not in caplog.text + response.text + json.dumps(answer)


@anyio
async def test_every_problem_is_counted_by_its_type(admin: httpx.AsyncClient, home: House) -> None:
    await admin.get("/v1/calls/.hidden")
    await append(admin, unit("room"))
    metrics = (await admin.get("/metrics")).text
    assert 'recall_problems_total{type="invalid-call-id"} 1.0' in metrics
    assert 'recall_problems_total{type="fenced"} 1.0' in metrics
    assert 'recall_requests_total{route="read_call",status="400"} 1.0' in metrics
    assert "hidden" not in metrics
    assert "room" not in metrics
