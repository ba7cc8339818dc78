"""Lies about whose connection it is: strangers with headers of proxies, proxies that say nothing or nonsense."""

from __future__ import annotations

import ipaddress
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from interop.free_ports import free_ports
from msg_node.connectors import listener, web_server
from msg_node.connectors.proxies import Proxies
from tests.support.runtime_rig import PATIENCE_SECONDS, Runtime, RuntimeRig, Wire, code_and_reason, runtime_rig
from tests.support.web import ASK, EVE, HONEST, WebRig, web_rig
from wire.core.websocket import ClientWebSocket

PROXY = "127.0.0.9"
CLIENT = "203.0.113.7"
DEPLOY = Path(__file__).parents[2] / "deploy"
BY_FIELD = Proxies([ipaddress.ip_network(PROXY)])
BY_HEADER = Proxies([ipaddress.ip_network(PROXY)], "proxy-protocol")
V1 = f"PROXY TCP4 {CLIENT} 127.0.0.1 4000 443\r\n".encode()
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def asking(*fields: str) -> bytes:
    return ASK[:-2] + "".join(f"{field}\r\n" for field in fields).encode() + b"\r\n"


async def connected(rig: RuntimeRig, address: str = PROXY) -> Wire:
    with trio.fail_after(PATIENCE_SECONDS):
        return Wire(await trio.open_tcp_stream("127.0.0.1", rig.port, local_address=address))


def counted(rig: RuntimeRig, client: str) -> int:
    """Half-open connections that count for a client."""
    assert rig.listener is not None
    return rig.listener.half_open._table.count_of(client)


async def until_counted(rig: RuntimeRig, client: str, number: int) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while counted(rig, client) != number:
            await trio.lowlevel.checkpoint()


async def answers(rig: WebRig, request: bytes, address: str = HONEST) -> bytes:
    with trio.fail_after(PATIENCE_SECONDS):
        return (await rig.ask(request, address=address)).split(b"\r\n")[0]


# Header fields.


async def test_a_stranger_counts_for_itself_whatever_its_request_says() -> None:
    async with web_rig(requests_per_second=1.0) as rig:
        rig.server.proxies = BY_FIELD
        statuses = []
        for number in range(6):
            forged = f"X-Forwarded-For: 198.51.100.{number}", f"Forwarded: for=198.51.100.{number}"
            statuses.append(await answers(rig, asking(*forged), EVE))
        assert b" 429 " in statuses[-1] or statuses[-1] == b"", statuses
        assert list(rig.server._requests._buckets) == [EVE]
        assert b" 200 " in await answers(rig, asking(f"X-Forwarded-For: {CLIENT}"), PROXY)
        assert list(rig.server._requests._buckets) == [EVE, CLIENT]


async def test_what_clients_of_a_proxy_write_into_its_field_counts_nothing() -> None:
    async with web_rig(requests_per_second=1.0) as rig:
        rig.server.proxies = BY_FIELD
        statuses = [
            await answers(rig, asking("Forwarded: for=1.1.1.1", f"X-Forwarded-For: 10.0.0.{number}, {CLIENT}"), PROXY)
            for number in range(6)
        ]
        assert statuses[-1].endswith(b" 429 Too Many Requests"), statuses
        assert b" 200 " in await answers(rig, asking("X-Forwarded-For: 203.0.113.8"), PROXY)


@pytest.mark.parametrize(
    "field", [(), ("X-Forwarded-For: ",), ("X-Forwarded-For: 1.1.1.1, unknown",), ("Forwarded: for=1.1.1.1",)]
)
async def test_a_proxy_that_names_no_client_is_refused(field: tuple[str, ...]) -> None:
    async with web_rig() as rig:
        rig.server.proxies = BY_FIELD
        wire = await rig.wire(PROXY)
        await wire.write(asking(*field))
        answer = await wire.read_to_end()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\n\r\nproxy-header: " in answer
        assert rig.server.counters["refused proxy headers"] == 1
        await wire.cut()


async def test_a_proxy_on_this_machine_does_not_open_the_status_page() -> None:
    request = asking("X-Forwarded-For: 127.0.0.1").replace(b"/livez", b"/status")
    async with web_rig() as rig:
        rig.server.proxies = BY_FIELD
        assert b" 403 " in await answers(rig, request, PROXY)
        rig.server.proxies = BY_HEADER
        for header in (V1, b"PROXY UNKNOWN\r\n"):
            assert b" 403 " in await answers(rig, header + ASK.replace(b"/livez", b"/status"), PROXY)


