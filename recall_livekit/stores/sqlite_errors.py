"""How the errors of SQLite become those of the contract: here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from ..errors import StoreError, StoreUnavailable, StoreUnusable
from .jobs import Busy
from .system_errors import system_told

__all__ = ["told"]


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into the errors of the contract.

    Raises:
        Busy: Another connection has the lock.
        StoreUnavailable: Full, or an I/O error.
        StoreUnusable: A person has to look.
    """
    try:
        with system_told(path):
            yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
        raise Busy("another process has the call's file locked") from error
    except apsw.Error as error:
        raise _told_of_sqlite(error, path) from error


def _told_of_sqlite(error: apsw.Error, path: Path) -> StoreError:
    reachable = os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)
    match error:
        case apsw.FullError():
            return StoreUnavailable(f"{path}: the disk is full ({error})")
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreUnusable(f"{path} is damaged ({error}): restore it, or move it away")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnusable(f"{path} cannot be written ({error}): check its permissions")
        case apsw.CantOpenError() if not reachable:
            return StoreUnusable(f"{path} cannot be opened ({error}): check the directory")
        case apsw.IOError() | apsw.NoMemError() | apsw.CantOpenError():
            return StoreUnavailable(f"{path}: {error}")
    return StoreUnusable(f"{path}: {error} ({type(error).__name__}): not what a Recall file does")
