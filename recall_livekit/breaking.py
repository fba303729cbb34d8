"""Breaking a lease: it is taken from a holder that was found frozen, and given back at once."""

from __future__ import annotations

from contextlib import suppress

from .engine.requests import Acquire
from .errors import Erased, Fenced, Held
from .transport import Transport

__all__ = ["BREAKER_TTL", "break_lease", "breaker_of"]

BREAKER_TTL = 2.0
"""Seconds for which the call is nobody's, if who breaks its lease dies over it."""


def breaker_of(epoch: int) -> str:
    """Return the writer that breaks this epoch. All who do so are one: the lease is broken once,
    and whoever repeats it finishes what another one began (rule 8)."""
    return f"break-{epoch}"


async def break_lease(
    transport: Transport, call_id: str, epoch: int, read_position: int | None = None
) -> bool:
    """See `Recall.break_lease`. `read_position` is where the read ended that told of this epoch,
    which spares another one."""
    if read_position is None:
        read_position = (await transport.read(call_id)).position
    writer = breaker_of(epoch)
    request = Acquire(
        writer=writer,
        attempt=writer,
        ttl=BREAKER_TTL,
        steal_epoch=epoch,
        read_position=read_position,
    )
    try:
        grant = await transport.acquire(call_id, request)
    except (Held, Fenced, Erased):
        return False
    with suppress(Fenced):  # somebody has taken it since: broken it is all the same
        await transport.release(call_id, writer, grant.epoch, "handover")
    return True
