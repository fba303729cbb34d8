"""`RecallAgentServer`: a LiveKit worker that watches over the others' calls, and hands its own
over when it has to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, TypedDict, Unpack

from livekit.agents import AgentServer, JobExecutorType, JobProcess, NotGivenOr, WorkerPermissions
from livekit.agents.types import NOT_GIVEN

from ...errors import InvalidSettings
from ...rooms.livekit_rooms import LiveKitRooms
from .draining import Draining, LiveJob
from .watching import WatcherChoice, Watching, ended

__all__ = ["AgentServerOptions", "RecallAgentServer"]

logger = logging.getLogger("recall_livekit")

LOOK_SECONDS = 0.02
STATUS_SECONDS = 0.05
"""How long LiveKit's server takes to learn that this worker is full."""


class AgentServerOptions(TypedDict, total=False):
    """What LiveKit's `AgentServer` takes; passed on as it is."""

    job_executor_type: JobExecutorType
    load_threshold: float
    job_memory_warn_mb: float
    job_memory_limit_mb: float
    drain_timeout: int
    num_idle_processes: int
    shutdown_process_timeout: float
    session_end_timeout: float
    initialize_process_timeout: float
    permissions: WorkerPermissions
    max_retry: int
    ws_url: str | None
    api_key: str | None
    api_secret: str | None
    host: str
    port: int
    http_proxy: NotGivenOr[str | None]
    multiprocessing_context: Literal["spawn", "forkserver"]
    setup_fnc: Callable[[JobProcess], object] | None
    load_fnc: Callable[[AgentServer], float] | Callable[[], float] | None
    preload_modules: list[str] | None
    prometheus_port: int | None
    prometheus_multiproc_dir: str | None
    log_level: str


class RecallAgentServer(AgentServer):
    """LiveKit's `AgentServer` with two things more.

    ::

        server = RecallAgentServer(watcher=True)

    It **hands over**: on SIGTERM each live call of a `RecallAgent` is given to another worker at
    the end of a sentence, instead of being waited for, which may take an hour and ends in SIGKILL
    on Kubernetes. It needs another worker of the same agent name; a call that nobody takes is
    kept, and tried again, until LiveKit's `drain_timeout`. A second SIGTERM ends the worker at
    once, as LiveKit has it: its jobs then hand over on their way out.

    It **watches**: the watcher runs in the worker's main process, which outlives its jobs, for as
    long as the worker takes jobs.
    """

    def __init__(
        self,
        *,
        drain: Literal["handover", "wait"] = "handover",
        watcher: WatcherChoice = False,
        **options: Unpack[AgentServerOptions],
    ) -> None:
        """Begin nothing yet.

        Args:
            drain: What a worker that leaves does with its live calls: "handover", or "wait" for
                their ends as LiveKit does.
            watcher: Whether this worker watches over the calls of all workers: True, with
                `Recall.open()`; or what a `Watcher` takes, as a mapping (`WatcherOptions`); or a
                `Watcher`, or a function that makes one, called once the worker runs.
            options: As in LiveKit's `AgentServer`.

        Raises:
            InvalidSettings: `drain` or `watcher` is none of these, or the watcher's options do not
                fit together.
        """
        if drain not in ("handover", "wait"):
            raise InvalidSettings(f'drain is "handover" or "wait", not {drain!r}')
        super().__init__(**options)
        self._recall_drain = drain
        self._recall_livekit = (
            options.get("ws_url"),
            options.get("api_key"),
            options.get("api_secret"),
        )
        self._recall_watching = Watching(watcher, self._rooms)
        self._recall_handing: asyncio.Task[None] | None = None
        self.on("worker_started", self._recall_watching.begin)

    async def drain(self, timeout: NotGivenOr[int | None] = NOT_GIVEN) -> None:
        """Take no more jobs, hand the live calls over, and return when no job is left.

        Raises:
            TimeoutError: `timeout` seconds (default: `drain_timeout`) were not enough.
        """
        # other workers watch on, and see this one's calls too
        ending = asyncio.create_task(self._recall_watching.end(), name="recall watcher ends")
        if self._recall_drain == "handover" and self._recall_handing is None:
            self._recall_handing = asyncio.create_task(self._hand_over(), name="recall draining")
        try:
            await super().drain(timeout)
        finally:
            await ending
            await ended(self._recall_handing)

    async def aclose(self) -> None:
        """End the watcher, and everything of LiveKit's."""
        await self._recall_watching.end()
        await ended(self._recall_handing)
        await super().aclose()

    # --- handing over -------------------------------------------------------------------------

    async def _hand_over(self) -> None:
        try:
            while not self.draining:  # noqa: ASYNC110  nobody is told when it begins
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(STATUS_SECONDS)
            await self._hand_over_jobs()
        except Exception:
            logger.exception("the calls of this worker cannot be handed over: they are waited for")

    async def _hand_over_jobs(self) -> None:
        try:
            rooms = self._rooms()
        except InvalidSettings as error:
            logger.warning("the calls of this worker are waited for, not handed over: %s", error)
            return
        logger.info("handing over the calls of %d jobs", len(self._live_jobs()))
        try:
            await Draining(rooms, self._live_jobs).run()
        finally:
            await rooms.aclose()

    def _rooms(self) -> LiveKitRooms:
        """The worker's own server: what it was given, else the environment's, as LiveKit does."""
        return LiveKitRooms(*self._recall_livekit)

    def _live_jobs(self) -> list[LiveJob]:
        return [LiveJob.of(job) for job in self.active_jobs if not job.fake_job]
