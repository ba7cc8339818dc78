"""Ports for servers that start later."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from interop import free_ports as module
from interop.free_ports import free_ports, is_free
from protofly.errors import SettingsError
from wire.core.network import judge_port


def test_ports_are_free_different_and_never_handed_out_by_the_kernel() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(map(is_free, ports))
    if lowest > 20_000:
        assert max(ports) < lowest


def test_ports_are_those_that_a_foreign_node_connects_to() -> None:
    for port in free_ports(50):
        judge_port(port)


def test_a_port_that_somebody_has_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(SettingsError, match="70000 free ports"):
        free_ports(70_000)


@pytest.mark.parametrize("text", ["1024 60999\n", "", "no numbers", None])
def test_where_the_kernel_hands_out_all_or_does_not_say_there_are_ports_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    told = tmp_path / "range"
    if text is not None:
        told.write_text(text)
    monkeypatch.setattr(module, "_HANDED_OUT", told)
    assert len(free_ports(3)) == 3
