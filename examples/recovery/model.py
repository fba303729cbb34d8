"""The model: scripted, or OpenAI's where there is a key."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from livekit.agents import llm

from recall_livekit.testing.voices import Reply, ScriptedLLM, said, tool_call

from .script import (
    GREETING,
    booked,
    confirm,
    facts_in,
    granted,
    question,
    says_yes,
    wish_in,
)

__all__ = ["choose_model"]


def choose_model() -> llm.LLM[Any]:
    """Return OpenAI's model if there is a key for it, else the scripted one."""
    if not os.environ.get("OPENAI_API_KEY"):
        return ScriptedLLM(reply)
    from livekit.plugins import openai

    return openai.LLM()


def reply(chat_ctx: llm.ChatContext) -> Reply:
    """Decide as a model must, from the context it is given and from nothing else."""
    facts = facts_in(" ".join(said(chat_ctx, "user")))
    last = chat_ctx.messages()[-1]
    if last.role != "user":
        return _speak_first(chat_ctx, facts)
    if tools := _wanted_tools(chat_ctx, last, facts):
        return tools
    words = last.text_content or ""
    if says_yes(words) and len(facts) == 4:
        return booked(facts)
    if wish := wish_in(words):
        return granted(wish)
    return confirm(facts) if len(facts) == 4 else question(facts)


def _speak_first(chat_ctx: llm.ChatContext, facts: dict[str, str]) -> str:
    """Greet; or, told of an interruption, say what was not said any more."""
    if "interrupted" not in said(chat_ctx)[-1]:
        return GREETING
    sentence = confirm(facts) if len(facts) == 4 else question(facts)
    return f"Sorry, the line broke off. I was saying: {_unsaid(chat_ctx, sentence)}"


def _unsaid(chat_ctx: llm.ChatContext, sentence: str) -> str:
    """Return what is left of `sentence` after the words that the briefing says were spoken."""
    cut = re.search(r"cut off after saying: (.*)", " ".join(said(chat_ctx, "developer")))
    spoken = cut[1].strip() if cut else ""
    return sentence.removeprefix(spoken).strip() if sentence.startswith(spoken) else sentence


def _wanted_tools(
    chat_ctx: llm.ChatContext, last: llm.ChatMessage, facts: dict[str, str]
) -> list[llm.FunctionToolCall]:
    """Return the tools that the caller's last words call for, unless they were called."""
    after = chat_ctx.items[chat_ctx.items.index(last) :]
    if any(item.type == "function_call" for item in after):
        return []
    words = last.text_content or ""
    if says_yes(words) and len(facts) == 4:
        return [tool_call("book", json.dumps(facts))]
    keeps_notes = "update_working_state" in " ".join(said(chat_ctx, "system"))
    told = facts_in(words) or wish_in(words)
    return [_note(facts, said(chat_ctx, "user"))] if keeps_notes and told else []


def _note(facts: dict[str, str], lines: list[str]) -> llm.FunctionToolCall:
    agreed = [f"{fact}: {value}" for fact, value in facts.items()]
    agreed += [f"wish: {line}" for line in lines if wish_in(line)]
    changes = {"goal": "Book a table", "decisions": agreed}
    return tool_call("update_working_state", json.dumps(changes))
