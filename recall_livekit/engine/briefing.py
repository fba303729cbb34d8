"""The briefing: what a new worker is told, within a token budget.

Order of claim on the budget: unfinished actions, working state, pointers, words cut off, outputs,
and then the newest turns with their tool calls, as many as fit. What did not fit is counted in
`omitted`. The same fold gives the same briefing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..models import Action, Briefing, Output, Partial, Pointer, Turn, WorkingState
from .fold import Fold
from .tokens import HEADROOM, TokenCounter

__all__ = ["ACTIONS", "action_line", "brief", "in_time", "with_turns"]

CHARS_A_TOKEN = 20
"""More characters than this to each token that is left cannot fit: such a text is not counted."""
ACTIONS = "## Tool calls whose outcome is open"
_NEWEST = "## The newest turns, verbatim"
_ASIDE = {"user": " (not answered)", "assistant": " (never heard)", "tool": "", "system": ""}
"""What a turn is that is not part of the conversation."""
OUTPUTS_PART = 0.2
"""The part of the budget that outputs may take: they are to be fetched, and turns are not."""
_LINE_TOKENS = 2
"""What a line break and a bullet may cost beyond the line's own words."""
_MESSAGE_TOKENS = 6
"""What a chat message costs beyond its content."""


class _Budget:
    """Takes lines while they fit; counts what did not, by kind."""

    def __init__(self, tokens: int, counter: TokenCounter) -> None:
        self._counter = counter
        self._whole = self._left = int(tokens * (HEADROOM if counter.estimated else 1.0))
        self.used = 0
        self.omitted: dict[str, int] = {}

    def takes(self, kind: str, text: str, extra: int = _LINE_TOKENS) -> bool:
        hopeless = len(text) > CHARS_A_TOKEN * self._left
        cost = 0 if hopeless else self._counter.count(text) + extra
        if hopeless or cost > self._left:
            self.omitted[kind] = self.omitted.get(kind, 0) + 1
            return False
        self._left -= cost
        self.used += cost
        return True

    def leaves_out(self, kind: str, count: int) -> None:
        """Count what did not fit, whatever was counted of it so far."""
        self.omitted.pop(kind, None)
        if count:
            self.omitted[kind] = count

    def share(self, kind: str, title: str, lines: Sequence[str], part: float) -> list[str]:
        """Return the same as `section`, of lines that take no more than a part of the budget."""
        kept_back = max(0, self._left - int(part * self._whole))
        self._left -= kept_back
        shown = self.section(kind, title, lines)
        self._left += kept_back
        return shown

    def section(self, kind: str, title: str, lines: Sequence[str]) -> list[str]:
        """Return the title and the lines that fit, or nothing."""
        if not lines:
            return []
        if not self.takes(kind, title):
            self.omitted[kind] += len(lines) - 1
            return []
        kept = [line for line in lines if self.takes(kind, line)]
        return ["", title, *kept] if kept else []


def brief(
    fold: Fold,
    call_id: str,
    partials: Sequence[Partial],
    *,
    tokens: int,
    counter: TokenCounter,
) -> Briefing:
    """Return the briefing of the fold's current run within `tokens`, text and turns together."""
    shown = fold.with_waiting()
    run = shown.run
    if run is None or run.number <= shown.erased_run:
        return Briefing(call_id=call_id, estimated=counter.estimated, unreadable=fold.unreadable)
    budget = _Budget(tokens, counter)
    actions = tuple(shown.actions.values())
    notes = _notes(shown, actions, partials, budget)
    turns, finished = _newest(shown, budget)
    missing = {output.ref for output in shown.outputs if output.missing}
    return Briefing(
        call_id=call_id,
        run=run.number,
        caller=run.caller,
        fresh=not (shown.run_turns or partials or actions or shown.working_state),
        notes=notes,
        text=with_turns(notes, turns, finished, missing),
        tokens=budget.used,
        estimated=counter.estimated,
        turns=turns,
        working_state=shown.working_state,
        pointers=tuple(shown.pointers.values()),
        actions=actions,
        finished=finished,
        outputs=tuple(shown.outputs),
        partials=tuple(partials),
        userdata=shown.userdata,
        agent=shown.agent,
        omitted=budget.omitted,
        unreadable=shown.unreadable,
        last_said_at=run.said_at,
    )


