"""The spool of one process: a directory that its calls write to, and that somebody drains.

What a worker could not store waits there until any process of this machine can store it: the call
itself, the next worker of the call before its first read, a drainer in the background, or the
command `recall-livekit spool drain`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio

from ..errors import Erased, Gap, Held, InvalidInput, RecallError, StoreError, UnknownRun
from ..seams import Clock
from ..settings import Settings
from ..stores.keys import call_key
from ..transport import Transport
from .directory import FileDisk
from .disk import ASIDE, SUFFIX, Disk, SpoolFile
from .draining import Draining
from .format import Contents, Header, NewerSpool, NotASpool, read_contents

__all__ = ["DrainOutcome", "Drained", "Spool", "place_tag"]

logger = logging.getLogger("recall_livekit")

HELD_EVERY = 0.01
"""Seconds between two looks at a file that another drains."""
UNREACHABLE = 3
"""After so many files in a row that could not be sent, a round ends: so could the others not."""

DrainOutcome = Literal["drained", "erased", "waits", "aside", "newer", "held"]
"""All is stored; deleted, because its call was erased; for the next time; set aside for a person;
left to a newer version; a living process has it, or had."""


@dataclass(frozen=True, slots=True)
class Drained:
    """How one file went: `records` are known to be stored, `missing` were damaged on the disk."""

    name: str
    outcome: DrainOutcome
    records: int = 0
    missing: int = 0
    why: str = ""


def place_tag(address: str) -> str:
    """Return the short name of the place that a spool drains into, and no other."""
    return hashlib.sha256(address.encode()).hexdigest()[:12]


class Spool:
    """Share one between the calls of a process, as the transport is."""

    def __init__(
        self,
        disk: Disk,
        address: str,
        transport: Transport,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """Use a disk of your own; `open` uses the machine's. Nothing is read or written yet."""
        self.transport = transport
        self.clock = clock
        self.settings = settings
        self.tag = place_tag(address)
        self.drained = 0
        """How many records of files that were left behind are stored by now."""
        self.aside = 0
        """How many files were set aside."""
        self._disk = disk
        self._told: set[str] = set()
        self._wake = anyio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        address: str,
        transport: Transport,
        clock: Clock,
        settings: Settings,
    ) -> Spool:
        """Return the spool in `directory`. `address` names the place that it drains into: the
        server and the namespace there, never a secret."""
        disk = FileDisk(directory, max_bytes=settings.spool_bytes)
        return cls(disk, address, transport, clock, settings)

    # --- a live call's file ---------------------------------------------------------------------

    def header(self, call_id: str, writer: str, sid: str | None, caller: str | None) -> Header:
        """Return the header of a writer's file."""
        return Header(tag=self.tag, call_id=call_id, writer=writer, room_sid=sid, caller=caller)

    def file(self, header: Header) -> SpoolFile:
        """Return a handle on the file of a writer: one for each, for ever."""
        return self._disk.file(f"{self._prefix(header.call_id)}{header.writer}{SUFFIX}")

    def _prefix(self, call_id: str) -> str:
        return f"{self.tag}-{call_key(call_id)}-"

    # --- draining -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to drain in the background: at once, and every `drain_interval` until `aclose`.

        Doing it again changes nothing. Needs a running event loop.
        """
        task, loop = self._task, asyncio.get_running_loop()
        if task is None or task.done() or task.get_loop() is not loop:
            self._task = asyncio.create_task(self.run(), name="recall spool")
            self._task.add_done_callback(_say_why)

    async def run(self) -> None:
        """The background drainer, for a task group of your own instead of `start`. Never ends."""
        while True:
            self._wake = anyio.Event()
            await self._round()
            with anyio.move_on_after(self.clock.jitter(self.settings.drain_interval)):
                await self._wake.wait()

    async def _round(self) -> None:
        unreachable = 0
        async with aclosing(self.drain_all()) as files:
            async for drained in files:
                unreachable += drained.outcome == "waits"
                unreachable *= drained.outcome not in ("drained", "erased")
                if unreachable == UNREACHABLE:
                    return

    def wake(self) -> None:
        """Drain soon: a file was left behind."""
        self._wake.set()

    async def drain_call(self, call_id: str) -> None:
        """Drain what dead writers of this call have left here, as far as it can be now.

        What somebody else is draining is waited for, for `drain_wait`: a file whose writer lives
        looks the same.
        """
        until = self.clock.monotonic() + self.settings.drain_wait
        names = await self._names(self._prefix(call_id))
        while names:
            held = [name for name in names if (await self._drain_one(name)).outcome == "held"]
            if not held or self.clock.monotonic() >= until:
                return
            await self.clock.sleep(HELD_EVERY)
            names = [name for name in await self._names(self._prefix(call_id)) if name in held]

    async def drain_all(self, *, aside: bool = False) -> AsyncGenerator[Drained]:
        """Drain every file that no living process holds; yield how each went.

        With `aside` those that were set aside are tried again, too. An unreadable directory ends
        it: that is logged, once.
        """
        for name in await self._names(f"{self.tag}-", aside=aside):
            yield await self._drain_one(name)

    async def _names(self, prefix: str, *, aside: bool = False) -> list[str]:
        try:
            names = [one.name for one in await self._disk.listed()]
        except RecallError as error:
            self._say_once("", logging.ERROR, f"the spool cannot be read: {error}")
            return []
        self._told &= set(names)
        named = [name for name in names if name.startswith(prefix)]
        return [name for name in named if aside or not name.endswith(ASIDE)]

    async def _drain_one(self, name: str) -> Drained:
        file = self._disk.file(name)
        try:
            contents = await file.take(read_contents)
            if contents is None:
                return Drained(name, "held")
            return await self._drain(file, contents)
        except NotASpool as error:
            return await self._set_aside(file, Drained(name, "aside", why=str(error)))
        except NewerSpool as error:
            return self._left(Drained(name, "newer", why=str(error)))
        except RecallError as error:
            return self._left(Drained(name, "waits", why=str(error)))
        except Exception as error:  # one file's fault is not to end the drainer, nor a call
            self._say_once(name, logging.ERROR, f"spool {name} cannot be drained", error)
            return Drained(name, "waits", why=repr(error))
        finally:
            await self._let_go(file)

    async def _drain(self, file: SpoolFile, contents: Contents) -> Drained:
        draining = Draining(self.transport, self.clock, self.settings, file, contents)

        def told(outcome: DrainOutcome, why: object = "") -> Drained:
            return Drained(file.name, outcome, draining.sent, draining.missing, str(why))

        if not self._belongs_here(file, contents):
            return await self._set_aside(file, told("aside", "its name is not that of its content"))
        try:
            await draining.run()
        except Erased as erased:
            await file.remove()
            return self._finished(told("erased", erased))
        except (UnknownRun, Gap, InvalidInput) as error:
            return await self._set_aside(file, told("aside", error))
        except (StoreError, Held) as error:
            return self._left(told("waits", error))
        await file.remove()
        return self._finished(told("drained"))

    def _belongs_here(self, file: SpoolFile, contents: Contents) -> bool:
        """A file that was renamed or copied from elsewhere drains into no other place."""
        own = self.file(contents.header).name
        return contents.header.tag == self.tag and file.name.removesuffix(ASIDE) == own

    async def _let_go(self, file: SpoolFile) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await file.let_go()
            except RecallError as error:
                self._say_once(file.name, logging.ERROR, f"spool {file.name}: {error}")

    # --- how it went ----------------------------------------------------------------------------

    def _finished(self, drained: Drained) -> Drained:
        self.drained += drained.records
        level = logging.ERROR if drained.missing else logging.INFO
        logger.log(
            level,
            "spool %s: %s, %d records stored%s",
            drained.name,
            drained.outcome,
            drained.records - drained.missing,
            f", {drained.missing} were damaged on the disk" if drained.missing else "",
        )
        return drained

    def _left(self, drained: Drained) -> Drained:
        self._say_once(
            drained.name,
            logging.WARNING,
            f"spool {drained.name} is not drained yet ({drained.outcome}): {drained.why}",
        )
        return drained

    async def _set_aside(self, file: SpoolFile, drained: Drained) -> Drained:
        if not drained.name.endswith(ASIDE):
            try:
                await file.set_aside()
            except RecallError as error:
                return self._left(replace(drained, outcome="waits", why=f"{drained.why}; {error}"))
            self.aside += 1
            logger.error(
                "spool %s is set aside, as %s%s: %s; `recall-livekit spool drain --aside` tries "
                "it again",
                *(drained.name, drained.name, ASIDE, drained.why),
            )
        return drained

    def _say_once(self, name: str, level: int, text: str, error: Exception | None = None) -> None:
        if name not in self._told:
            self._told.add(name)
            logger.log(level, text, exc_info=error)

    async def aclose(self) -> None:
        """End the background drainer and let go of everything. Close the live calls first."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])
        await self._disk.aclose()


def _say_why(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the spool's drainer ended early", exc_info=error)
