"""Those who take the place of a domain, the clock of a node that is set, and documents with one flaw each."""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path

import pytest
import trio
import trustme

from interop.lab.core.flawed import flawed
from interop.lab.impostors import Fetched, impersonate, stand_in_site
from interop.lab.shifted_clock import set_clock, shift
from interop.partner.core.publication import WELL_KNOWN, Publication, payload_of
from protofly.signatures import SigningKey, decode_envelope

PATIENCE_SECONDS = 30.0
NOW = 1_795_219_200.0


def contexts(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server with a certificate of an authority, and a client that knows it."""
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("b.example").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def talk(port: int, client: ssl.SSLContext, data: bytes = b"") -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with trio.SSLStream(stream, client, server_hostname="b.example", https_compatible=True) as encrypted:
        await encrypted.do_handshake()
        await encrypted.send_all(data or b"x")
        answer = b""
        while part := await encrypted.receive_some():
            answer += part
        return answer


async def test_an_impostor_notices_who_accepts_its_certificate_and_who_does_not() -> None:
    visits: list[bool] = []
    server, knowing = contexts(trustme.CA())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(impersonate, server, visits.append)
            with pytest.raises(trio.BrokenResourceError):
                await talk(port, ssl.create_default_context())
            while not visits:  # noqa: ASYNC110 - another task notes
                await trio.sleep(0.01)
            with pytest.raises(trio.BrokenResourceError):
                await talk(port, knowing)
            while len(visits) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert visits == [False, True]


async def test_the_stand_in_of_a_site_serves_what_it_is_given() -> None:
    async def answer(path: str) -> Fetched:
        return 200, "text/plain", path.encode()

    server, client = contexts(trustme.CA())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(stand_in_site, server, answer)
            got = await talk(port, client, b"GET /there HTTP/1.1\r\nHost: b.example\r\n\r\n")
            nursery.cancel_scope.cancel()
    assert got.endswith(b"\r\n\r\n/there")
    assert b"Content-Length: 6" in got


@pytest.mark.parametrize(
    ("kind", "is_newer", "has_ended"),
    [
        ("expired-documents", True, True),
        ("rolled-back-documents", False, False),
        ("forged-documents", True, False),
    ],
)
def test_a_flawed_document_leads_elsewhere_and_has_that_flaw_alone(
    kind: str, *, is_newer: bool, has_ended: bool
) -> None:
    publication = Publication(
        "b.example", base="https://b.example:1", endpoint="wss://mn.b.example:7/link", module=b"", now=NOW
    )
    genuine = publication.live(serial=5_000)
    key = SigningKey.from_seed("L1", b"\x07" * 32)
    raw = flawed(kind, genuine, key, now=NOW, port=9)
    before, document = json.loads(payload_of(genuine)), json.loads(payload_of(raw))
    assert [one["url"] for one in document["endpoints"]] == ["wss://mn.b.example:9/link"]
    assert (document["serial"] > before["serial"]) is is_newer
    assert (document["expires"] < before["issued"]) is has_ended
    assert {name for name in before if before[name] != document[name]} <= {"serial", "issued", "expires", "endpoints"}
    assert decode_envelope(raw).signers({"L1": key.record()}, allowed=["L1"]) == 1
    assert WELL_KNOWN in publication.files


def test_a_process_with_a_shifted_clock_is_as_far_ahead_as_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(time, "time_ns", lambda: int(NOW) * 1_000_000_000)
    set_clock(tmp_path / "clock", 0.0)
    shift(tmp_path / "clock")
    assert time.time() == NOW
    set_clock(tmp_path / "clock", -3_600.0)
    assert (time.time(), time.time_ns()) == (NOW - 3_600.0, int(NOW - 3_600) * 1_000_000_000)