# The PROXY protocol.


@pytest.mark.parametrize(
    "header", [V1, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\x7f\0\0\x01\x0f\xa0\x01\xbb"]
)
async def test_a_header_counts_for_its_client_only_if_a_proxy_sends_it(header: bytes, tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        assert rig.listener is not None
        rig.listener.proxies = BY_HEADER
        stranger = await connected(rig, EVE)
        await stranger.write(header + UPGRADE + b"\r\n")
        assert not (await stranger.read_to_end()).startswith(b"HTTP/1.1 101")
        assert counted(rig, CLIENT) == 0
        proxy = await connected(rig)
        for byte in header + UPGRADE:  # each in a packet of its own
            await proxy.write(bytes((byte,)))
        await until_counted(rig, CLIENT, 1)
        await proxy.write(b"\r\n")
        assert (await proxy.read()).startswith(b"HTTP/1.1 101")
        await stranger.cut()
        await proxy.cut()


@pytest.mark.parametrize(
    "start",
    [
        UPGRADE + b"\r\n",
        b"\x16\x03\x01" + bytes(40),
        b"PROXY " + b"x" * 200,
        b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n" + bytes(200),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff" + bytes(300),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8" + bytes(216),
    ],
)
async def test_a_proxy_without_a_valid_header_is_cut_off(start: bytes, tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        assert rig.listener is not None
        rig.listener.proxies = BY_HEADER
        wire = await connected(rig)
        await wire.write(start)
        assert await wire.read_to_end() == b""
        assert rig.listener.counters["refused proxy headers"] == 1
        assert not rig.listener.half_open
        await wire.cut()
        assert (await _opened_over(rig, "ana", V1)).address


async def test_a_header_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.05)
    monkeypatch.setattr(web_server, "HANDSHAKE_SECONDS", 0.05)
    async with runtime_rig(tmp_path) as rig, web_rig() as web:
        assert rig.listener is not None
        rig.listener.proxies = web.server.proxies = BY_HEADER
        for wire in (await connected(rig), await web.connect(PROXY)):
            await wire.write(V1[:-1])
            assert await wire.read_to_end() == b""
            await wire.cut()
        assert rig.listener.counters["slow handshakes, no PROXY header"] == 1
        assert web.server.counters["refused proxy headers"] == 1


async def test_a_client_takes_its_own_share_of_half_open_connections_over_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime_rig(tmp_path) as rig:
        assert rig.listener is not None
        rig.listener.proxies = BY_HEADER
        rig.listener.half_open._table.bound(most=1000, most_per_address=4)
        held = [await connected(rig) for _ in range(6)]
        for wire in held:
            await wire.write(V1)
        await until_counted(rig, CLIENT, 4)
        with trio.fail_after(PATIENCE_SECONDS):
            while rig.listener.counters["too many half-open"] < 2:
                await trio.lowlevel.checkpoint()
        other = await _opened_over(rig, "ana", V1.replace(CLIENT.encode(), b"203.0.113.8"))
        assert other.address
        for wire in held:
            await wire.cut()


async def _opened_over(rig: RuntimeRig, name: str, header: bytes) -> Runtime:
    wire = await connected(rig)
    await wire.write(header)
    runtime = Runtime(wire, ClientWebSocket("ws://localhost/ws", is_binary=False))
    await runtime.shake_hands()
    assert code_and_reason(await runtime.open(name)) == (200, "")
    rig._wires.append(wire)
    return runtime


# Real proxies, with the files that we give to operators.


@asynccontextmanager
async def running(*command: str, ports: list[int], folder: Path) -> AsyncIterator[None]:
    """A proxy, until it takes connections."""
    with (folder / "proxy.log").open("wb") as log:
        process = await trio.lowlevel.open_process(command, stdout=log, stderr=log)
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            while not all([await _is_open(port) for port in ports]):
                assert process.poll() is None, (folder / "proxy.log").read_text()
                await trio.sleep(0.02)
        yield
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _is_open(port: int) -> bool:
    try:
        await trio.aclose_forcefully(await trio.open_tcp_stream("127.0.0.1", port))
    except OSError:
        return False
    return True


def written(folder: Path, source: str, changes: dict[str, str]) -> Path:
    """A file of `deploy/` with other places."""
    text = (DEPLOY / source).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    made = folder / Path(source).name
    made.write_text(text)
    return made


async def opened_behind(rig: RuntimeRig, port: int, context: ssl.SSLContext, address: str) -> None:
    """A runtime of an address of its own opens a session over a proxy, and the node counts it for that address."""
    stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
    wire = Wire(trio.SSLStream(stream, context, server_hostname="localhost"))
    runtime = Runtime(wire, ClientWebSocket("wss://localhost/ws", is_binary=False))
    await runtime.shake_hands()
    await until_counted(rig, address, 1)
    assert code_and_reason(await runtime.open("ana")) == (200, "")
    await until_counted(rig, address, 0)
    await wire.cut()


def certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Files `pem` for a server, and the contexts of both sides."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "pem")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    issued.configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("haproxy", path="/usr/sbin:/usr/bin"), reason="apt-get install -y haproxy")
async def test_haproxy_passes_tls_on_and_names_the_client(tmp_path: Path) -> None:
    server, client = certificates(tmp_path)
    runtimes, site = free_ports(2)
    async with runtime_rig(tmp_path, context=server) as rig, web_rig() as web:
        assert rig.listener is not None
        rig.listener.proxies = web.server.proxies = Proxies([ipaddress.ip_network("127.0.0.1")], "proxy-protocol")
        places = {"10.0.0.11:8443": f"127.0.0.1:{rig.port}", "10.0.0.11:8444": web.site.url.removeprefix("http://")}
        places |= {"0.0.0.0:8443": f"127.0.0.1:{runtimes}", "0.0.0.0:443": f"127.0.0.1:{site}"}
        file = written(tmp_path, "haproxy/trapezoid.cfg", {**places, "maxconn 20000": "maxconn 200"})
        command = ("/usr/sbin/haproxy", "-db", "-f", str(file))
        async with running(*command, ports=[runtimes, site], folder=tmp_path):
            await opened_behind(rig, runtimes, client, "127.0.0.7")
            wire = Wire(await trio.open_tcp_stream("127.0.0.1", site, local_address="127.0.0.8"))
            await wire.write(ASK)
            assert b" 200 " in await wire.read()
            assert "127.0.0.8" in web.server._requests._buckets
            await wire.cut()


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("nginx", path="/usr/sbin:/usr/bin"), reason="apt-get install -y nginx-light")
async def test_nginx_ends_tls_and_names_the_client(tmp_path: Path) -> None:
    _, client = certificates(tmp_path)
    runtimes, site = free_ports(2)
    async with runtime_rig(tmp_path) as rig, web_rig() as web:
        assert rig.listener is not None
        rig.listener.proxies = web.server.proxies = Proxies([ipaddress.ip_network("127.0.0.1")])
        places = {"http://127.0.0.1:8443": f"http://127.0.0.1:{rig.port}", "http://127.0.0.1:8444": web.site.url}
        places |= {"0.0.0.0:8443": f"127.0.0.1:{runtimes}", "0.0.0.0:443": f"127.0.0.1:{site}"}
        for name in ("mn.a.example", "a.example"):
            places |= {f"tls/{name}.pem;": f"{name};", f"tls/{name}.key;": f"{name};"}
        places |= {f"/etc/nginx/{name};": f"{tmp_path}/pem;" for name in ("mn.a.example", "a.example")}
        included = written(tmp_path, "nginx/trapezoid.conf", places)
        paths = " ".join(
            f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        whole = f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {paths}\n"
        (tmp_path / "nginx.conf").write_text(f"{whole}include {included};\n}}\n")
        command = ("/usr/sbin/nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"))
        async with running(*command, ports=[runtimes, site], folder=tmp_path):
            await opened_behind(rig, runtimes, client, "127.0.0.7")
            stream = await trio.open_tcp_stream("127.0.0.1", site, local_address="127.0.0.8")
            wire = Wire(trio.SSLStream(stream, client, server_hostname="localhost", https_compatible=True))
            await wire.write(asking("X-Forwarded-For: 198.51.100.9", "Forwarded: for=198.51.100.9"))
            assert b" 200 " in await wire.read()
            assert list(web.server._requests._buckets) == ["127.0.0.8"]
            await wire.cut()
