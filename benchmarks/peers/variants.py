"""The peers: two servers each, federated over loopback, set up for speed and without bounds that lose messages."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from benchmarks.domain.node_package import install_ws_relay
from benchmarks.sides import Load, Pair, Side
from benchmarks.variants import DOMAINS, Variant
from interop.free_ports import free_ports
from interop.processes import Child
from protofly.errors import Code, TransportError

CLIENT: Final = "benchmarks.peers.client"
START_SECONDS: Final = 30.0
_PLACES: Final = ("/usr/sbin", "/usr/local/sbin")
_PROBE: Final = Load(count=1, rate=1.0, body_bytes=200)

_BROKER: Final = """
listener {port} 127.0.0.1
allow_anonymous true
user root
persistence false
log_type error
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
"""
_BRIDGE: Final = """
connection other
address 127.0.0.1:{port}
bridge_protocol_version mqttv311
bridge_attempt_unsubscribe false
notifications false
restart_timeout 1
topic # out {qos}
"""
_NATS: Final = """
listen: "127.0.0.1:{port}"
ping_interval: "1h"
max_pending: 512MB
"""
_LEAF_SERVER: Final = 'leafnodes {{ listen: "127.0.0.1:{leaf}" }}\n'
_LEAF: Final = 'leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{leaf}" }} ] }}\n'
_XMPP_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""Addresses as domains: nobody has to be asked where they are."""
_EJABBERD: Final = """
hosts: ["{host}"]
loglevel: error
auth_method: anonymous
anonymous_protocol: sasl_anon
allow_multiple_connections: true
s2s_use_starttls: false
outgoing_s2s_port: {other}
outgoing_s2s_families: [ipv4]
listen:
  - {{ port: {port}, ip: "{host}", module: ejabberd_c2s, max_stanza_size: 262144, shaper: none, access: all }}
  - {{ port: {own}, ip: "{host}", module: ejabberd_s2s_in, shaper: none }}
modules:
  mod_s2s_dialback: {{ access: all }}
"""


