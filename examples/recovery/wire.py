"""What a worker process and the demo tell each other: one JSON object a line, over pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, and when: seconds on the clock that all processes share."""

    kind: str
    at: float
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def by_agent(self) -> bool:
        return self.kind == "turn" and self.fields["role"] == "assistant"

    def line(self) -> bytes:
        return json.dumps({"kind": self.kind, "at": self.at, **self.fields}).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Event:
        fields = json.loads(line)
        return cls(fields.pop("kind"), fields.pop("at"), fields)
