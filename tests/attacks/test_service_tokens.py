"""A stub that wants the token of its service: it names it, and never gets it, nor sends it elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from federation.core.service_tokens import ServiceTokens
from federation.stubs.egress import EgressRules
from msg_node.settings.interworking import token_readers
from msg_node.settings.load import load_settings
from protofly.errors import Code, SettingsError, StubFaultError
from protofly.limits import HTTP_ANSWER_BYTES
from sandbox.core.exchange import ChannelKind, Event
from tests.federation.test_egress_http import HttpFar
from tests.msg_node.settings.test_interworking import SIP, settings_file
from tests.support.egress_lines import Lines, endpoints, lines

SECRET = "s3cr3t-Token.of~the/Service+=="
HTTP_URL = "https://mn.b.example/api"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def rules(url: str = HTTP_URL, *, origin: str = "https://mn.b.example", token: str = SECRET) -> EgressRules:
    tokens = ServiceTokens([origin], has_service_token=True)
    return EgressRules("b.example", endpoints(url), tokens=tokens, read_token=lambda: token)


def everything(ours: Lines) -> bytes:
    return b"".join(event.payload for event in ours.events)


async def test_token_goes_with_the_request_and_the_stub_sees_nothing_of_it() -> None:
    far = HttpFar(OK)
    async with lines(far.serve, rules=rules()) as ours:
        ours.open(kind=ChannelKind.HTTP, path="/who", token="service")
        assert (await ours.wait_for(Event.CLOSED)).payload == b"closed"
        assert SECRET.encode() not in everything(ours)
    assert f"Authorization: Bearer {SECRET}\r\n".encode() in far.asked


async def test_token_is_used_only_where_it_is_named() -> None:
    far = HttpFar(OK)
    async with lines(far.serve, rules=rules()) as ours:
        ours.open(kind=ChannelKind.HTTP)
        await ours.wait_for(Event.CLOSED)
    assert b"uthorization" not in far.asked


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(SECRET)}\r\n\r\n{SECRET}",
        f"HTTP/1.1 401 No\r\nX-Echo: you said {SECRET}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 302 Found\r\nLocation: https://evil.example/?t={SECRET}\r\nContent-Length: 0\r\n\r\n",
        f"{SECRET} is what you said\r\n\r\n",
        f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n",
    ],
    ids=["body", "header", "redirect", "no-http", "broken-header"],
)
async def test_service_that_says_the_token_back_does_not_give_it_to_the_stub(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    far = HttpFar(answer.encode())
    async with lines(far.serve, rules=rules()) as ours:
        ours.open(kind=ChannelKind.HTTP, token="service")
        await ours.wait_for(Event.CLOSED)
        assert SECRET.encode() not in everything(ours)
        assert len(ours.dialler.asked) == 1
    assert SECRET not in caplog.text
    assert SECRET.encode() in far.asked


@pytest.mark.parametrize(
    ("url", "members"),
    [
        ("https://evil.example/api", {"token": "service"}),
        ("https://mn.b.example:8443/api", {"token": "service"}),
        (HTTP_URL, {"token": "other"}),
        (HTTP_URL, {"token": "service", "path": "@evil.example/"}),
        (HTTP_URL, {"token": "service", "path": "/x\r\nX-Evil: 1"}),
        (HTTP_URL, {"token": "service", "headers": {"Authorization": "Bearer x"}}),
        (HTTP_URL, {"token": "service", "headers": {"authorization": "Bearer x"}}),
        (HTTP_URL, {"token": "service", "headers": {"Proxy-Authorization": "Bearer x"}}),
        (HTTP_URL, {"token": "service", "headers": {"Host": "evil.example"}}),
        (HTTP_URL, {"token": "service", "headers": {"X": "a\r\nAuthorization: b"}}),
        (HTTP_URL, {"token": "service", "headers": {"X\r\nY": "a"}}),
    ],
)
async def test_token_is_not_taken_elsewhere_and_no_request_is_bent(url: str, members: dict[str, Any]) -> None:
    far = HttpFar(OK)
    async with lines(far.serve, rules=rules(url)) as ours:
        with pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_DENIED):
            ours.open(kind=ChannelKind.HTTP, **members)
        assert (ours.dialler.asked, ours.events) == ([], [])
    assert far.asked == b""


@pytest.mark.parametrize("kind", [ChannelKind.WEBSOCKET, ChannelKind.TCP_TLS])
async def test_token_does_not_go_over_lines_that_the_stub_can_read(kind: ChannelKind) -> None:
    async with lines(HttpFar(OK).serve, rules=rules("wss://mn.b.example/link")) as ours:
        with pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_DENIED):
            ours.open(kind=kind, token="service")
        assert ours.dialler.asked == []


@pytest.mark.parametrize("token", ["service\r\n", "../x", "a b", "x" * 65, 7])
async def test_name_that_cannot_be_one_is_a_fault(token: object) -> None:
    async with lines(HttpFar(OK).serve, rules=rules()) as ours:
        with pytest.raises(StubFaultError, check=lambda fault: fault.code is Code.STUB_OUTPUT):
            ours.open(kind=ChannelKind.HTTP, token=token)


async def test_token_of_a_user_goes_by_its_handle() -> None:
    far, chosen = HttpFar(OK), rules()
    chosen.tokens._users["h1"] = "users-own"
    async with lines(far.serve, rules=chosen) as ours:
        ours.open(kind=ChannelKind.HTTP, token="h1")
        await ours.wait_for(Event.CLOSED)
    assert b"Authorization: Bearer users-own\r\n" in far.asked


# The file.


def reader(folder: Path, content: bytes, mode: int = 0o600) -> Callable[[], str]:
    file = folder / "token"
    file.write_bytes(content)
    file.chmod(mode)
    text = SIP + 'http = true\ntoken_file = "token"\ntoken_origins = ["https://api.legacy.example"]\n'
    return token_readers(load_settings(settings_file(folder, text)))["sip.legacy.example"]


async def test_replaced_file_counts_from_the_next_request(tmp_path: Path) -> None:
    read = reader(tmp_path, b"first\n")
    far = HttpFar(OK)
    tokens = ServiceTokens(["https://mn.b.example"], has_service_token=True)
    chosen = EgressRules("b.example", endpoints(HTTP_URL), tokens=tokens, read_token=read)
    async with lines(far.serve, rules=chosen) as ours:
        for number, token in enumerate(("first", "second"), 1):
            (tmp_path / "token").write_bytes(f"{token}\n".encode())
            ours.open(number, kind=ChannelKind.HTTP, token="service")
            await ours.wait_for(Event.CLOSED, number)
            assert f"Authorization: Bearer {token}\r\n".encode() in far.asked
            far.asked = b""


@pytest.mark.parametrize(
    ("content", "mode"),
    [(b"", 0o600), (b"a b", 0o600), (b"a\r\nX-Evil: 1", 0o600), (b"\xff\xfe", 0o600), (SECRET.encode(), 0o644)],
)
async def test_file_that_cannot_be_used_costs_the_request_and_shows_nobody_its_content(
    tmp_path: Path, content: bytes, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    read = reader(tmp_path, content, mode)
    far = HttpFar(OK)
    tokens = ServiceTokens(["https://mn.b.example"], has_service_token=True)
    chosen = EgressRules("b.example", endpoints(HTTP_URL), tokens=tokens, read_token=read)
    async with lines(far.serve, rules=chosen) as ours:
        ours.open(kind=ChannelKind.HTTP, token="service")
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(b"bad-token")
    assert far.asked == b""
    assert "access token" in caplog.text
    assert SECRET not in caplog.text
    assert "X-Evil" not in caplog.text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('token_file = "token"\nhttp = true\n', "needs `token_origins`"),
        ('token_origins = ["https://api.legacy.example"]\n', "`http = true`"),
        ('http = true\ntoken_origins = ["https://api.legacy.example/"]\n', "without a path"),
        ('http = true\ntoken_origins = ["http://api.legacy.example"]\n', "without a path"),
        ('http = true\ntoken_origins = ["*"]\n', "without a path"),
        ('http = true\ntoken_origins = ["https://API.legacy.example"]\n', "in lower case"),
        ('http = true\ntoken_origins = ["https://api.legacy.example:443"]\n', "without a path"),
    ],
)
def test_settings_that_would_let_a_token_go_anywhere_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(settings_file(tmp_path, SIP + text))
    assert complaint in caught.value.detail


async def test_answer_that_grows_beyond_one_event_when_a_short_token_is_taken_out_closes_the_channel() -> None:
    body = b"a" * HTTP_ANSWER_BYTES
    far = HttpFar(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    async with lines(far.serve, rules=rules(token="a")) as ours:
        ours.open(kind=ChannelKind.HTTP, token="service")
        assert (await ours.wait_for(Event.CLOSED)).payload.startswith(b"document-too-l")
        assert [event.op for event in ours.events] == [Event.OPENED, Event.CLOSED]
