"""Lines to judged addresses, against the real name server and real listeners on loopback."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from federation.core.discovery_errors import DiscoveryError, DiscoveryLineError, DiscoveryStep
from federation.core.name_questions import AnswerStatus, Question, RecordKind
from federation.discovery.dialler import Dialler
from federation.discovery.name_client import DnsClient, parse_nameserver
from interop.name_server import Fault
from protofly.errors import Code, HostError, SettingsError
from tests.support.names import SILENCE, ScriptedNames, name_service, names_with_addresses
from wire.core.network import parse_networks

LOOPBACK = {"b.example": parse_networks(["127.0.0.0/8", "::1/128"])}


def has(code: Code) -> Callable[[HostError], bool]:
    return lambda error: error.code is code


@asynccontextmanager
async def listener(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[str]]]:
    """A server that notes who connects; its port and those notes."""
    seen: list[str] = []

    async def serve(stream: trio.SocketStream) -> None:
        seen.append(stream.socket.getsockname()[0])
        await stream.send_all(b"hello")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield listeners[0].socket.getsockname()[1], seen
        nursery.cancel_scope.cancel()


async def read_hello(stream: trio.SocketStream) -> bytes:
    async with stream:
        return bytes(await stream.receive_some(5))


async def test_named_host_is_asked_judged_and_reached() -> None:
    async with listener() as (port, _), name_service({"mn.b.example": ["A 127.0.0.1"]}) as (server, client):
        dialler = Dialler(client, allow_addresses=LOOPBACK)
        assert await read_hello(await dialler.connect("mn.b.example", port, domain="b.example")) == b"hello"
        assert await read_hello(await dialler.connect("mn.b.example", port, domain="b.example")) == b"hello"
        assert server.asked("mn.b.example", "A") == 1
        steps = [(attempt.step, attempt.outcome) for attempt in dialler.log.of("b.example")]
    assert steps.count((DiscoveryStep.CONNECT, "ok")) == 2
    assert (DiscoveryStep.ADDRESS, "found") in steps


async def test_address_in_place_of_a_name_is_judged_and_asks_nobody() -> None:
    names = ScriptedNames()
    async with listener() as (port, _):
        dialler = Dialler(names, allow_addresses=LOOPBACK)
        assert await read_hello(await dialler.connect("127.0.0.1", port, domain="b.example")) == b"hello"
        with pytest.raises(DiscoveryError, check=has(Code.ADDRESS_REFUSED)):
            await dialler.connect("127.0.0.1", port, domain="c.example")
    assert names.asked == []


async def test_first_address_dead_second_alive_connects_without_the_pause() -> None:
    names = names_with_addresses(mn_b_example=["::1", "127.0.0.1"])
    async with listener() as (port, seen):
        dialler = Dialler(names, allow_addresses=LOOPBACK)
        assert await read_hello(await dialler.connect("mn.b.example", port, domain="b.example")) == b"hello"
    assert seen == ["127.0.0.1"]
    outcomes = [attempt.outcome for attempt in dialler.log.of("b.example") if attempt.step is DiscoveryStep.CONNECT]
    assert outcomes == ["connect-failed", "ok"]


async def test_nobody_listening_fails_with_what_was_tried_and_asks_again_next_time() -> None:
    names = names_with_addresses(mn_b_example=["127.0.0.1"])
    async with listener() as (port, _):
        pass
    dialler = Dialler(names, allow_addresses=LOOPBACK)
    for _ in range(2):
        with pytest.raises(DiscoveryLineError, check=has(Code.CONNECT_FAILED)) as caught:
            await dialler.connect("mn.b.example", port, domain="b.example")
    assert caught.value.phase == "connect"
    assert caught.value.failure.reason == "discovery-failed:connect"
    assert caught.value.failure.attempts[-1].subject == f"TCP 127.0.0.1:{port}"
    assert names.asked.count("A mn.b.example") == 2


async def test_name_without_address_and_silent_servers_are_distinguished() -> None:
    dialler = Dialler(ScriptedNames())
    with pytest.raises(DiscoveryError, check=has(Code.NO_SUCH_DOMAIN)):
        await dialler.connect("mn.b.example", 443, domain="b.example")
    silent = ScriptedNames()
    silent.default = SILENCE
    with pytest.raises(DiscoveryLineError, check=has(Code.DNS_FAILED)) as caught:
        await Dialler(silent).connect("mn.b.example", 443, domain="b.example")
    assert caught.value.phase == "resolve"


async def test_refused_port_asks_nobody() -> None:
    names = names_with_addresses(mn_b_example=["127.0.0.1"])
    with pytest.raises(DiscoveryError, check=has(Code.PORT_REFUSED)):
        await Dialler(names, allow_addresses=LOOPBACK).connect("mn.b.example", 25, domain="b.example")
    assert names.asked == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "mn", "mn.b.example.", "0x7f.1", "127.1", "2130706433", "a b.example"]
)
async def test_host_that_is_no_domain_name_asks_nobody(host: str) -> None:
    names = ScriptedNames()
    with pytest.raises(DiscoveryError, check=has(Code.NAME_INVALID)):
        await Dialler(names).connect(host, 443, domain="b.example")
    assert names.asked == []


def test_ranges_for_wildcards_are_refused() -> None:
    with pytest.raises(SettingsError, match="named in full"):
        Dialler(ScriptedNames(), allow_addresses={"*.b.example": parse_networks(["10.0.0.0/8"])})


async def test_ranges_can_be_replaced_while_running() -> None:
    async with listener() as (port, _):
        dialler = Dialler(ScriptedNames(), allow_addresses=LOOPBACK)
        dialler.replace_allowed({})
        with pytest.raises(DiscoveryError, check=has(Code.ADDRESS_REFUSED)):
            await dialler.connect("127.0.0.1", port, domain="b.example")


@pytest.mark.parametrize("fault", [Fault.SERVFAIL, Fault.REFUSED])
async def test_name_server_in_trouble_is_a_failure_of_the_line(fault: Fault) -> None:
    async with name_service({}, faults={"mn.b.example": fault}) as (_, client):
        with pytest.raises(DiscoveryLineError, check=has(Code.DNS_FAILED)):
            await Dialler(client).connect("mn.b.example", 443, domain="b.example")


async def test_answer_too_large_for_a_datagram_comes_over_tcp_and_is_bounded() -> None:
    many = [f"A 127.0.{number // 200}.{number % 200 + 1}" for number in range(400)]
    async with name_service({"mn.b.example": many}) as (server, client):
        answer = await client.ask(Question("mn.b.example", RecordKind.A))
    assert [query.transport for query in server.queries] == ["udp", "tcp"]
    assert answer.status is AnswerStatus.FAILED
    assert "400 records" in answer.detail


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1", ("127.0.0.1", 53)),
        ("127.0.0.1:5300", ("127.0.0.1", 5300)),
        ("::1", ("::1", 53)),
        ("[::1]", ("::1", 53)),
        ("[::1]:5300", ("::1", 5300)),
    ],
)
def test_name_server_settings_are_read(text: str, parsed: tuple[str, int]) -> None:
    assert parse_nameserver(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "dns.example", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "[::1", "[::1]x", "1.2.3"]
)
def test_what_is_no_name_server_is_an_error_of_the_operator(text: str) -> None:
    with pytest.raises(SettingsError):
        DnsClient([text])


@pytest.mark.parametrize("servers", [[], ["192.0.2.53"], ["127.0.0.1", "192.0.2.53"]])
def test_ad_bit_of_name_servers_on_an_open_way_is_not_believed(servers: list[str]) -> None:
    with pytest.raises(SettingsError, match="forged"):
        DnsClient(servers, believes_ad=True)
