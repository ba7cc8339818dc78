"""Ports for servers that start later."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from interop import free_ports as module
from interop.free_ports import free_ports, is_free, reserve
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


def test_ports_are_of_one_process_while_it_lives_whether_servers_listen_there_or_not() -> None:
    program = "from interop.free_ports import free_ports; print(*free_ports(20), flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        ports = [int(word) for word in other.stdout.readline().split()]
        assert len(ports) == 20
        assert all(map(is_free, ports))
        assert not any(reserve([port]) for port in ports)
        other.kill()
    assert reserve(ports)


def test_ports_of_this_process_are_reserved_again_and_chosen_only_once() -> None:
    ports = free_ports(50)
    assert reserve(ports)
    assert not set(free_ports(50)) & set(ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not reserve(ports)


def test_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(SettingsError, match="70000 free ports"):
        free_ports(70_000)


@pytest.mark.parametrize("text", ["1024 60999\n", "", "no numbers", None])
def test_where_the_kernel_hands_out_all_or_does_not_say_there_are_ports_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    handed_out = tmp_path / "range"
    if text is not None:
        handed_out.write_text(text)
    monkeypatch.setattr(module, "_HANDED_OUT", handed_out)
    assert len(free_ports(3)) == 3
