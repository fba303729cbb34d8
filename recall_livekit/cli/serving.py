"""``serve``: the engine behind HTTP. The server's parts are imported here and nowhere else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ..errors import InvalidSettings
from .codes import Failed
from .running import finish
from .times import seconds_of

__all__ = ["listen_at", "retained", "serve", "with_server"]

INSTALL = 'in a checkout of recall-livekit: pip install ".[server]"'


def serve(store: str, listen: str, retain: Sequence[str], level: str) -> None:
    """Serve until told to leave.

    Raises:
        typer.Exit: Always.
    """
    finish(lambda: _serve(store, listen, retain, level))


def _serve(store: str, listen: str, retain: Sequence[str], level: str) -> None:
    host, port, unix_path = listen_at(listen)
    with_server()
    from ..server import logs
    from ..server.options import ServeOptions
    from ..server.serve import run

    options = ServeOptions(
        store_url=store, host=host, port=port, unix_path=unix_path, retain=retained(retain)
    )
    if sys.stderr.isatty():
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    else:
        logs.log_as_json(level)
    run(options)


def with_server() -> None:
    """Do nothing if what a server needs is installed.

    Raises:
        Failed: It is not; the text says what to install.
    """
    try:
        _import_server()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("recall_livekit"):
            raise
        raise Failed(
            f"{error.name} is not installed, which a server is made of: {INSTALL}"
        ) from error


def _import_server() -> ModuleType:
    from ..server import serve

    return serve


def listen_at(text: str) -> tuple[str, int, Path | None]:
    """Return host, port and path of ``HOST:PORT``, ``:PORT`` (every address of this machine),
    ``[IPV6]:PORT`` or ``unix:PATH``.

    Raises:
        InvalidSettings: It is none of these.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return "127.0.0.1", 0, Path(text.removeprefix("unix:"))
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    named = bracketed or ":" not in host
    if colon and named and port.isascii() and port.isdigit() and int(port) <= 65535:
        return host.strip("[]") if bracketed else host or "0.0.0.0", int(port), None  # noqa: S104
    raise InvalidSettings(
        f"{text!r} is nothing to listen at: write HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH"
    )


def retained(texts: Sequence[str]) -> dict[str, float]:
    """Return for each namespace of ``NAMESPACE=30d`` for how many seconds calls are kept.

    Raises:
        InvalidSettings: One is not of this form.
    """
    kept: dict[str, float] = {}
    for text in texts:
        namespace, equals, duration = text.partition("=")
        try:
            if not (namespace and equals):
                raise ValueError(f"{text!r} has no form: write NAMESPACE=30d")
            kept[namespace] = seconds_of(duration)
        except ValueError as error:
            raise InvalidSettings(f"--retain: {error}") from None
    return kept
