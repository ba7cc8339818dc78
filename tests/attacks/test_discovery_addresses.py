"""Attack rows 3 to 6: name servers that point us at ourselves, at our neighbours, or somewhere else the second time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

import federation.discovery.dialler
from federation.core.discovery_errors import DiscoveryError, DiscoveryLineError, DiscoveryStep
from federation.discovery.dialler import Dialler
from interop.name_server import Turns
from protofly.errors import Code
from tests.support.names import ScriptedNames, name_service, names_with_addresses
from wire.core.network import parse_networks

NOBODY_S = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.127.255.255", "100.100.100.200", "0.0.0.0", "0.1.2.3", "192.0.0.1"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.88.99.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1"),
    *("2001:db8::1", "3fff::1", "100::1", "2001:2::1", "2001:10::1", "5f00::1", "4000::1"),
]
WRAPPED = [
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "2002:7f00:1::", "2002:a00:1::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "64:ff9b:1:7f00:0:100::", "2001:0:4136:e378::1"),
    *("2001::1", "::ffff:169.254.169.254"),
]


@asynccontextmanager
async def counted_listener(*hosts: str) -> AsyncIterator[tuple[int, list[str]]]:
    """One port on several loopback addresses; which of them was connected to."""
    seen: list[str] = []

    async def serve(stream: trio.SocketStream) -> None:
        seen.append(stream.socket.getsockname()[0])
        await stream.send_all(b"hello")

    async with trio.open_nursery() as nursery:
        first = (await trio.open_tcp_listeners(0, host=hosts[0]))[0]
        port = first.socket.getsockname()[1]
        rest = [(await trio.open_tcp_listeners(port, host=host))[0] for host in hosts[1:]]
        nursery.start_soon(trio.serve_listeners, serve, [first, *rest])
        yield port, seen
        nursery.cancel_scope.cancel()


async def reach(dialler: Dialler, port: int) -> None:
    async with await dialler.connect("mn.b.example", port, domain="b.example") as stream:
        assert await stream.receive_some(5) == b"hello"


@pytest.mark.parametrize("address", NOBODY_S + WRAPPED)
async def test_answer_with_an_address_of_nobody_on_the_internet_is_refused(address: str) -> None:
    dialler = Dialler(names_with_addresses(mn_b_example=[address]))
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED) as caught:
        await dialler.connect("mn.b.example", 443, domain="b.example")
    assert caught.value.failure.step is DiscoveryStep.ADDRESS
    assert address in caught.value.detail
    assert not [attempt for attempt in dialler.log.of("b.example") if attempt.step is DiscoveryStep.CONNECT]


@pytest.mark.parametrize("address", NOBODY_S + WRAPPED)
async def test_the_same_addresses_are_refused_when_they_stand_in_place_of_a_name(address: str) -> None:
    names = ScriptedNames()
    with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
        await Dialler(names).connect(address, 443, domain="b.example")
    assert names.asked == []


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "fe80::1"]]
)
async def test_one_refused_address_refuses_the_whole_answer(addresses: list[str]) -> None:
    names = names_with_addresses(mn_b_example=addresses)
    async with counted_listener("127.0.0.1", "127.0.0.2") as (port, seen):
        dialler = Dialler(names, allow_addresses={"b.example": parse_networks(["127.0.0.1/32"])})
        with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
            await dialler.connect("mn.b.example", port, domain="b.example")
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []


async def test_rebinding_name_is_connected_where_it_was_judged_and_refused_later() -> None:
    changing = Turns((("1 A 127.0.0.1",), ("1 A 127.0.0.2",)))
    now = [1_800_000_000.0]
    async with (
        counted_listener("127.0.0.1", "127.0.0.2") as (port, seen),
        name_service({"mn.b.example": changing}) as (server, client),
    ):
        allowed = {"b.example": parse_networks(["127.0.0.1/32"])}
        dialler = Dialler(client, allow_addresses=allowed, clock=lambda: now[0])
        await reach(dialler, port)
        await reach(dialler, port)  # a TTL of one second is not followed
        assert server.asked("mn.b.example", "A") == 1
        now[0] += 61
        with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
            await dialler.connect("mn.b.example", port, domain="b.example")
        assert seen == ["127.0.0.1", "127.0.0.1"]


async def test_connection_that_arrives_elsewhere_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation.discovery.dialler, "same_address", lambda *_: False)
    async with counted_listener("127.0.0.1") as (port, _):
        dialler = Dialler(
            names_with_addresses(mn_b_example=["127.0.0.1"]),
            allow_addresses={"b.example": parse_networks(["127.0.0.0/8"])},
        )
        with pytest.raises(DiscoveryLineError, check=lambda error: error.code is Code.CONNECT_FAILED) as caught:
            await dialler.connect("mn.b.example", port, domain="b.example")
    assert "arrived at 127.0.0.1" in str(caught.value.failure.attempts[-1])


async def test_range_opened_for_one_domain_is_closed_for_all_others() -> None:
    names = names_with_addresses(mn_b_example=["127.0.0.1"])
    async with counted_listener("127.0.0.1") as (port, _):
        dialler = Dialler(names, allow_addresses={"b.example": parse_networks(["127.0.0.0/8"])})
        await reach(dialler, port)
        for domain in ("c.example", "x.b.example", "example", ""):
            with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
                await dialler.connect("mn.b.example", port, domain=domain)


async def test_environment_proxies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with counted_listener("127.0.0.1") as (port, seen):
        allowed = {"b.example": parse_networks(["127.0.0.0/8"])}
        await reach(Dialler(names_with_addresses(mn_b_example=["127.0.0.1"]), allow_addresses=allowed), port)
    assert seen == ["127.0.0.1"]
