"""LiveKit's AEC warm-up, and why a resumed call must not have one.

For the first 3 s of its first speech an `AgentSession` hands its recogniser silence and cannot be
interrupted, until the caller's echo canceller has got used to the agent's voice. On a resumed
call that is the moment at which the caller answers "hello? are you there?": not heard. Its price:
where the canceller has not adapted (a speakerphone without one, a device changed meanwhile), the
agent's own first words may come back as the caller's. It has had the whole call to adapt, on the
caller's device, which did not change with the worker.
"""

from __future__ import annotations

import logging
from functools import cache

from livekit.agents import AgentSession

__all__ = ["end_warm_up"]

logger = logging.getLogger("recall_livekit")


def end_warm_up(session: AgentSession[object]) -> None:
    """Hear a resumed caller from the first moment, unless the application itself chose
    `aec_warmup_duration`.

    The state is private to livekit-agents, so it is looked for: if it is not there, one warning
    says what cures it.
    """
    remaining = getattr(session, "_aec_warmup_remaining", None)
    explicit = getattr(session, "_aec_warmup_duration_explicit", None)
    expired = getattr(session, "_on_aec_warmup_expired", None)
    if not isinstance(remaining, int | float) or not isinstance(explicit, bool) or expired is None:
        _warn_once()
    elif not explicit and remaining > 0:
        # else the warm-up is set anew when the caller is linked to the session
        session._aec_warmup_duration_explicit = True
        expired()


@cache
def _warn_once() -> None:
    logger.warning(
        "this livekit-agents does not show its AEC warm-up: a resumed caller is not heard during "
        "the first 3 s of the agent's speech. AgentSession(aec_warmup_duration=0) ends that"
    )
