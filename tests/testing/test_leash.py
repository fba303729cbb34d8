"""Ports for servers that are started in a moment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from recall_livekit.testing import leash
from recall_livekit.testing.leash import NotStarted, free_ports

GIVEN_TO_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_free_and_no_connection_is_given_one_of_them() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    if GIVEN_TO_CONNECTIONS.exists():
        assert max(leash.PORTS) < int(GIVEN_TO_CONNECTIONS.read_text().split()[0])


def test_one_that_is_listened_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(leash, "PORTS", range(port, port + 1))
        with pytest.raises(NotStarted, match="not 1 are free"):
            free_ports(1)
