"""Inputs that once broke a promise. `./run fuzz` prints the lines that belong here."""

from __future__ import annotations

import pytest

from tests.fuzz.connection_borders import UPGRADE, frame
from tests.fuzz.targets import TARGETS

FOUND = [
    ("websocket-frames", b"\x00" + frame(1, b"\xff")),
    ("first-request", UPGRADE.replace(b"/ws", b"/nowhere") + b"\x00\x00"),
    ("first-request", UPGRADE + b"\x00\x00"),
    ("http-requests", b"\x06HEAD / HTTP/1.1\r\nHost: a\r\n\r\nno request\r\n\r\n"),
    ("address", b"commacct:)//"),
    ("address", b"runtime:////alpha.example/rt-ana"),
    ("address", b"comm://alpha.example../x"),
    ("address", b"global://registry/./"),
    ("address", b"global:."),
    ("engine-io-payload", b"\x01\x00\x02\xff\xc3("),
]


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_broke_a_promise_once_does_not_again(name: str, data: bytes) -> None:
    TARGETS[name].run_within_budget(data)
