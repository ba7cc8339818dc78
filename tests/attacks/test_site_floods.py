"""Floods at the site, and the pages that only some may see."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import trio

import msg_node
from tests.support.web import ASK, EVE, HONEST, WebRig, web_rig

TOKEN = "secret"
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()


def status_request(*fields: str, version: str = "1.1") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"GET /status HTTP/{version}", "Host: localhost", *fields, "")).encode()


async def test_address_beyond_its_rate_is_refused_and_the_others_are_not() -> None:
    async with web_rig(requests_per_second=2, connections_per_address=64) as rig:
        answers = [await rig.ask(address=EVE) for _ in range(12)]
        assert [answer[9:12] for answer in answers] == [b"200"] * 10 + [b"429"] * 2
        assert b"\r\nRetry-After: 1\r\n" in answers[-1]
        assert (await rig.ask()).startswith(b"HTTP/1.1 200 ")
        assert rig.server.counters["requests too often"] == 2


async def test_requests_on_one_line_count_like_others_and_429_ends_it() -> None:
    async with web_rig(requests_per_second=2) as rig:
        wire = await rig.wire(EVE)
        await wire.write(ASK * 30)
        answers = await wire.read_to_end()
        assert answers.count(b"HTTP/1.1 200 ") == 10
        assert answers.count(b"HTTP/1.1 429 ") == 1
        assert (await rig.ask()).startswith(b"HTTP/1.1 200 ")
        await wire.cut()


async def is_refused(rig: WebRig) -> bool:
    """True if an asker gets no connection."""
    try:
        return not await rig.ask(address=EVE)
    except trio.BrokenResourceError:
        return True


async def test_address_that_does_not_hear_429_gets_no_connection_any_more(tmp_path: Path) -> None:
    async with web_rig(tmp_path, requests_per_second=2) as rig:
        refused = 0
        with trio.fail_after(30):
            while refused < 18:
                refused += await is_refused(rig)
        assert refused == rig.server.counters["connections too often"]
        assert (await rig.ask()).startswith(b"HTTP/1.1 200 ")


async def test_refused_address_is_served_again_after_the_announced_time() -> None:
    async with web_rig(requests_per_second=20) as rig:
        while (answer := await rig.ask(address=EVE)).startswith(b"HTTP/1.1 200 "):
            pass
        seconds = int(answer.partition(b"Retry-After: ")[2].partition(b"\r\n")[0])
        await trio.sleep(seconds)
        assert (await rig.ask(address=EVE)).startswith(b"HTTP/1.1 200 ")


FORWARDING = [
    "Forwarded: for=192.0.2.1",
    "forwarded: for=127.0.0.1;proto=https",
    "X-Forwarded-For: 127.0.0.1",
    "x-forwarded-proto: https",
    "X-Forwarded-Anything:",
    "X-Real-IP: 127.0.0.1",
    "Via: 1.1 proxy",
    "CF-Connecting-IP: 192.0.2.1",
    "True-Client-IP: 192.0.2.1",
    "X-Client-IP: 192.0.2.1",
]


@pytest.mark.parametrize("field", FORWARDING)
async def test_status_is_closed_to_whatever_a_proxy_passes_on(tmp_path: Path, field: str) -> None:
    async with web_rig(tmp_path) as rig:
        assert (await rig.ask(status_request())).startswith(b"HTTP/1.1 200 ")
        assert (await rig.ask(status_request(field))).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("path", ["/status/", "/livez/", "/readyz//", "/metrics/?x=1"])
async def test_a_slash_too_many_sends_nobody_where_the_host_of_a_request_says(tmp_path: Path, path: str) -> None:
    async with web_rig(tmp_path) as rig:
        answer = await rig.ask(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"evil" not in answer


def test_every_http_application_of_the_node_refuses_a_slash_too_many() -> None:
    package = Path(msg_node.__file__).parent
    sources = [text for one in package.rglob("*.py") if " = Starlette(" in (text := one.read_text("utf-8"))]
    assert len(sources) >= 4
    assert all(".redirect_slashes = False" in text for text in sources)
    assert not [one for one in package.rglob("*.py") if "return Starlette(" in one.read_text("utf-8")]


async def test_status_is_closed_to_http_1_0_which_proxies_speak(tmp_path: Path) -> None:
    async with web_rig(tmp_path) as rig:
        assert (await rig.ask(status_request(version="1.0"))).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("address", [HONEST, EVE])
async def test_status_without_tls_is_closed_to_local_addresses(address: str) -> None:
    async with web_rig() as rig:
        answer = await rig.ask(status_request(), address=address)
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"links" not in answer


@pytest.mark.parametrize("is_tls", [False, True])
async def test_status_with_a_token_is_for_its_bearer_whatever_lies_between(tmp_path: Path, is_tls: bool) -> None:
    async with web_rig(tmp_path if is_tls else None, status_token_sha256=TOKEN_SHA256) as rig:
        for fields in ((), ("X-Forwarded-For: 192.0.2.1",)):
            assert (await rig.ask(status_request(*fields))).startswith(b"HTTP/1.1 403 ")
            assert (await rig.ask(status_request(f"Authorization: Bearer {TOKEN}x", *fields)))[9:12] == b"403"
            assert (await rig.ask(status_request(f"Authorization: Bearer {TOKEN}", *fields)))[9:12] == b"200"
