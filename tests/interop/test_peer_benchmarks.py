from __future__ import annotations

import html
import json
import shutil
import socket
import time
from pathlib import Path

import pytest
import trio

from benchmarks.load_client import FIRST_NUMBER, Connection, Stream
from benchmarks.peers.client import LINES
from benchmarks.peers.plan import BRIDGE_QOS_1, FLOOR, LACKS, NATS, PEERS, WS_RELAYS, peer_shapes
from benchmarks.peers.variants import MosquittoBridge, NatsLeaf, PeerVariant, RelaysOnAdapter, RelaysOnWs
from benchmarks.plan import TRAPEZOID
from benchmarks.sides import Load
from protofly.errors import TransportError
from tests.support.services import running

STREAM = Stream(run=7, from_="hyperty://a.example/x", to="hyperty://b.example/y", body_bytes=200)
NUMBER = FIRST_NUMBER + 5
HAS_MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is not None


def frame_of(scheme: str) -> bytes:
    return LINES[scheme]().framing(STREAM).frame(NUMBER, time.monotonic_ns())


def mqtt_parts(packet: bytes, *, qos: int) -> tuple[bytes, bytes, bytes]:
    """Topic, id and text, read by the lengths that the packet names."""
    assert packet[0] == 0x30 | qos << 1
    size = (packet[1] & 0x7F) + 128 * packet[2]
    assert (packet[1] & 0x80, size) == (0x80, len(packet) - 3)
    end = 5 + int.from_bytes(packet[3:5], "big")
    return packet[5:end], packet[end : end + 2 * qos], packet[end + 2 * qos :]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_packet_of_mqtt_names_its_lengths_and_has_an_id_when_it_is_acknowledged(qos: int) -> None:
    topic, packet_id, text = mqtt_parts(frame_of(f"mqtt{qos}"), qos=qos)
    assert topic.decode() == STREAM.to
    assert (len(packet_id), packet_id == b"\0\0") == (2 * qos, False)
    assert json.loads(text)["body"]["n"] == NUMBER


def test_a_publish_of_nats_names_the_size_of_its_text() -> None:
    line, _, rest = frame_of("nats").partition(b"\r\n")
    word, subject, size = line.split()
    assert (word, subject.decode(), int(size)) == (b"PUB", STREAM.to, len(rest) - 2)
    assert json.loads(rest)["to"] == STREAM.to


def test_a_stanza_of_xmpp_escapes_the_text() -> None:
    head, _, rest = frame_of("xmpp").partition(b"<body>")
    assert f"to='{STREAM.to}'".encode() in head
    text = rest.removesuffix(b"</body></message>").decode()
    assert '"' not in text
    assert json.loads(html.unescape(text))["body"]["run"] == STREAM.run


@pytest.mark.parametrize("scheme", list(LINES))
def test_every_server_s_client_finds_number_and_time_in_what_another_sends(scheme: str) -> None:
    line = LINES[scheme]()
    framing = line.framing(STREAM)
    text = b"".join(framing.frame(FIRST_NUMBER + number, 10**13) for number in range(5))
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(near, mark=b"&quot;pad&quot;" if scheme == "xmpp" else b'"pad"')
        for begin in range(0, len(text), 97):
            connection.take(text[begin : begin + 97], line.pattern(STREAM.run), 10**13 + 5)
    assert connection.numbers() == [FIRST_NUMBER + number for number in range(5)]


async def carries(variant: PeerVariant) -> None:
    """One connection at full speed and five at a rate, without a fault."""
    async with running(variant.run, seconds=60):
        flood = await (await variant.pair(1)).run(Load(count=640, rate=0, body_bytes=200), variant.pids())
        many = await (await variant.pair(5)).run(Load(count=100, rate=1000, body_bytes=300), variant.pids())
    assert flood.is_faultless
    assert many.is_faultless
    assert flood.cpu_us_per_message > 0


async def test_relays_on_the_adapter_carry_all_loads(tmp_path: Path) -> None:
    await carries(RelaysOnAdapter(FLOOR, tmp_path / "relays"))


@pytest.mark.skipif(not HAS_MOSQUITTO, reason="Mosquitto is not installed")
async def test_an_acknowledging_bridge_carries_all_loads(tmp_path: Path) -> None:
    await carries(MosquittoBridge(BRIDGE_QOS_1, tmp_path / "bridge", qos=1))


@pytest.mark.parametrize(
    ("variant", "words"), [(NatsLeaf, "there is no nats-server (Debian package nats-server)"), (RelaysOnWs, "no node")]
)
async def test_a_peer_that_is_not_installed_says_what_is_missing(
    variant: type[PeerVariant], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("benchmarks.peers.variants._PLACES", ())
    with trio.fail_after(30), pytest.raises(TransportError, match=words.replace("(", r"\(").replace(")", r"\)")):
        await variant(NATS if variant is NatsLeaf else WS_RELAYS, tmp_path / "peer").start()


@pytest.mark.parametrize("quick", [True, False])
def test_every_shape_has_the_trapezoid_first_and_all_peers(quick: bool) -> None:
    plan = peer_shapes(quick=quick)
    assert [(shape.name, shape.body_bytes) for shape in plan] == [
        ("flood", 200),
        ("flood", 1000),
        ("500/s", 200),
        ("many", 300),
    ]
    assert all(shape.variants == (TRAPEZOID, *PEERS) for shape in plan)
    assert set(LACKS) == set(PEERS)
