"""Outputs: long texts beside the chain, each created once under a name that an eraser can list.

A writer's outputs are the cells ``output/{anchor}/0``, ``/1`` ... (rule 14): `anchor` is the
position of its first entry, the counter has no gap. An erasure seals each and takes the next name
(rule 15), so that one that comes late is written nowhere.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ValidationError

from ..errors import Conflict, InvalidRecord, OutputMissing, StoreUnavailable
from ..models import Value
from ..stores.base import Store
from .chain import is_sealed

__all__ = ["OUTPUT_BYTES", "checked_ref", "encoded", "output_cell", "read_output", "write_output"]

OUTPUT_BYTES = 1024 * 1024
"""The longest text of one output, in UTF-8."""
TRIES = 64
"""How many names are looked at before one request is answered as unavailable."""
_REF = re.compile(r"[0-9]{1,15}/[0-9]{1,15}")


class _Kept(Value):
    """What a cell holds."""

    v: Literal[1] = 1
    text: str


def output_cell(anchor: int, counter: int) -> str:
    """Return the name of the writer's output of this number."""
    return f"output/{anchor}/{counter}"


def checked_ref(ref: str) -> str:
    """Return the ref if it has the form of one.

    Raises:
        OutputMissing: No output was ever kept under this.
    """
    if not isinstance(ref, str) or not _REF.fullmatch(ref):
        raise OutputMissing(
            f"{str(ref)[:40]!r} is no ref of an output: a ref looks like 12/0, and the briefing "
            "tells those that there are"
        )
    return ref


def encoded(text: str) -> bytes:
    """Return the text as it is kept.

    Raises:
        InvalidRecord: It is over `OUTPUT_BYTES`, or no valid Unicode.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRecord("an output must be valid Unicode: this one has a surrogate") from None
    if size > OUTPUT_BYTES:
        raise InvalidRecord(f"an output has at most {OUTPUT_BYTES} bytes in UTF-8, not {size}")
    return _Kept(text=text).model_dump_json().encode()


async def write_output(
    store: Store, call: str, anchor: int, counter: int, data: bytes
) -> int | None:
    """Create `data` under the writer's first free name from `counter` on, and return its number;
    None if the writer's names are sealed. Repeating it adds nothing while the answer is unknown.

    Raises:
        StoreError: Its outcome is unknown; repeat it.
    """
    before = await store.get_cell(call, output_cell(anchor, counter - 1)) if counter else None
    if before is not None and is_sealed(before.value):
        return None
    if before is None:
        counter = 0  # whoever claims more is wrong: an eraser would not come so far
    for _ in range(TRIES):
        try:
            await store.put_cell(call, output_cell(anchor, counter), data, None)
        except Conflict:
            cell = await store.get_cell(call, output_cell(anchor, counter))
        else:
            return counter
        if cell is not None and is_sealed(cell.value):
            return None
        if cell is not None and cell.value == data:
            return counter  # the answer to this very request was lost
        counter += cell is not None
    raise StoreUnavailable("the names of a writer's outputs are all taken: keep it again")


async def read_output(store: Store, call: str, ref: str) -> str:
    """Return the text that is kept under the ref.

    Raises:
        OutputMissing: There is none, or it was erased.
        StoreError.
    """
    cell = await store.get_cell(call, f"output/{checked_ref(ref)}")
    if cell is None:
        raise OutputMissing(f"nothing is kept under the ref {ref}: go on without it")
    if is_sealed(cell.value):
        raise OutputMissing(f"the output {ref} was erased: go on without it")
    try:
        return _Kept.model_validate_json(cell.value).text
    except ValidationError:
        raise OutputMissing(f"a newer version kept the output {ref}: upgrade this one") from None
