"""What an application writes so that no caller is charged twice: the tool's class, and a look."""

from __future__ import annotations

import json
from typing import Any

from livekit.agents import Agent, function_tool, llm

from recall_livekit import Action, Briefing, RecallAgent, Resolved, action

from .payments import Payments
from .script import NOT_CHARGED, charged

__all__ = ["BoxOffice", "Plain", "charge_tool"]

INSTRUCTIONS = (
    "You sell concert tickets, on the phone. Charge nothing that the caller did not agree to, and "
    "nothing twice."
)
GREET = "Greet the caller."


def charge_tool(payments: Payments) -> llm.Tool:
    """The tool that costs money: "external", so that it is written down before it runs."""

    @action("external")
    @function_tool
    async def charge(order: str, cents: int) -> str:
        """Charge the caller's card.

        Args:
            order: What is paid for.
            cents: How much it is.
        """
        return charged(await payments.charge(order, cents))

    return charge


class BoxOffice(RecallAgent):
    """The agent with recall: whenever it is killed, it charges nothing twice and loses nothing."""

    def __init__(self, payments: Payments, **options: Any) -> None:
        super().__init__(instructions=INSTRUCTIONS, tools=[charge_tool(payments)], **options)
        self._payments = payments

    async def on_fresh(self) -> None:
        await self.session.generate_reply(instructions=GREET)

    async def on_resume(self, briefing: Briefing | None) -> None:
        await self.reconcile(self._look_up)
        await super().on_resume(briefing)

    async def _look_up(self, action: Action) -> Resolved | None:
        """Ask the provider what became of a charge: the worker that made it died over it."""
        receipt = await self._payments.find(json.loads(action.arguments)["order"])
        if receipt is None:
            return Resolved(status="failed", result=NOT_CHARGED)
        return Resolved(status="done", result=charged(receipt))


class Plain(Agent):
    """The same agent without."""

    def __init__(self, payments: Payments) -> None:
        super().__init__(instructions=INSTRUCTIONS, tools=[charge_tool(payments)])

    async def on_enter(self) -> None:
        await self.session.generate_reply(instructions=GREET)
