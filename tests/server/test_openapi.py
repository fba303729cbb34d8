"""What OpenAPI promises, the server keeps: asked with what fits and what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import anyio
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks

from recall_livekit.errors import RecallError
from recall_livekit.problems import problem_type
from recall_livekit.server.keys import open_keys
from recall_livekit.server.openapi import described
from recall_livekit.server.options import ServeOptions
from recall_livekit.server.route import Nothing
from recall_livekit.server.routes import ROUTES
from recall_livekit.server.serve import Listening, serve

DESCRIPTION = json.loads(described(ROUTES, "0"))
GOOD = ["2xx", "401", "403", "404", "409", "410", "503"]
"""What a request that fits may be answered: the call may be held, erased, or at another epoch, and
the output not there."""
CONFIG = {
    "seed": 20260,
    "checks": {"positive_data_acceptance": {"expected-statuses": GOOD}},
}
BEYOND_A_SCHEMA = ("not an encoded call id", "give both ")
"""What makes a request unfit that JSON Schema has no words for: canonical base64url, and two
parameters that go together."""
EVENTS = "/v1/events"
"""It has no end: its lines are held against the description in a test of its own."""
schema = schemathesis.openapi.from_dict(
    DESCRIPTION, config=schemathesis.Config.from_dict(CONFIG)
).exclude(path=EVENTS)


class Server:
    """A server in a thread, and a key of it."""

    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory}"
        self.key = anyio.run(self._key)
        told: Queue[Listening] = Queue()
        self._thread = Thread(target=lambda: anyio.run(self._serve, told))
        self._thread.start()
        self.listening = told.get(timeout=30)

    async def _key(self) -> str:
        keys = open_keys(self.url)
        made = await keys.create("default", "admin", "x")
        await keys.aclose()
        return made.key

    async def _serve(self, told: Queue[Listening]) -> None:
        options = ServeOptions(store_url=self.url, port=0, drain_wait=2.0)
        await serve(options, listening=told.put)

    def close(self) -> None:
        self.listening.stop()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("openapi") / "records")
    yield one
    one.close()


@pytest.fixture(scope="module")
def session(server: Server) -> Iterator[requests.Session]:
    with requests.Session() as one:
        one.headers["Authorization"] = f"Bearer {server.key}"
        yield one


def excluded(case: schemathesis.Case[Any], text: str) -> list[Any]:
    """What does not hold here, for a reason that is not a fault."""
    found: list[Any] = []
    if any(words in text for words in BEYOND_A_SCHEMA):
        found.append(checks.positive_data_acceptance)
    known = {query.name for query in case.operation.query}
    ignored = set(case.query or ()) - known  # what a reader does not know, it ignores
    if ignored or case.operation.path == "/v1/records":  # a broken unit is refused, no other
        found.append(checks.negative_data_rejection)
    return found


@schema.parametrize()
@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(
    case: schemathesis.Case[Any], server: Server, session: requests.Session
) -> None:
    response = case.call(base_url=server.listening.url, session=session, timeout=10)
    case.validate_response(response, excluded_checks=excluded(case, response.text))


def test_the_lines_of_the_events_are_as_described(
    server: Server, session: requests.Session
) -> None:
    content = DESCRIPTION["paths"][EVENTS]["get"]["responses"]["200"]["content"]
    described_line = {
        **content["application/x-ndjson"]["schema"],
        "components": DESCRIPTION["components"],
    }
    url = server.listening.url + EVENTS
    with session.get(url, stream=True, timeout=10) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = response.iter_lines()
        first = [json.loads(next(lines))]
        lease: dict[str, str | float] = {"writer": "w1", "attempt": "a1", "ttl": 2.0}
        session.post(f"{server.listening.url}/v1/calls/told/lease", json=lease, timeout=10)
        told = first + [json.loads(next(lines)) for _ in range(3)]
    assert {"missed", "taken", "alive"} == {line["event"] for line in told}
    for line in told:
        jsonschema_rs.validate(described_line, line)
    assert not jsonschema_rs.is_valid(described_line, {"event": "asleep"}), "it describes nothing"
    assert requests.get(url, timeout=10).status_code == 401


def test_every_route_is_described_with_all_that_it_may_answer() -> None:
    for route in ROUTES:
        told: dict[str, Any] = DESCRIPTION["paths"][route.path][route.method.lower()]
        assert told["operationId"] == route.name
        assert ("requestBody" in told) == (route.body is not Nothing)
        assert ("security" in told) == (route.role is not None)
        texts = " ".join(answer["description"] for answer in told["responses"].values())
        raised: tuple[type[RecallError], ...] = (RecallError, *route.raises)
        assert all(problem_type(error) in texts for error in raised)
        content = told["responses"][str(route.status)].get("content", {})
        assert list(content) == ([route.media] if route.answer is not None else [])


def test_every_name_that_is_referred_to_is_there() -> None:
    text = json.dumps(DESCRIPTION)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(DESCRIPTION["components"]["schemas"])
    assert {"RecordsRequest", "Reading", "StreamEvent", "Problem"} <= names
    assert not {"Nothing", "ReadQuery"} & set(DESCRIPTION["components"]["schemas"])


def test_a_parameter_is_described_with_its_limits() -> None:
    told = DESCRIPTION["paths"]["/v1/calls/{call_id}"]["get"]["parameters"]
    tokens = next(parameter for parameter in told if parameter["name"] == "tokens")["schema"]
    assert (tokens["type"], tokens["minimum"], tokens["maximum"]) == ("integer", 1, 1_000_000)


def test_the_description_is_served(server: Server, session: requests.Session) -> None:
    served = session.get(f"{server.listening.url}/openapi.json", timeout=10).json()
    assert served["paths"] == DESCRIPTION["paths"]
