"""Which tool calls are open, as one worker knows it, and under which key one is repeated."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable

from .engine.settled import settled
from .models import Action, Briefing

__all__ = ["OpenCalls", "same_arguments"]

REMEMBERED = 100
"""How many calls that ended here are known: more may be told of one, as where its result is."""


class OpenCalls:
    """What began here and did not end, and what dead workers left, less what was settled here."""

    def __init__(self, writer: str) -> None:
        """Nothing began yet; what `writer` begins has its name in its key."""
        self._mine = f"{writer}-"
        self._running: dict[str, Action] = {}
        self._unrecorded: set[str] = set()
        self._ended: OrderedDict[str, Action] = OrderedDict()
        self._to_repeat: dict[str, Action] = {}
        """Idempotent calls that ended here without an outcome."""
        self._repeated: set[str] = set()
        self._settled: dict[str, Action] = {}
        self._base: Briefing | None = None
        self._shown: Briefing | None = None

    def began(self, action: Action) -> None:
        """It is about to run."""
        self._running[action.key] = action
        self._to_repeat.pop(action.key, None)

    def runs_unrecorded(self, key: str) -> None:
        """Its beginning is not durable, as it would have to be."""
        self._unrecorded.add(key)

    def begun(self, key: str) -> Action | None:
        """Return the call of this key if it began here, and runs or ended not long ago."""
        return self._running.get(key) or self._ended.get(key)

    def ran_unrecorded(self, key: str) -> bool:
        """Whether it ran though its beginning was not durable."""
        return key in self._unrecorded

    def ended(self, end: Action) -> None:
        """It ended here. An idempotent one without an outcome keeps its key for the next try."""
        if (began := self._running.pop(end.key, None)) is None:
            return
        self._ended[end.key] = began
        if len(self._ended) > REMEMBERED:
            self._unrecorded.discard(self._ended.popitem(last=False)[0])
        if began.action_class == "idempotent" and end.status == "unknown":
            self._to_repeat[end.key] = began
            if len(self._to_repeat) > REMEMBERED:
                del self._to_repeat[next(iter(self._to_repeat))]

    def settle(self, ends: Iterable[Action]) -> None:
        """It was found out how these went, which dead workers had left open."""
        self._settled |= {end.key: end for end in ends}
        self._base = None

    def open_in(self, briefing: Briefing) -> tuple[Action, ...]:
        """Return what is open and was not begun here."""
        return tuple(a for a in self.told(briefing).actions if a.key not in self._repeated)

    def repeatable(self, briefing: Briefing | None) -> list[Action]:
        """Return the open idempotent calls that nobody is repeating."""
        left = briefing.actions if briefing is not None else ()
        taken = self._running.keys() | self._settled.keys()
        return [
            action
            for action in [*self._to_repeat.values(), *left]
            if action.action_class == "idempotent"
            and action.key not in taken
            and (action.key not in self._repeated or action.key in self._to_repeat)
        ]

    def is_repeated(self, key: str) -> bool:
        """Whether the call of this key was left open once, and is made again here."""
        return key in self._repeated

    def repeat(self, key: str) -> None:
        """The call that was left open under this key is made again."""
        self._repeated.add(key)

    def not_repeated(self, key: str | None) -> None:
        """It was not made again after all: the next try may have its key."""
        if key not in self._running:
            self._repeated.discard(key or "")

    def told(self, briefing: Briefing) -> Briefing:
        """Return the briefing with what is known better here; the same value for the same."""
        if briefing is not self._base or self._shown is None:
            self._base = briefing
            own = [a.key for a in briefing.actions if self._is_own(a.key)]
            self._shown = settled(briefing, self._settled, own)
        return self._shown

    def _is_own(self, key: str) -> bool:
        return key.startswith(self._mine) or (key in self._running and key not in self._repeated)


def same_arguments(one: str, other: str) -> bool:
    """Whether two calls were made with the same arguments, however their JSON is written."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
