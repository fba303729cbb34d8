"""Speech under way, beside the chain: one cell a writer, overwritten (rule 14 names it)."""

from __future__ import annotations

from pydantic import ValidationError

from ..errors import Conflict
from ..models import Partial, Partials
from ..stores.base import Store
from .chain import is_sealed
from .fold import Fold
from .folded import Writer
from .together import together

__all__ = ["read_partials", "write_partials"]


def _cell(anchor: int) -> str:
    return f"partial/{anchor}/0"


async def read_partials(store: Store, call: str, fold: Fold) -> list[Partial]:
    """Return the words under way of those who wrote after or as the last turn's writer.

    Raises:
        StoreError.
    """
    writers = [fold.writers[name] for name in fold.recent]
    asked = [writer for writer in writers if writer.anchor >= fold.turn_anchor]
    cells = await together([store.get_cell(call, _cell(writer.anchor)) for writer in asked])
    found: list[Partial] = []
    for writer, cell in zip(asked, cells, strict=True):
        if cell is not None and not is_sealed(cell.value):
            found += _current(cell.value, fold, writer)
    return sorted(found, key=lambda partial: partial.at)


async def write_partials(store: Store, call: str, anchor: int, partials: Partials) -> bool:
    """Overwrite the partials of the writer whose first entry is `anchor`; False if erased.

    Raises:
        StoreError.
    """
    cell = await store.get_cell(call, _cell(anchor))
    if cell is not None and is_sealed(cell.value):
        return False
    data = partials.model_dump_json().encode()
    try:
        await store.put_cell(call, _cell(anchor), data, cell.version if cell else None)
    except Conflict:
        return False
    return True


def _current(value: bytes, fold: Fold, writer: Writer) -> list[Partial]:
    """Return this run's partials that no later turn of the same writer and role made void."""
    try:
        said = Partials.model_validate_json(value)
    except ValidationError:
        return []
    if fold.run is None or said.run != fold.run.number:
        return []
    spoken = {"user": writer.user, "assistant": writer.assistant}
    return [p for p in said.partials if p.text and spoken.get(p.role, 0) <= p.after]
