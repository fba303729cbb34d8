"""``watch``: a watcher in a process of its own, from the first look to handing over its lease."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..call_ids import WATCHER_CALL_ID
from ..client import Recall
from ..errors import Fenced, InvalidSettings, RoomsUnavailable, StoreUnavailable
from ..rooms.address import cloud_host
from ..rooms.livekit_rooms import LiveKitRooms, Room
from ..rooms.orders import StandbyKind
from ..server.sockets import listening_socket, url_of
from ..watcher.endpoint import WEBHOOK_PATH, Endpoint
from ..watcher.metrics import WatcherMetrics
from ..watcher.watcher import Watcher
from ..watcher.webhooks import Webhooks
from .codes import DONE, Failed
from .livekit_server import check_livekit_url, missing_variables, refuses_key
from .logs import log_to_stderr
from .opening import address, described, directory_of
from .running import finish
from .serving import listen_at
from .texts import public_url

__all__ = ["Watch", "watch"]

logger = logging.getLogger("recall_livekit.watcher")

LEAVE_SECONDS = 0.9
"""Whoever is told to leave is gone after so long, its lease handed over or not: it lapses soon."""
FIRST_LOOK_SECONDS = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOBODY = "0" * 16
"""A writer that no worker is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was asked for."""

    livekit_url: str | None
    url: str | None
    agent_name: str | None = None
    serve_rooms: tuple[str, ...] = ()
    standby: StandbyKind | None = None
    fallback_agent: str | None = None
    listen: str | None = None
    cloud: bool = False


def watch(asked: Watch, *, as_json: bool, level: str) -> None:
    """Watch until told to leave.

    Raises:
        typer.Exit: Always.
    """
    log_to_stderr(level, as_json=as_json)
    finish(lambda: asyncio.run(_until_told(_watch(asked))))


# --- leaving ------------------------------------------------------------------------------------


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until SIGTERM or SIGINT, and for `LEAVE_SECONDS` longer at most."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    told = threading.Event()

    def leave() -> None:
        told.set()
        with suppress(RuntimeError):  # the loop is closed: the work has just ended by itself
            loop.call_soon_threadsafe(task.cancel)

    # Every thread that is begun from here on leaves these signals to the one that waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    threading.Thread(target=_when_told, args=(leave,), daemon=True).start()
    try:
        await task
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        logger.info("left, as it was told")


def _when_told(leave: Callable[[], None]) -> None:
    """Wait for a signal in a thread of its own: a store or an event loop that hangs keeps nobody
    from leaving."""
    signal.sigwait(_SIGNALS)
    leave()
    time.sleep(LEAVE_SECONDS)
    logger.warning("left, as it was told; something hung: its lease lapses by itself")
    os._exit(DONE)


# --- watching -----------------------------------------------------------------------------------


async def _watch(asked: Watch) -> None:
    livekit_url = _livekit(asked)
    async with AsyncExitStack() as stack:
        recall = await stack.enter_async_context(Recall.open(address(asked.url), spool=False))
        rooms, webhooks = LiveKitRooms(livekit_url), Webhooks()
        stack.push_async_callback(rooms.aclose)
        watcher = _watcher(asked, recall, rooms, webhooks)
        figures = WatcherMetrics(watcher.counts, webhooks.outcomes)
        beginning = ["it has just begun"]
        endpoint = Endpoint(watcher.webhook, lambda: watcher.lacks + beginning, figures.text)
        at = await stack.enter_async_context(_listening(asked, endpoint))
        _say(asked, livekit_url, at)
        await _first_look(rooms, recall)
        beginning.clear()
        await watcher.run()


def _watcher(asked: Watch, recall: Recall, rooms: LiveKitRooms, webhooks: Webhooks) -> Watcher:
    if asked.serve_rooms and asked.agent_name is None:
        raise InvalidSettings(
            "--serve-rooms: say which agent they must have, with --agent-name NAME "
            '("" for agents without a name)'
        )
    return Watcher(
        recall,
        rooms=rooms,
        agent_name=asked.agent_name,
        serve_rooms=_served(asked.serve_rooms),
        standby=asked.standby,
        fallback_agent=asked.fallback_agent,
        webhooks=webhooks,
    )


def _livekit(asked: Watch) -> str:
    """Return the address of LiveKit's server, if all that is needed to watch it is there.

    Raises:
        InvalidSettings: It is not; or it is LiveKit Cloud.
    """
    given = {"LIVEKIT_URL": asked.livekit_url} if asked.livekit_url else {}
    missing = missing_variables(os.environ | given)
    if missing:
        raise InvalidSettings(
            f"which LiveKit server? set {' and '.join(missing)}, as for a worker "
            "(the key is never an option: others would see it)"
        )
    url = check_livekit_url(given.get("LIVEKIT_URL") or os.environ["LIVEKIT_URL"])
    host = cloud_host(url)
    if host is not None and not asked.cloud:
        raise InvalidSettings(
            f"{host} is LiveKit Cloud, which starts the job of a dead agent again by itself: a "
            "watcher would bring a second agent. It is for servers of your own; give --cloud if "
            "your jobs are not started again (restart policy JRP_NEVER)"
        )
    return url


def _served(globs: tuple[str, ...]) -> Callable[[Room], bool] | None:
    if not globs:
        return None
    return lambda room: any(fnmatchcase(room.name, glob) for glob in globs)


@asynccontextmanager
async def _listening(asked: Watch, endpoint: Endpoint) -> AsyncIterator[str | None]:
    """Answer HTTP, if somebody wants it; yield where."""
    if asked.listen is None:
        yield None
        return
    with listening_socket(*listen_at(asked.listen)) as bound:
        async with endpoint.listening(bound):
            yield url_of(bound)


def _say(asked: Watch, livekit_url: str, at: str | None) -> None:
    """Say what is watched, and by what."""
    url = address(asked.url)
    told = [f"watching {public_url(livekit_url)}", f"records in {described(url)}"]
    if asked.serve_rooms:
        told.append(f"agent {asked.agent_name!r} in rooms {', '.join(asked.serve_rooms)}")
    if asked.standby:
        told.append(f"standby {asked.standby}")
    if asked.fallback_agent:
        told.append(f"fallback agent {asked.fallback_agent!r}")
    told.append(f"webhooks at {at}{WEBHOOK_PATH}" if at else "no webhooks (--listen)")
    logger.info("%s", "; ".join(told))
    directory = directory_of(url)
    if directory is not None and not (directory / "calls").is_dir():
        logger.warning("nothing is recorded in %s yet: do the workers record there?", directory)


async def _first_look(rooms: LiveKitRooms, recall: Recall) -> None:
    """Find out whether both servers take the keys. What does not answer is the watcher's business,
    which tries it until it does.

    Raises:
        Failed, KeyRefused, StoreUnusable: It cannot work.
    """
    with suppress(TimeoutError, StoreUnavailable, Fenced):
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            # Refused to nobody, and nothing is written; but first the key must be of role agent.
            await recall._transport.renew(WATCHER_CALL_ID, NOBODY, 1)
    try:
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            await rooms.rooms([WATCHER_CALL_ID])
    except TimeoutError:
        return
    except RoomsUnavailable as error:
        if refuses_key(error):
            raise Failed(
                "LiveKit's server refuses the key: are LIVEKIT_API_KEY and LIVEKIT_API_SECRET "
                "of its `keys:`, and is this clock right?"
            ) from error