class PeerVariant(Variant):
    """Two servers of somebody else. Clients speak `scheme`; senders are at the first, receivers at the second."""

    scheme = "ws"
    program = ""
    package = ""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, tls=False)
        self._servers: list[Child] = []
        self._places: list[tuple[str, int]] = []

    @property
    def is_plain(self) -> bool:
        """They know no sessions of ours."""
        return True

    @abstractmethod
    async def start(self) -> None:
        """Start both servers with `launch`.

        Raises:
            TransportError: the program is not there, or does not start.
        """

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the servers, have one message cross, and keep them until cancelled."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            await self.start()
            await self._wait_until_joined()
            task_status.started()
            await trio.sleep_forever()
        finally:
            await self.stop_clients()
            for server in self._servers:
                await server.stop()

    def found(self) -> str:
        """Path of the program.

        Raises:
            TransportError: NOT_CONNECTED, with what to install.
        """
        path = shutil.which(self.program, path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES]))
        if path is None:
            raise TransportError(Code.NOT_CONNECTED, f"there is no {self.program} (Debian package {self.package})")
        return path

    async def launch(
        self,
        place: tuple[str, int],
        command: Sequence[str],
        *,
        program: Sequence[str],
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start one server and wait until it listens at `place`.

        Raises:
            TransportError: it does not within `START_SECONDS`.
        """
        log_file = self.folder / f"server-{len(self._servers)}.log"
        server = Child(command, log_file=log_file, program=program, environment=environment)
        self._servers.append(server)
        self._places.append(place)
        await server.start()
        with trio.move_on_after(START_SECONDS):
            while server.is_running:
                if await trio.to_thread.run_sync(_listens, place):
                    return
                await trio.sleep(0.05)  # another program says in no other way that it is ready
        words = log_file.read_text(errors="replace")[-300:] if log_file.exists() else ""
        raise TransportError(Code.NOT_CONNECTED, f"{self.name} does not start: {words}")

    async def launch_last_first(self, settings: dict[int, str], program: str) -> None:
        """Start the second server, then the first, which connects to it: settings by port, in this order.

        Raises:
            TransportError: as `launch`.
        """
        for port, text in settings.items():
            file = self.folder / f"{port}.conf"
            file.write_text(text)
            await self.launch(("127.0.0.1", port), ["-c", str(file)], program=(program,))
        self._servers.reverse()
        self._places.reverse()

    async def _wait_until_joined(self) -> None:
        """Bridges and leaves join some time after the servers have started."""
        pair = await self.pair(1)
        with trio.move_on_after(START_SECONDS):
            while not (await pair.run(_PROBE, self.pids())).is_faultless:
                pass
            return
        raise TransportError(Code.NOT_CONNECTED, f"{self.name}: no message crossed within {START_SECONDS:.0f} s")

    async def pair(self, width: int) -> Pair:
        """The clients with `width` connections on each side; connected when they are first asked for."""
        if width not in self._pairs:
            sides = []
            for name, domain, url in zip(("out", "in"), self.domains, self.urls(), strict=True):
                log_file = self.folder / "clients.log"
                side = Side(f"{name}-{width}", log_file=log_file, program=CLIENT, arguments=[self.scheme])
                await side.start(url=url, ca_file="", domain=domain, connections=width, plain=True)
                sides.append(side)
            self._pairs[width] = Pair(*sides)
        return self._pairs[width]

    def urls(self) -> tuple[str, str]:
        """URLs for clients of the first and of the second domain."""
        (one, first), (other, second) = self._places
        return f"{self.scheme}://{one}:{first}/ws", f"{self.scheme}://{other}:{second}/ws"

    def node_pids(self) -> tuple[int, int]:
        """The two servers."""
        first, second = self._servers
        return first.pid, second.pid


class MosquittoBridge(PeerVariant):
    """Two Mosquitto brokers; the first bridges everything to the second. With QoS 1 both hops acknowledge."""

    program = "mosquitto"
    package = "mosquitto"

    def __init__(self, name: str, folder: Path, *, qos: int) -> None:
        super().__init__(name, folder)
        self._qos = qos
        self.scheme = f"mqtt{qos}"

    async def start(self) -> None:
        """See `PeerVariant.start`. The second broker is there before the bridge wants it."""
        program = self.found()
        first, second = free_ports(2)
        texts = {second: _BROKER.format(port=second)}
        texts[first] = _BROKER.format(port=first) + _BRIDGE.format(port=second, qos=self._qos)
        await self.launch_last_first(texts, program)


class NatsLeaf(PeerVariant):
    """Two NATS servers; the first is a leaf node of the second. Nothing is acknowledged."""

    scheme = "nats"
    program = "nats-server"
    package = "nats-server"

    async def start(self) -> None:
        """See `PeerVariant.start`."""
        program = self.found()
        first, second, leaf = free_ports(3)
        texts = {second: _NATS.format(port=second) + _LEAF_SERVER.format(leaf=leaf)}
        texts[first] = _NATS.format(port=first) + _LEAF.format(leaf=leaf)
        await self.launch_last_first(texts, program)


class EjabberdFederation(PeerVariant):
    """Two ejabberd servers and XMPP's server-to-server protocol with dialback, without TLS."""

    scheme = "xmpp"
    program = "erl"
    package = "ejabberd"

    async def start(self) -> None:
        """See `PeerVariant.start`. Started as its own control script does, without a name: no daemon stays behind."""
        program = self.found()
        libraries = _libraries()
        if libraries is None:
            raise TransportError(Code.NOT_CONNECTED, f"there is no ejabberd (Debian package {self.package})")
        ports = free_ports(4)
        for index, host in enumerate(_XMPP_HOSTS):
            folder = self.folder / host
            folder.mkdir()
            port, own, other = ports[index], ports[2 + index], ports[3 - index]
            settings = folder / "ejabberd.yml"
            settings.write_text(_EJABBERD.format(host=host, port=port, own=own, other=other))
            environment = {
                "EJABBERD_CONFIG_PATH": str(settings),
                "EJABBERD_LOG_PATH": str(folder / "ejabberd.log"),
                "ERL_LIBS": str(libraries),
                "HOME": str(folder),
            }
            spool = f'"{folder / "spool"}"'
            command = ["+K", "true", "-noinput", "-mnesia", "dir", spool, "-s", "ejabberd"]
            await self.launch((host, port), command, program=(program,), environment=environment)


class RelaysOnWs(PeerVariant):
    """Two relays in series in Node.js, on npm's `ws`."""

    async def start(self) -> None:
        """See `PeerVariant.start`."""
        script = await install_ws_relay(self.folder.parent / "ws-package", script="chain.js")
        await self.start_chain(str(script), program=("node",))

    async def start_chain(self, *command: str, program: Sequence[str]) -> None:
        """Start the last relay, then the first with the last one's URL; both say where they listen."""
        hop: list[str] = []
        for _ in DOMAINS:
            relay = Child([*command, *hop], log_file=self.folder / "relays.log", program=program)
            self._servers.insert(0, relay)
            await relay.start()
            port = int(str((await relay.wait_ready())["port"]))
            self._places.insert(0, ("127.0.0.1", port))
            hop = [f"ws://127.0.0.1:{port}/link"]


class RelaysOnAdapter(RelaysOnWs):
    """Two relays in series on the WebSocket adapter of our node: the floor under what the node adds."""

    async def start(self) -> None:
        """See `PeerVariant.start`."""
        await self.start_chain("benchmarks.peers.adapter_relay", program=(sys.executable, "-m"))


def _libraries() -> Path | None:
    """Where Debian has put ejabberd among the libraries of Erlang."""
    return next((found.parent for found in Path("/usr/lib").glob("*/ejabberd-*")), None)


def _listens(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, 1.0).close()
    except OSError:
        return False
    return True
