"""POST /v1/records: units of many calls at once, each answered on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import anyio
from pydantic import FailFast, Field, ValidationError

from ..engine.engine import Engine
from ..engine.requests import Ack
from ..errors import InvalidRecord, RecallError, StoreUnavailable, StoreUnusable
from ..models import RECORD_CHARS, Unreadable, Value, WorkingStateUpdate, check_changes
from ..problems import problem_of
from ..wire import UNITS, RecordsAnswer, RecordsRequest, RecordsUnit, UnitAnswer
from .bodies import faults, parsed_body
from .faults import log_fault
from .route import Asked, Nothing
from .state import ServerState

__all__ = ["UNIT_SECONDS", "append"]

UNIT_SECONDS = 1.0
"""How long one unit may take: its call may be stuck, and the others have their answers."""


class _Loose(Value):
    units: Annotated[tuple[Any, ...], FailFast(), Field(min_length=1, max_length=UNITS)]


async def append(asked: Asked[Nothing, RecordsRequest]) -> RecordsAnswer:
    """Append every unit, all at once; what becomes of one is no matter to the others."""
    units = _units(asked.raw)
    answers: dict[int, UnitAnswer] = {}

    async def one(place: int, unit: RecordsUnit | RecallError) -> None:
        answers[place] = await _answered(asked.server, asked.engine, unit)

    async with anyio.create_task_group() as tasks:
        for place, unit in enumerate(units):
            tasks.start_soon(one, place, unit)
    return RecordsAnswer(answers=tuple(answers[place] for place in range(len(units))))


def _units(body: bytes) -> Sequence[RecordsUnit | RecallError]:
    """Return each unit, or why it is none."""
    try:
        units: Sequence[RecordsUnit | RecallError] = RecordsRequest.model_validate_json(body).units
    except ValidationError:
        units = [_unit(value) for value in parsed_body(_Loose, body).units]
    if len(body) <= 2 * RECORD_CHARS:
        return units
    return [_of_size(unit) for unit in units]


def _unit(value: Any) -> RecordsUnit | RecallError:
    try:
        return RecordsUnit.model_validate(value)
    except ValidationError as error:
        return InvalidRecord(faults(error))


def _of_size(unit: RecordsUnit | RecallError) -> RecordsUnit | RecallError:
    if isinstance(unit, RecallError):
        return unit
    for record in unit.records:
        if len(record.model_dump_json()) > 2 * RECORD_CHARS:
            return InvalidRecord(f"a record has at most {2 * RECORD_CHARS} characters")
    return unit


async def _answered(
    server: ServerState, engine: Engine, unit: RecordsUnit | RecallError
) -> UnitAnswer:
    try:
        if isinstance(unit, RecallError):
            raise unit
        with anyio.fail_after(UNIT_SECONDS):
            ack = await _append(engine, unit)
    except TimeoutError:
        return _refused(server, StoreUnavailable("this call does not answer: send it again"))
    except RecallError as error:
        return _refused(server, error)
    except Exception as error:
        log_fault(error, "append")
        return _refused(server, RecallError("a fault of the server: see its log"))
    server.metrics.records.inc(len(unit.records))
    return UnitAnswer(ack=ack)


async def _append(engine: Engine, unit: RecordsUnit) -> Ack:
    if any(isinstance(record, Unreadable) for record in unit.records):
        raise StoreUnusable("this server is older than its client: upgrade it")
    for record in unit.records:
        if isinstance(record, WorkingStateUpdate):
            check_changes(record)
    if unit.provisional is None:
        assert unit.epoch is not None
        return await engine.append(unit.call_id, unit.writer, unit.first, unit.records, unit.epoch)
    return await engine.append_provisional(
        unit.call_id,
        unit.writer,
        unit.first,
        unit.records,
        unit.provisional.run,
        unit.provisional.epoch_read,
    )


def _refused(server: ServerState, error: RecallError) -> UnitAnswer:
    problem = problem_of(error)
    server.metrics.problems.labels(problem.type.rpartition(":")[2]).inc()
    return UnitAnswer(problem=problem)
