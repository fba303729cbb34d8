"""What a tool returned, as the text that is recorded of it."""

from __future__ import annotations

import json

from livekit.agents import Agent, llm
from pydantic import BaseModel

from ...engine.fold import SHOWN_CHARS

__all__ = ["cut_note", "result_text", "shown_result"]


def result_text(output: object) -> str:
    """Return a tool's result as text: JSON if it is no str. An agent that it hands over to is no
    part of it."""
    if isinstance(output, llm.ToolResult):
        output = output.output
    if isinstance(output, list | tuple | set | frozenset) and any(map(_is_agent, output)):
        rest = [one for one in output if not _is_agent(one)]
        return result_text(rest[0] if len(rest) == 1 else rest or None)
    if output is None or _is_agent(output):
        return ""
    return output if isinstance(output, str) else _json(output)


def shown_result(result: str, ref: str | None = None) -> str:
    """Return as much of a long result as every reader is shown, and where all of it is."""
    if len(result) <= SHOWN_CHARS:
        return result
    note = cut_note(result, ref)
    return f"{result[: SHOWN_CHARS - len(note) - 4]}... {note}"


def cut_note(result: str, ref: str | None = None) -> str:
    """Return what is said in the place of what is cut from a long result."""
    rest = f"all of it: ref {ref}" if ref else "the rest is not kept"
    return f"[cut here: {len(result)} characters; {rest}]"


def _is_agent(output: object) -> bool:
    return isinstance(output, Agent)


def _json(output: object) -> str:
    try:
        if isinstance(output, BaseModel):
            return output.model_dump_json()
        return json.dumps(output, ensure_ascii=False, default=str)
    except Exception:  # whatever the application's objects do
        return _plain(output)


def _plain(output: object) -> str:
    try:
        return str(output)
    except Exception:
        return f"[a {type(output).__name__} that cannot be shown]"
