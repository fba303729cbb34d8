"""Retention: calls that were not heard of for longer than they are kept are erased."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..call_ids import is_reserved
from ..engine.engine import Engine
from ..errors import RecallError
from ..stores.keys import call_key
from .faults import log_fault
from .state import ServerState

__all__ = ["SWEEP_SECONDS", "keep_retention", "sweep"]

logger = logging.getLogger("recall_livekit.server")

SWEEP_SECONDS = 3600.0
"""The pause between two sweeps, and half to all of it before the first: replicas on one store
do not all begin at once."""
BATCH = 50
"""So many calls are erased, then requests have the store to themselves for a while."""
BATCH_PAUSE = 1.0


async def keep_retention(server: ServerState, retain: Mapping[str, float]) -> None:
    """Sweep every namespace of `retain` again and again. Never returns."""
    while True:
        await server.clock.sleep(server.clock.jitter(SWEEP_SECONDS))
        for namespace, seconds in retain.items():
            try:
                await sweep(server, namespace, seconds)
            except RecallError as error:
                logger.warning("retention of %s: not finished: %s", namespace, error)
            except Exception as error:
                log_fault(error, f"retention of {namespace}")


async def sweep(server: ServerState, namespace: str, seconds: float) -> int:
    """Erase the namespace's calls that were not heard of for `seconds`; return how many.

    Recall's own chains are erased likewise, and not counted. A call that cannot be erased now is
    left to the next sweep.

    Raises:
        StoreError: The calls could not be listed to the end.
    """
    engine = server.namespaces.engine(namespace)
    erased = failed = 0
    async for call in engine.calls(reserved=True):
        try:
            done = await _retire(engine, call, server.clock.now() - seconds)
        except RecallError as error:
            logger.warning("call %s: not erased: %s", call_key(call), error)
            failed += 1
            continue
        if done and not is_reserved(call):
            erased += 1
            server.metrics.retired.inc()
            if erased % BATCH == 0:
                await server.clock.sleep(BATCH_PAUSE)
    logger.info("retention of %s: %d calls erased, %d failed", namespace, erased, failed)
    return erased


async def _retire(engine: Engine, call: str, before: float) -> bool:
    """Erase the call if nobody has it and it was last heard of before `before`."""
    found = await engine.summary(call)
    if found.state == "erased":
        await engine.finish_erasure(call)  # who meets one unfinished finishes it (rule 13)
        return False
    if found.state == "live" or not 0 < found.seen_at < before:
        return False
    await engine.erase(call)
    return True
