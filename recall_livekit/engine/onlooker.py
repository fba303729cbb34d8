"""Reading a call, and waiting for news of it. It conflicts with nobody and writes nothing that
decides anything."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import anyio

from ..call_ids import check_call_id, is_reserved
from ..errors import Fenced, StoreError
from ..models import Briefing, Partial, Turn
from ..seams import Clock
from ..settings import CHARS_A_BRIEFED_TOKEN, Settings
from ..stores.base import Locks, Store
from .briefing import brief
from .chain import Chain, readable_entry
from .entries import Entry
from .fold import Fold
from .listing import CallSummary, summary
from .liveness import Liveness, Witness
from .outputs import read_output
from .partials import read_partials
from .refusals import fenced
from .requests import Reading
from .runs import Origin, SameCall, asked_about, continues
from .silence import signs_of_life, silence_at
from .together import both, first_of
from .tokens import Estimator, TokenCounter

__all__ = ["Onlooker"]

Changed = Callable[[int, bool], Awaitable[None]]

KNOWN_CALLS = 4096
"""How many calls' folds an engine keeps in memory."""


class Onlooker:
    """What can be known of the calls in one store, by reading alone."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings | None = None,
        *,
        counter: TokenCounter | None = None,
        same_call: SameCall | None = None,
    ) -> None:
        """Do nothing yet: the first request opens what it needs."""
        self.store = store
        self.settings = settings or Settings()
        self._clock = clock
        self._counter = counter or Estimator()
        self._same_call = same_call
        self._locks = store if isinstance(store, Locks) else None
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._witnesses: dict[str, Witness] = {}

    # --- reading ------------------------------------------------------------------------------

    async def read(
        self, call: str, origin: Origin | None = None, tokens: int | None = None
    ) -> Reading:
        """Return the call as a worker of `origin` should see it, or, without one, as it stands.

        It conflicts with nobody. An onlooker is shown the current run even if it has ended.
        `tokens` is the briefing's budget, at most `retained_chars` / 5.

        Raises:
            InvalidCallId, StoreError.
        """
        chain, witness = self._chain(call), self._witness(call)
        fold = await chain.refresh()
        liveness, partials = await both(witness.look(fold), read_partials(self.store, call, fold))
        goes_on = origin is None or self._continues(fold, origin, witness, liveness)
        return Reading(
            briefing=self._brief(chain, partials, tokens) if goes_on else Briefing(call_id=call),
            position=fold.position,
            epoch=fold.epoch,
            run=fold.run.number if goes_on and fold.run else 0,
            holder=fold.lease.writer if fold.lease else None,
            agent_name=fold.lease.agent_name if fold.lease else None,
            liveness=liveness,
            previous=asked_about(fold, origin, witness.renewed_at),
            current_run=fold.run.number if fold.run else 0,
            erased=fold.run is not None and fold.run.number <= fold.erased_run,
            erased_at=fold.erases[-1] if fold.erases else -1,
            silence=self._silence(signs_of_life(fold, witness.renewed_at), partials),
        )

    async def turns(self, call: str) -> Sequence[Turn]:
        """Return every turn of the current run, however long: costs O(turns)."""
        chain = Chain(self.store, check_call_id(call), retained_chars=1 << 60, snapshots=False)
        return tuple((await chain.refresh()).with_waiting().turns)

    async def get_output(self, call: str, ref: str) -> str:
        """Return the text that is kept under the ref.

        Raises:
            OutputMissing: There is none, or it was erased.
            InvalidCallId, StoreError.
        """
        return await read_output(self.store, check_call_id(call), ref)

    async def wait_free(self, call: str, *, doubt: Callable[[], None] | None = None) -> Liveness:
        """Return once the call has no live holder; keeps its records current meanwhile.

        `doubt` is called when the holder's stream breaks, as its grace begins; a lock that is
        free leaves no doubt.

        Raises:
            StoreError.
        """

        async def changed(epoch: int, doubtful: bool) -> None:
            if doubtful and doubt is not None:
                doubt()

        return await self.watch_holder(call, changed)

    async def watch_holder(self, call: str, changed: Changed) -> Liveness:
        """Return once the call has no live holder. Meanwhile `changed` is awaited with its epoch
        and True when its stream broke, and with False when it came back.

        Raises:
            StoreError.
        """
        chain, witness, doubtful = self._chain(call), self._witness(call), False
        while True:
            fold = await chain.refresh()
            liveness = await witness.look(fold)
            if liveness is not Liveness.LIVE:
                return liveness
            if witness.doubtful is not doubtful:
                doubtful = witness.doubtful
                await changed(fold.epoch, doubtful)
            await self._wait_news(chain, witness)

    def events(self) -> None:
        """Return None: in this process nobody tells of the calls of others. See `CallEvent`."""

    async def wait_lost(self, call: str, writer: str, epoch: int) -> Fenced:
        """Return, with who has the call, once this writer's lease is not in force any more.

        Raises:
            StoreError.
        """
        chain = self._chain(call)
        while (await chain.refresh()).holds(writer, epoch):
            with anyio.move_on_after(self.settings.follow_interval):
                await chain.wait_news()
        return fenced(chain.fold)

    async def entries(self, call: str, start: int, limit: int) -> Sequence[Entry]:
        """Return at most `limit` entries from position `start` on, as they are in the chain.

        Raises:
            InvalidCallId, StoreError.
        """
        page = await self.store.read(check_call_id(call), start, limit)
        return [readable_entry(data, start + offset) for offset, data in enumerate(page)]

    async def wait_entries(self, call: str, position: int) -> None:
        """Return when the chain may have an entry at `position`, or after `follow_interval`."""
        chain = self._chain(call)
        if (await chain.refresh()).position <= position:
            with anyio.move_on_after(self.settings.follow_interval):
                await chain.wait_news()

    async def calls(self, *, reserved: bool = False) -> AsyncIterator[str]:
        """Yield the id of every call that has an entry, in no order; Recall's own chains only if
        they are asked for.

        Raises:
            StoreError.
        """
        async for call in self.store.calls():
            if reserved or not is_reserved(call):
                yield call

    async def summaries(self) -> AsyncIterator[CallSummary]:
        """Yield how every call stands, in no order. It reads each of them; none is Recall's own.

        Raises:
            StoreError: One cannot be read; said at the end, after all the others.
        """
        failed: StoreError | None = None
        async for call in self.calls():
            try:
                yield await self.summary(call)
            except StoreError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def summary(self, call: str) -> CallSummary:
        """Return how the call stands.

        Raises:
            InvalidCallId, StoreError.
        """
        witness = self._witness(check_call_id(call))
        fold = await self._chain(call).refresh()
        liveness = await witness.look(fold)
        return summary(fold, call, liveness, witness.renewed_at)

    # --- inside -------------------------------------------------------------------------------

    def _chain(self, call: str) -> Chain:
        chain = self._chains.get(call)
        if chain is None:
            chain = Chain(self.store, check_call_id(call), self.settings.retained_chars)
            self._chains[call] = chain
            if len(self._chains) > KNOWN_CALLS:
                forgotten, _ = self._chains.popitem(last=False)
                self._witnesses.pop(forgotten, None)
        self._chains.move_to_end(call)
        return chain

    def _witness(self, call: str) -> Witness:
        return self._witnesses.setdefault(
            call, Witness(self.store, call, self._clock, self.settings)
        )

    def _continues(
        self,
        fold: Fold,
        origin: Origin,
        witness: Witness,
        liveness: Liveness,
        at: float | None = None,
    ) -> bool:
        """Whether it goes on with the current run: now, or as it was `at` some time."""
        return continues(
            fold,
            origin.model_copy(update={"at": self._clock.now() if at is None else at}),
            settings=self.settings,
            same_call=self._same_call,
            renewed_at=witness.renewed_at if fold.lease else 0.0,
            live=liveness is Liveness.LIVE or witness.saw_alive(self.settings.resume_window),
        )

    def _silence(self, signs: tuple[float, float], partials: Sequence[Partial]) -> float | None:
        recorded, said = signs
        words = [partial.at for partial in partials]
        return silence_at(self._clock.now(), recorded, [said, *words])

    def _brief(
        self, chain: Chain, partials: Sequence[Partial], tokens: int | None = None
    ) -> Briefing:
        """Return the briefing; the same object while nothing has changed for its reader."""
        budget = min(
            tokens or self.settings.briefing_tokens,
            self.settings.retained_chars // CHARS_A_BRIEFED_TOKEN,
        )
        about = (chain.fold.content, tuple(partials), budget)
        if chain.briefed is None or chain.briefed[:3] != about:
            briefing = brief(
                chain.fold,
                chain.call,
                partials,
                tokens=budget,
                counter=self._counter,
            )
            chain.briefed = (*about, briefing)
        return chain.briefed[3]

    async def _wait_news(self, chain: Chain, witness: Witness) -> None:
        """Return when the call may stand otherwise than it did."""
        lease = chain.fold.lease
        stream = lease is not None and lease.stream
        seconds = self.settings.watch_interval if stream else self.settings.follow_interval
        await first_of(partial(witness.wait, chain.fold, seconds), chain.wait_news)
