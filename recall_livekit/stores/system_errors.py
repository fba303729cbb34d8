"""How the errors of the operating system become those of the contract."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreUnavailable, StoreUnusable

__all__ = ["system_told"]

OUT_OF_SOMETHING = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE,
}  # fmt: skip
"""What may be better at the next try; any other error of the system needs a person."""


@contextmanager
def system_told(path: Path) -> Iterator[None]:
    """Turn what the system raises into the errors of the contract.

    Raises:
        StoreUnavailable: The system is out of something, or the disk failed.
        StoreUnusable: A person has to look.
    """
    try:
        yield
    except OSError as error:
        if error.errno in OUT_OF_SOMETHING:
            raise StoreUnavailable(f"{path}: {error}") from error
        raise StoreUnusable(f"{path}: {error}: check the directory") from error
