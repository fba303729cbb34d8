"""The words of the demo: what the caller answers, and what the model says to what it knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from livekit.agents import llm

from recall_livekit.testing.voices import Reply, said, tool_call

__all__ = ["CENTS", "NOT_CHARGED", "OFFER", "PROGRAMME", "TICKETS", "Caller", "charged", "reply"]

TICKETS, PROGRAMME = "tickets", "programme"
CENTS = {TICKETS: 8000, PROGRAMME: 500}

GREETING = "Hello, this is the box office. What can I do for you?"
OFFER = "That is row five, seats nine and ten, for eighty euros together. Shall I charge your card?"
MORE = "Shall I add a programme for five euros?"
GOODBYE = "Enjoy the concert. Goodbye!"
BROKE_OFF = "Sorry, the line broke off."
CHECKED = "Sorry, I was gone for a moment. I have checked:"
NOT_CHARGED = "This was not charged."


def charged(receipt: int) -> str:
    """What a charge that was made comes to, for the model."""
    return f"Charged, receipt {receipt}."


class Caller:
    """Buys two tickets and a programme; asked a second time, it lets one hear that it has."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.asked_again = 0
        """How often it was asked what it had said already."""

    def answer(self, agent: str) -> str:
        """Return what the caller says to the agent's words."""
        line = self._line(agent)
        again = line in self.said
        self.asked_again += again
        self.said.append(f"I just told you: {line[0].lower()}{line[1:]}" if again else line)
        return self.said[-1]

    def _line(self, agent: str) -> str:
        if "your card" in agent:
            return "Yes, please."
        if "a programme for" in agent:
            return "Yes, that too."
        return "Two tickets for Friday, please."


def reply(chat_ctx: llm.ChatContext) -> Reply:
    """Decide as a model must, from the context that it is given and from nothing else."""
    heard = said(chat_ctx, "user")
    if not heard:
        return GREETING
    agreed = sum("yes" in line.casefold() for line in heard)
    outcomes = dict.fromkeys(CENTS, "") | dict(_outcomes(chat_ctx))
    for wanted, order in enumerate(CENTS):
        if outcomes[order] in ("", NOT_CHARGED) and agreed > wanted:
            return [tool_call("charge", json.dumps({"order": order, "cents": CENTS[order]}))]
    if not agreed:
        return _offer(chat_ctx)
    return _told(chat_ctx, outcomes)


def _outcomes(chat_ctx: llm.ChatContext) -> Iterator[tuple[str, str]]:
    """Yield what became of each charge that the context has, oldest first."""
    orders: dict[str, str] = {}
    for item in chat_ctx.items:
        if item.type == "function_call" and item.name == "charge":
            orders[item.call_id] = json.loads(item.arguments)["order"]
        elif item.type == "function_call_output" and item.call_id in orders:
            yield orders[item.call_id], item.output


def _speaks_first(chat_ctx: llm.ChatContext) -> bool:
    """Whether nobody has said anything since the line broke off."""
    return chat_ctx.messages()[-1].role != "user"


def _offer(chat_ctx: llm.ChatContext) -> str:
    """Say what there is; or, after an interruption, what was not said of it any more."""
    if not _speaks_first(chat_ctx):
        return OFFER
    known = " ".join(" ".join(said(chat_ctx)).split())
    words = OFFER.split()
    spoken = max(n for n in range(len(words) + 1) if " ".join(words[:n]) in known)
    return f"{BROKE_OFF} I was saying: {' '.join(words[spoken:])}"


def _told(chat_ctx: llm.ChatContext, outcomes: dict[str, str]) -> str:
    """Say what was charged, and how this is known."""
    order = PROGRAMME if outcomes[PROGRAMME] else TICKETS
    found = re.search(r"receipt (\d+)", outcomes[order])
    receipt = f"receipt {found[1]}" if found else "without a receipt"
    missed = (order, NOT_CHARGED) in list(_outcomes(chat_ctx))
    opening = CHECKED if missed or _speaks_first(chat_ctx) else "Thank you:"
    went = "had not gone through, so I made it now" if missed else "went through"
    more = MORE if order == TICKETS else GOODBYE
    return f"{opening} the charge for the {order} {went}, {receipt}. {more}"
