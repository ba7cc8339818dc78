"""A runtime that breaks JSON, WebSocket or TCP rules hurts nobody but itself."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from protofly.limits import BROKEN_FRAMES_IN_A_ROW, FRAME_BYTES, MESSAGE_FRAGMENTS, NESTING_LEVELS
from tests.support.runtime_rig import (
    DOMAIN,
    SESSION,
    Runtime,
    RuntimeRig,
    a_message,
    runtime_address,
    runtime_rig,
)

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_MASK = b"\x0a\x0b\x0c\x0d"


def frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """One frame made by hand, rules or not."""
    head = bytes([(0x80 if fin else 0) | reserved | opcode])
    bit = 0x80 if masked else 0
    size = len(payload)
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    pad = _MASK * (size // 4 + 1)
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(pad[:size], "big")
    return head + _MASK + mixed.to_bytes(size, "big")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def check_neighbours(rig: RuntimeRig) -> None:
    """Others talk as before, and the node found nothing wrong with itself."""
    bo, cleo = await rig.opened("neighbour-1"), await rig.opened("neighbour-2")
    await bo.say(a_message("event", bo.address, cleo.address, {"value": 1}))
    await bo.heard()
    assert [one["body"]["value"] for one in await cleo.heard()] == [1]
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


# JSON.


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"type":"event"',
        b'{"a":1}}',
        b"{'type':1}",
        b"{" * 99,
    ],
)
async def test_what_is_no_json_object_is_counted_and_not_answered(rig: RuntimeRig, text: bytes) -> None:
    eve = await rig.opened("eve")
    await eve.wire.write(frame(TEXT, text))
    assert await eve.heard() == []
    assert rig.counters["broken frames"] == 1
    await check_neighbours(rig)


async def test_texts_cut_inside_a_character_are_no_broken_texts(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    for id_ in range(BROKEN_FRAMES_IN_A_ROW):
        head = f'{{"id":{id_},"type":"execute","from":"{ana.address}","to":"{bo.address}"'
        await ana.say_raw((head + ',"body":{"value":"cut \\ud83d"}}').encode())
    heard = [(one["id"], one["body"]) for one in await bo.heard()]
    assert heard == [(id_, {"value": "cut \ufffd"}) for id_ in range(BROKEN_FRAMES_IN_A_ROW)]
    value = {"url": f"hyperty://{DOMAIN}/cut", "user": "cut \ud83d", "descriptor": "d", "runtime": ana.address}
    assert (await ana.ask("create", f"domain://registry.{DOMAIN}", {"value": value}))["body"][
        "code"
    ] == 200  # it is on disk now
    assert rig.counters["broken frames"] == 0


async def test_five_broken_texts_in_a_row_end_the_connection_four_do_not(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    for _ in range(3):
        await eve.say_raw(*[b"{"] * (BROKEN_FRAMES_IN_A_ROW - 1))
        assert await eve.heard() == []
    await eve.say_raw(*[b"{"] * BROKEN_FRAMES_IN_A_ROW)
    assert await eve.close_code() == 1002
    await check_neighbours(rig)


@pytest.mark.parametrize(
    ("broken", "reason", "member"),
    [
        ({"type": "event", "to": "x", "id": 7}, "bad-header", "from"),
        ({"type": "event", "from": 5, "to": "x", "id": 7}, "bad-header", "from"),
        ({"type": "event", "from": runtime_address("eve"), "id": 7}, "bad-header", "to"),
        ({"type": "event", "from": runtime_address("eve"), "to": 5, "id": 7}, "bad-header", "to"),
        ({"type": "event", "from": runtime_address("eve"), "to": [], "id": 7}, "bad-header", "to"),
        ({"type": "event", "from": runtime_address("eve"), "to": ["x", 5], "id": 7}, "bad-header", "to"),
        ({"from": runtime_address("eve"), "to": "x", "id": 7}, "bad-header", "type"),
        ({"type": "", "from": runtime_address("eve"), "to": "x", "id": 7}, "bad-header", "type"),
        ({"type": "event", "from": runtime_address("eve"), "to": "x", "id": 7, "body": []}, "bad-body", "body"),
        ({"type": "event", "from": runtime_address("eve"), "to": "x", "id": 7, "body": "x"}, "bad-body", "body"),
    ],
)
async def test_a_broken_header_is_answered_by_the_validator(
    rig: RuntimeRig, broken: dict[str, object], reason: str, member: str
) -> None:
    eve = await rig.opened("eve")
    await eve.say(broken)
    (answer,) = await eve.heard()
    assert (answer["id"], answer["from"], answer["to"]) == (7, "mn:/validator", eve.address)
    assert (answer["body"]["code"], answer["body"]["reason"]) == (400, reason)
    assert answer["body"]["value"] == {"member": member}
    await eve.say({**broken, "type": "response"} if member != "type" else {"type": "response", "id": 7})
    assert await eve.heard() == []
    await check_neighbours(rig)


def nested(levels: int) -> bytes:
    inner = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"id":7,"type":"event","from":"%s","to":"x","body":%s}' % (runtime_address("eve").encode(), inner)


async def test_json_is_taken_to_its_depth_and_no_further(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    await eve.say_raw(nested(NESTING_LEVELS - 1))
    assert await eve.heard() == []
    for levels in (NESTING_LEVELS, 5_000, 100_000):
        await eve.say_raw(nested(levels))
        (answer,) = await eve.heard()
        assert (answer["body"]["code"], answer["body"]["reason"]) == (400, "too-deep")
    await check_neighbours(rig)


async def test_deep_json_in_a_row_ends_the_connection(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    await eve.say_raw(*[b"[" * 50_000] * BROKEN_FRAMES_IN_A_ROW)
    assert await eve.close_code() == 1002
    await check_neighbours(rig)


# WebSocket.


HUGE = 1 << 62
TOP_BIT = 1 << 63
BROKEN_FRAMES = {
    "unmasked": (frame(TEXT, b"{}", masked=False), 1002),
    **{f"reserved bit {bit:x}": (frame(TEXT, b"{}", reserved=bit), 1002) for bit in (0x10, 0x20, 0x40, 0x70)},
    "compressed, which nobody agreed on": (frame(TEXT, b"\xaa\x56\xaa\x05\x00", reserved=0x40), 1002),
    "a reserved bit on a ping": (frame(PING, b"", reserved=0x20), 1002),
    **{f"opcode {opcode}": (frame(opcode, b"{}"), 1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "continuation of nothing": (frame(CONTINUATION, b"{}"), 1002),
    "last continuation of nothing": (frame(CONTINUATION, b"{}", fin=False), 1002),
    "text inside text": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    "binary inside text": (frame(TEXT, b"{", fin=False) + frame(BINARY, b"}"), 1002),
    "close inside text": (frame(TEXT, b"{", fin=False) + frame(CLOSE, b"\x03\xe8"), 1002),
    **{f"long control {opcode}": (frame(opcode, b"\x03\xe8" + b"x" * 124), 1002) for opcode in (CLOSE, PING, PONG)},
    **{f"control {opcode} in parts": (frame(opcode, b"\x03\xe8", fin=False), 1002) for opcode in (CLOSE, PING, PONG)},
    "half a close code": (frame(CLOSE, b"\x03"), 1002),
    **{
        f"close code {code}": (frame(CLOSE, struct.pack(">H", code)), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)
    },
    "a reason that is not UTF-8": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "text that is not UTF-8": (frame(TEXT, b'{"id":"\xff"}'), 1007),
    "text that ends inside a character": (frame(TEXT, "é".encode()[:1]), 1007),
    "a surrogate in UTF-8": (frame(TEXT, b'"\xed\xa0\x80"'), 1007),
    "not UTF-8 in parts": (frame(TEXT, b"\xc3", fin=False) + frame(CONTINUATION, b"("), 1007),
    "binary": (frame(BINARY, b"{}"), 1003),
    "binary in parts": (frame(BINARY, b"{", fin=False), 1003),
    "two mebibytes": (frame(TEXT, b"{" * (2 << 20)), 1009),
    "four exbibytes promised": (b"\x81\xff" + struct.pack(">Q", HUGE) + _MASK, 1009),
    "a length with its top bit": (b"\x81\xff" + struct.pack(">Q", TOP_BIT) + _MASK, 1009),
    "a ping with a length of eight bytes": (b"\x89\xff" + struct.pack(">Q", TOP_BIT) + _MASK, 1009),
    "fragments without end": (
        frame(TEXT, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * MESSAGE_FRAGMENTS,
        1009,
    ),
    "short fragments without end": (
        frame(TEXT, b" ", fin=False) + frame(CONTINUATION, b" ", fin=False) * MESSAGE_FRAGMENTS,
        1009,
    ),
    "large by fragments": (frame(TEXT, b" " * FRAME_BYTES, fin=False) + frame(CONTINUATION, b"x"), 1009),
}


@pytest.mark.parametrize(("attack", "code"), BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
async def test_a_broken_frame_ends_its_connection_and_nothing_else(rig: RuntimeRig, attack: bytes, code: int) -> None:
    eve, bo = await rig.opened("eve"), await rig.opened("bo")
    stolen = json.dumps(a_message("event", eve.address, bo.address, {"value": "behind it"})).encode()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_what_is_taken, eve, attack + frame(TEXT, stolen))
        assert await eve.close_code() == code
        nursery.cancel_scope.cancel()
    assert rig.listener is not None
    assert rig.listener.counters["broken connections"] == 1
    assert rig.counters["sessions lost"] == 1
    assert await bo.heard() == []  # what came behind the broken frame is not read
    await check_neighbours(rig)
    back = await rig.runtime()
    assert (await back.ask("re-open", SESSION, from_=eve.session_address))["body"]["code"] == 200


@pytest.mark.parametrize("length", [b"\xfe\x00\x02", b"\xff" + struct.pack(">Q", 2)])
async def test_a_length_in_more_bytes_than_it_needs_is_read_as_what_it_says(rig: RuntimeRig, length: bytes) -> None:
    eve = await rig.opened("eve")
    await eve.wire.write(b"\x81" + length + bytes(4) + b"[]")
    assert await eve.heard() == []
    assert rig.counters["broken frames"] == 1  # the text, which is no message
    await check_neighbours(rig)


@pytest.mark.parametrize("early", [frame(TEXT, b"{}"), frame(PING, b"?"), frame(TEXT, b"{}", masked=False), b"x"])
async def test_frames_before_the_answer_to_the_upgrade_are_refused(rig: RuntimeRig, early: bytes) -> None:
    wire = await rig.connect()
    await wire.write(UPGRADE + early)
    assert (await wire.read_to_end()).startswith(b"HTTP/1.1 400 ")
    assert rig.listener is not None
    assert rig.listener.counters["failed handshakes"] == 1
    await check_neighbours(rig)


@pytest.mark.parametrize("path", [b"/nowhere", b"/stub/nowhere", b"/link"])
async def test_a_refused_upgrade_is_answered_whatever_comes_behind_it(rig: RuntimeRig, path: bytes) -> None:
    wire = await rig.connect()
    await wire.write(UPGRADE.replace(b"/ws", path) + b"\x00\x00")
    assert (await wire.read_to_end()).startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 404 "))
    await check_neighbours(rig)


async def write_what_is_taken(runtime: Runtime, data: bytes) -> None:
    try:
        await runtime.wire.stream.send_all(data)
    except trio.BrokenResourceError:
        return  # the node has closed before it read all


@pytest.mark.parametrize(("flip", "code"), [(0x01, None), (0xFF, 1007)])
async def test_a_wrong_mask_gives_noise_not_a_message(rig: RuntimeRig, flip: int, code: int | None) -> None:
    eve = await rig.opened("eve")
    good = bytearray(frame(TEXT, json.dumps(a_message("ping", eve.address, SESSION, id_=1)).encode()))
    good[good.index(_MASK)] ^= flip
    await eve.wire.write(bytes(good))
    if code is None:
        assert await eve.heard() == []
        assert rig.counters["broken frames"] == 1
    else:
        assert await eve.close_code() == code
    await check_neighbours(rig)


async def test_a_message_in_fragments_with_pings_between_them_is_one_message(rig: RuntimeRig) -> None:
    eve, bo = await rig.opened("eve"), await rig.opened("bo")
    text = json.dumps(a_message("event", eve.address, bo.address, {"value": "é" * 500}), ensure_ascii=False).encode()
    cuts = [text[start : start + 7] for start in range(0, len(text), 7)]  # also inside characters
    for number, part in enumerate(cuts):
        opcode = TEXT if number == 0 else CONTINUATION
        await eve.wire.write(frame(opcode, part, fin=number == len(cuts) - 1) + frame(PING, b"%d" % number))
    pongs = b""
    while pongs.count(b"\x8a") < len(cuts):
        pongs += await eve.wire.read()
    assert [pongs[at + 2 :].startswith(b"0") for at in [pongs.index(b"\x8a")]] == [True]
    assert (await bo.next())["body"]["value"] == "é" * 500


async def test_a_frame_of_the_largest_size_passes_and_one_byte_more_does_not(rig: RuntimeRig) -> None:
    eve, bo = await rig.opened("eve"), await rig.opened("bo")
    empty = len(json.dumps(a_message("event", eve.address, bo.address, {"value": ""})))
    async with trio.open_nursery() as nursery:
        largest = a_message("event", eve.address, bo.address, {"value": "x" * (FRAME_BYTES - empty)})
        nursery.start_soon(eve.say, largest)
        assert await bo.next() == largest
    async with trio.open_nursery() as nursery:
        over = json.dumps(a_message("event", eve.address, bo.address, {"value": "x" * (FRAME_BYTES - empty + 1)}))
        nursery.start_soon(write_what_is_taken, eve, frame(TEXT, over.encode()))
        assert await eve.close_code() == 1009
        nursery.cancel_scope.cancel()
    assert await bo.heard() == []


# TCP.


async def test_a_reset_before_accept_does_not_end_the_node(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        with socket.create_connection(("127.0.0.1", rig.port)) as hasty:
            hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await check_neighbours(rig)


@pytest.mark.parametrize("taken", [0, 1, 20, 60])
async def test_a_reset_in_the_middle_of_the_upgrade_is_forgotten(rig: RuntimeRig, taken: int) -> None:
    wire = await rig.connect()
    await wire.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"[:taken] or b"G"
    )
    await check_neighbours(rig)
    wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await wire.cut()
    assert rig.listener is not None
    with trio.fail_after(10):
        while rig.listener.half_open:
            await trio.lowlevel.checkpoint()


async def test_a_reset_of_an_open_session_parks_it(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    eve.wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await eve.wire.cut()
    with trio.fail_after(10):
        while rig.counters["sessions lost"] < 1:
            await trio.lowlevel.checkpoint()
    bo = await rig.opened("bo")
    assert (await bo.ask("read", eve.address))["body"]["reason"] == "not-connected"
    await check_neighbours(rig)
