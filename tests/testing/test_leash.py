"""Ports for servers that are started in a moment."""

from __future__ import annotations

import socket

import pytest

from recall_livekit.testing import leash
from recall_livekit.testing.leash import NotStarted, free_ports


def test_ports_are_free_and_no_connection_is_given_one_of_them() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    assert max(leash.PORTS) < 32_768, "Linux gives it to a connection; others begin higher"


def test_one_that_is_listened_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(leash, "PORTS", range(port, port + 1))
        with pytest.raises(NotStarted, match="not 1 are free"):
            free_ports(1)
