"""The words of the demo: what the caller wants, how the agent asks, and how to tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = [
    "GREETING",
    "Caller",
    "asked_for",
    "booked",
    "confirm",
    "facts_in",
    "granted",
    "greets",
    "question",
    "says_yes",
    "wish_in",
]

GREETING = "Hello, you have reached the bistro. What can I do for you?"

_FACTS = {
    "people": r"\bfor (two|three|four|five|six)\b",
    "day": r"\bon (\w+day)\b",
    "time": r"\bat (six|seven|eight|nine)\b",
    "name": r"\bname is (\w+)",
}
_QUESTIONS = {
    "people": "for how many people",
    "day": "on which day",
    "time": "at what time",
    "name": "in which name",
}
_ASKED = {
    "purpose": r"what can i do|how (can|may) i help",
    "people": r"how many",
    "day": r"(which|what) (day|date)",
    "time": r"(which|what) time",
    "name": r"(which|what|whose|your) name",
}
_WISHES = {
    r"\boutside\b": "Outside, gladly. Anything else?",
    r"\bhigh chair\b": "A high chair, of course. Shall I book it?",
}
_GREETS = r"\b(hello|hi|welcome|good (morning|evening|afternoon))\b"
_CONFIRMS = r"(shall|should|may|can) i (book|confirm|go ahead)|(right|correct)\?|confirm"
_MORE = r"anything else"
_YES = r"\byes\b"


def facts_in(text: str) -> dict[str, str]:
    """Return what the caller's words tell about the table."""
    found = {fact: re.search(pattern, text, re.IGNORECASE) for fact, pattern in _FACTS.items()}
    return {fact: match[1] for fact, match in found.items() if match}


def asked_for(text: str) -> list[str]:
    """Return what the agent's words ask for: "purpose", or the facts of a booking."""
    return [fact for fact, pattern in _ASKED.items() if re.search(pattern, text, re.IGNORECASE)]


def greets(text: str) -> bool:
    """Whether these words begin a call."""
    return bool(re.search(_GREETS, text, re.IGNORECASE))


def says_yes(text: str) -> bool:
    """Whether the caller agrees."""
    return bool(re.search(_YES, text, re.IGNORECASE))


def wish_in(text: str) -> str | None:
    """Return the wish in the caller's words, if there is one that the agent knows."""
    wishes = [wish for wish in _WISHES if re.search(wish, text, re.IGNORECASE)]
    return wishes[0] if wishes else None


def granted(wish: str) -> str:
    """Say yes to a wish."""
    return _WISHES[wish]


def question(known: Collection[str]) -> str:
    """Ask for whatever is not known."""
    asked = ", and ".join(words for fact, words in _QUESTIONS.items() if fact not in known)
    return f"Gladly: {asked}?"


def confirm(facts: Mapping[str, str]) -> str:
    """Repeat the booking and ask for a yes."""
    return (
        "So that is a table for {people} on {day} at {time}, in the name of {name}. "
        "Shall I book it?"
    ).format_map(facts)


def booked(facts: Mapping[str, str]) -> str:
    """Say that it is done."""
    return "It is booked, {name}: {day} at {time}, for {people}. Goodbye!".format_map(facts)


class Caller:
    """Answers what it is asked; asked a second time, it lets one hear that it has said so.

    Its wishes come to its mind one by one, each time when it should agree.
    """

    def __init__(self, *wishes: str) -> None:
        self.said: list[str] = []
        self._wishes = list(wishes)

    def answer(self, agent: str) -> str:
        """Return what the caller says to the agent's words."""
        line = self._line(agent)
        again = any(facts_in(line).items() & facts_in(old).items() for old in self.said)
        self.said.append(f"I just told you: {line[0].lower()}{line[1:]}" if again else line)
        return self.said[-1]

    def _line(self, agent: str) -> str:
        if {"time", "name"} & set(asked_for(agent)):
            return "At seven, and my name is Ada."
        if re.search(f"{_CONFIRMS}|{_MORE}", agent, re.IGNORECASE):
            if self._wishes:
                return self._wishes.pop(0)
            return "Yes, please."
        return "A table for four on Friday, please."
