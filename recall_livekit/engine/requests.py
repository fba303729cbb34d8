"""What is asked of an engine and what it answers, as values: on the wire they are the same."""

from __future__ import annotations

from ..models import Briefing, Value
from .liveness import Liveness
from .runs import Origin

__all__ = ["Ack", "Acquire", "Grant", "Reading"]


class Reading(Value):
    """What one read of a call says. `run` is the run that a worker of this origin goes on with,
    0 if it opens a new one; `briefing` is of that run. `liveness` is the holder's, if any;
    `previous` is the run that `same_call` is asked about, of the number `current_run`. `erased`
    tells that the current run was, `erased_at` where the newest erasure is. `silence` is for how
    many seconds nobody has been there when this was read (see `silence_at`)."""

    briefing: Briefing
    position: int
    epoch: int
    run: int
    holder: str | None = None
    agent_name: str | None = None
    liveness: Liveness = Liveness.FREE
    previous: Origin | None = None
    current_run: int = 0
    erased: bool = False
    erased_at: int = -1
    silence: float | None = None


class Acquire(Value):
    """A request for the lease. Repeated with the same `attempt` it gets the same grant (rule 8).

    `steal` takes it from a live holder. `steal_epoch` does so too, but only the lease of this
    very epoch, and only to go on in its run: whoever saw that holder freeze has seen no other.

    `read_position` is where the writer's first read ended, None if it never read: a writer whose
    words are older than an erasure is refused. `tokens` is the budget of the briefing, if it is
    not the engine's own. `said_at` is when a spool's words were said (Unix seconds), None of a
    live call: only `open_run` knows it.
    """

    writer: str
    attempt: str
    ttl: float
    origin: Origin = Origin()
    agent_name: str | None = None
    lock: str | None = None
    stream: bool = False
    steal: bool = False
    steal_epoch: int | None = None
    read_position: int | None = None
    tokens: int | None = None
    said_at: float | None = None


class Grant(Value):
    """The lease. `resumed` says that the run had begun before, `silence` for how many seconds
    nobody had been there when it was taken; None of one that was granted already."""

    epoch: int
    run: int
    position: int
    resumed: bool
    briefing: Briefing
    silence: float | None = None


class Ack(Value):
    """Durable: the writer's records up to number `last`; the chain's end is `position`."""

    last: int
    position: int
