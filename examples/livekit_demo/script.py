"""The words of the demo, who says them, and a model that goes on from what it is given."""

from __future__ import annotations

import re

from livekit.agents import llm

from recall_livekit.testing.voices import said

from .espeak import Espeak

__all__ = [
    "AGENT",
    "AGENT_VOICE",
    "BOOKED",
    "CALLER_SENTENCES",
    "CALLER_VOICE",
    "CONFIRM",
    "GREETING",
    "HELLO",
    "ORDER",
    "QUESTION",
    "RESUMED",
    "WITH_STANDBY",
    "YES",
    "reply",
]

AGENT = "bistro"
AGENT_VOICE = Espeak("en-us+f3", 200)
CALLER_VOICE = Espeak("en-us+m3", 200)
WITH_STANDBY = "standby"
"""Calls whose room's name begins so are given a standby."""

GREETING = "Hello, this is the bistro!"
ORDER = "A table for four on Friday at seven. My name is Ada."
QUESTION = "Shall I book it?"
CONFIRM = f"Very well: a table for four, on Friday at seven, for Ada. {QUESTION}"
RESUMED = "Sorry, the line dropped."
YES = "Yes, please."
BOOKED = "It is booked. Goodbye, Ada!"
HELLO = "Hello? Are you still there?"
CALLER_SENTENCES = (ORDER, YES, HELLO)

_CUT = re.compile(r"cut off after saying: (.*)")


def reply(chat_ctx: llm.ChatContext) -> str:
    """Decide as a model must: from the context that it is given, and from nothing else."""
    messages = chat_ctx.messages()
    caller = [message.text_content or "" for message in messages if message.role == "user"]
    if messages[-1].role == "user":
        return BOOKED if caller[-1] == YES and ORDER in caller else CONFIRM
    if ORDER in caller:
        return f"{RESUMED} {_unsaid(chat_ctx)}"
    return GREETING


def _unsaid(chat_ctx: llm.ChatContext) -> str:
    """What is left of the sentence, after the words that the records say the caller heard."""
    cut = _CUT.search("\n".join(said(chat_ctx, "developer")))
    spoken = cut[1].strip() if cut else ""
    rest = CONFIRM.removeprefix(spoken).strip(" ,:") if CONFIRM.startswith(spoken) else CONFIRM
    return rest[:1].upper() + rest[1:]
