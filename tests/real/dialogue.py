"""What the agents and their callers say: sentences of words that no ear takes for one another."""

import asyncio
import os
import re
import signal
from collections.abc import Sequence

from livekit.agents import llm

from recall_livekit.testing.voices import lexicon, said

GREETING = "Hello, please tell me your number."
NUMBER = "seven four"
TELL_NUMBER = f"my number is {NUMBER}"
MORE = "also nine"
"""What a caller adds while nobody is there to hear it."""
DEADLY = "poison"
"""The agent's process dies when it is to answer this word."""
DEATH_S = 0.3
STORY = (
    "Alpha bravo charlie.",
    "Delta echo foxtrot golf.",
    "Hotel india jewel.",
    "Kilo lima mike.",
)
SORRY = "Sorry, somebody phones you."

CALLER_WORDS = ("my", "number", "is", "seven", "four", "also", "nine", "poison")
AGENT_WORDS = f"{GREETING} thanks welcome back seven four nine {' '.join(STORY)} {SORRY}"
lexicon({re.sub(r"\W", "", word).casefold() for word in AGENT_WORDS.split()})

_LONG = 3
"""So often the story is told in one reply: 9 seconds."""


def reply(chat_ctx: llm.ChatContext) -> str:
    """Knows the caller's number only if the chat context holds it, and goes on where it was cut."""
    heard = " ".join(said(chat_ctx, "user"))
    if DEADLY in heard:
        asyncio.get_running_loop().call_later(DEATH_S, os.kill, os.getpid(), signal.SIGKILL)
    number = re.search(r"number is (\w+ \w+)", heard)
    if number is None:
        return "Welcome back." if said(chat_ctx, "assistant") else GREETING
    if "Say the rest of it now" in said(chat_ctx)[-1]:
        return rest_of(said(chat_ctx, "assistant")[-1])
    more = " nine" if MORE in heard else ""
    opening = "Thanks" if chat_ctx.messages()[-1].role == "user" else "Welcome back"
    return f"{opening} {number[1]}{more}. {' '.join(STORY * _LONG)}"


def rest_of(told: str) -> str:
    """What is left of a story of which this much was told."""
    sentences = list(STORY * _LONG)
    for sentence in told.split(". ")[1:]:
        if sentences and sentence.strip(". ") == sentences[0].strip("."):
            sentences.pop(0)
    return " ".join(sentences)


def bare(text: str) -> list[str]:
    """The words of a text as an ear knows them."""
    return re.sub(r"[^\w\s]", "", text.casefold()).split()


def in_order(heard: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted words occur in this order; others may lie between them."""
    rest = iter(heard)
    return all(word in rest for word in wanted)