def _notes(
    fold: Fold, actions: Iterable[Action], partials: Iterable[Partial], budget: _Budget
) -> str:
    head = "You are going on with a call that another worker of yours began. What it wrote down:"
    lines = [head] if budget.takes("heading", head) else []
    lines += budget.section(
        "action",
        ACTIONS,
        [action_line(action) for action in actions],
    )
    if fold.working_state:
        title = f"## Working state (version {fold.working_state.version})"
        lines += budget.section("working_state", title, _state_lines(fold.working_state))
    lines += budget.section(
        "pointer", "## Where the work lives", [_pointer_line(p) for p in fold.pointers.values()]
    )
    lines += budget.section(
        "partial", "## Where it was cut off", [_partial_line(p) for p in partials]
    )
    outputs = [_output_line(output) for output in reversed(fold.outputs)]
    lines += budget.share("output", "## Stored outputs, the newest first", outputs, OUTPUTS_PART)
    return "\n".join(lines)


def _newest(fold: Fold, budget: _Budget) -> tuple[tuple[Turn, ...], tuple[Action, ...]]:
    """Return the newest turns that fit, without a hole between them, and the tool calls that
    ended since the first of them, as far as they fit."""
    turns: list[Turn] = []
    finished: list[Action] = []
    fits = bool(fold.turns or fold.finished) and budget.takes("turn", _NEWEST)
    for one in reversed(in_time(fold.turns, fold.finished)) if fits else ():
        if isinstance(one, Turn):
            if not budget.takes("turn", _turn_line(one), _MESSAGE_TOKENS):
                break
            turns.append(one)
        elif budget.takes("finished", _finished_line(one), 2 * _MESSAGE_TOKENS):
            finished.append(one)
    budget.leaves_out("turn", fold.run_turns - len(turns))
    budget.leaves_out("finished", len(fold.finished) - len(finished))
    return tuple(reversed(turns)), tuple(reversed(finished))


def in_time(turns: Iterable[Turn], finished: Iterable[Action]) -> list[Turn | Action]:
    """Return turns and tool calls in one order: the turns in theirs, each call where it began."""
    line: list[tuple[float, int, Turn | Action]] = []
    said = 0.0
    for turn in turns:
        said = max(said, turn.at)
        line.append((said, 0, turn))
    line += [(action.at, 1, action) for action in finished]
    return [one for *_, one in sorted(line, key=lambda placed: placed[:2])]


def with_turns(
    notes: str, turns: Sequence[Turn], finished: Sequence[Action], missing: Container[str]
) -> str:
    """Return the notes, and below them the turns with the tool calls at their places."""
    lines = [
        _turn_line(one) if isinstance(one, Turn) else _finished_line(one, missing)
        for one in in_time(turns, finished)
    ]
    return "\n".join([notes, "", _NEWEST, *lines]) if lines else notes


def _turn_line(turn: Turn) -> str:
    cut = " (cut off)" if turn.interrupted else ""
    late = " (late)" if turn.late else ""
    aside = "" if turn.committed else _ASIDE[turn.role]
    return f"[{turn.role} #{turn.seq}{cut}{late}{aside}] {turn.content}"


def _finished_line(action: Action, missing: Container[str] = ()) -> str:
    failed = " (failed)" if action.status == "failed" else ""
    stored = f" (all of it: ref {action.result_ref})" if action.result_ref else ""
    stored = " (the rest of it is lost)" if action.result_ref in missing else stored
    return f"[tool {action.tool}{failed}] {action.arguments} -> {action.result or ''}{stored}"


def action_line(action: Action) -> str:
    """Return what is told of a tool call whose outcome is open."""
    arguments = action.arguments if len(action.arguments) <= 500 else action.arguments[:500] + "..."
    what = {
        "pure": "reads only; call it again if you need it",
        "idempotent": f"safe to repeat with its key {action.key}",
        "external": "it may have happened: check before you repeat it",
    }[action.action_class]
    return f"- {action.tool}({arguments}): {what}"


def _state_lines(state: WorkingState) -> list[str]:
    lines = [
        f"{name}: {value}"
        for name, value in (
            ("Goal", state.goal),
            ("Progress", state.progress),
            ("Focus", state.focus),
            ("Step", state.step),
            ("Last milestone", state.last_milestone),
            ("Notes", state.notes),
        )
        if value is not None
    ]
    for name, values in (
        ("Plan", state.plan),
        ("Decided", state.decisions),
        ("Open question", state.open_questions),
    ):
        lines += [f"{name}: {value}" for value in values]
    return lines


def _pointer_line(pointer: Pointer) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in sorted(pointer.fields.items()))
    return f"- {pointer.name} ({pointer.type}): {fields}"


def _partial_line(partial: Partial) -> str:
    if partial.role == "user":
        return f"- The caller was saying: {partial.text}"
    return f"- You were cut off after saying: {partial.text}"


def _output_line(output: Output) -> str:
    what = f"{output.name} ({output.chars} characters, ref {output.ref})"
    lost = "lost, do not fetch it; it began: " if output.missing else ""
    return f"- {what}: {lost}{output.preview[:200]}"
