"""The socket that a server listens on, bound before anything else is begun."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidSettings

__all__ = ["listening_socket", "raise_open_files", "url_of"]

OPEN_FILES = 65_536
"""Enough for a stream a call, and a few files for each. Many systems give a thousand at first."""

UNIX_MODE = 0o660
"""Its owner and group: a proxy in front of the server is of the group."""


@contextmanager
def listening_socket(
    host: str, port: int, unix_path: Path | None = None
) -> Iterator[socket.socket]:
    """Yield the bound socket, of the path if there is one; close it, and remove its path, at the
    end.

    Raises:
        InvalidSettings: Nothing can listen there: the address is taken, or not this machine's.
    """
    where = unix_path or f"{host}:{port}"
    try:
        bound = _unix(unix_path) if unix_path else _tcp(host, port)
    except OSError as error:
        raise InvalidSettings(f"cannot listen at {where}: {error.strerror or error}") from error
    with bound:
        yield bound
    if unix_path is not None:
        unix_path.unlink(missing_ok=True)


def raise_open_files() -> None:
    """Let this process have as many connections as the system lets it have, up to `OPEN_FILES`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def url_of(bound: socket.socket) -> str:
    """Return where a client finds it: a URL, or ``unix:`` and the path."""
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tcp(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # With its protocol named: asyncio sends at once (TCP_NODELAY) only on such a socket.
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _unix(path: Path) -> socket.socket:
    _remove_left_over(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(UNIX_MODE)
    except OSError:
        bound.close()
        raise
    return bound


def _remove_left_over(path: Path) -> None:
    """Remove the socket of a server that was killed; one that answers is in use."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(os.fspath(path)) != 0:
            path.unlink(missing_ok=True)
