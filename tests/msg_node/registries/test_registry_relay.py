"""The relay to a domain registry that lies, fails or is away: clear codes, bounded time, the rest of the node well."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
import trustme

from msg_node.backends import backend, registry_watch
from msg_node.backends.core.circuit_breaker import CircuitBreaker
from msg_node.kernel.rest_calls import Answered
from tests.peers.domain_registry import Record
from tests.support.registry_entries import DOMAIN, HYPERTY, USER, hyperty, room
from tests.support.registry_rig import ADDRESS, RestRegistry, create, read, rest_registry
from tests.support.rest_server import Lie, Said, answer
from tests.support.runtime_rig import ALLOCATION, SM, Runtime, a_message, code_and_reason
from tests.support.services import PATIENCE_SECONDS

OTHER = f"hyperty://{DOMAIN}/h-other"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_RETRY_SECONDS", 0.001)


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[RestRegistry]:
    async with rest_registry(tmp_path, cache_seconds=0, breaker=CircuitBreaker(failures=100)) as made:
        yield made


@pytest.fixture
async def ana(registry: RestRegistry) -> Runtime:
    runtime = await registry.rig.opened("rt-ana")
    assert (await create(runtime, hyperty()))["body"]["code"] == 200
    registry.server.asked.clear()
    return runtime


def says(said: Said) -> Lie:
    async def lie(stream: trio.abc.Stream) -> None:
        await stream.send_all(answer(said))

    return lie


def with_record(**members: object) -> Lie:
    record = {
        **hyperty(),
        "hypertyID": HYPERTY,
        "userID": USER,
        "startingTime": "2031-01-01T00:00:00Z",
        "lastModified": "2031-01-01T00:00:00Z",
    }
    for name in ("url", "user"):
        record.pop(name)
    record.update(members)
    return says(Said(200, json.dumps({record["hypertyID"]: record}).encode()))


async def drips(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await stream.send_all(b" ")
        await trio.sleep(0.01)


async def is_silent(stream: trio.abc.Stream) -> None:
    await stream.receive_some()  # until the node hangs up


async def closes_in_the_middle(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")


async def closes_at_once(_: trio.abc.Stream) -> None:
    await trio.lowlevel.checkpoint()


async def ten_mebibytes(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\n\r\n")
    for _ in range(160):
        await stream.send_all(b"[" * 65536)


async def endless_head(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send_all(b"X-Again: and again\r\n" * 100)


async def no_http(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"SSH-2.0-OpenSSH_9.7\r\n\r\n\r\n")


def break_off(registry: RestRegistry, lie: Lie) -> None:
    """Let the registry lie from now on. Only one that never comes to an end is not waited for."""
    registry.server.always = lie
    if lie in (drips, is_silent):
        registry.backend._attempt_seconds = 0.2


def mend(registry: RestRegistry) -> None:
    """Let it answer as it should."""
    registry.server.always = None
    registry.backend._attempt_seconds = PATIENCE_SECONDS


LIES: dict[str, tuple[Lie, tuple[int, str]]] = {
    "drips": (drips, (504, "timeout")),
    "is silent": (is_silent, (504, "timeout")),
    "closes in the middle": (closes_in_the_middle, (502, "bad-reply")),
    "closes at once": (closes_at_once, (502, "bad-reply")),
    "no HTTP": (no_http, (502, "bad-reply")),
    "ten MiB": (ten_mebibytes, (502, "document-too-large")),
    "endless head": (endless_head, (502, "bad-reply")),
    "500": (says(Said(500, b'{"message":"Internal"}')), (502, "bad-reply")),
    "503": (says(Said(503, b"")), (502, "bad-reply")),
    "redirect": (says(Said(302, b"", headers=(("Location", "http://127.0.0.1:1/"),))), (502, "redirect-refused")),
    "refuses the node": (says(Said(401, b"{}")), (502, "stub-refused")),
    "too much to do": (says(Said(429, b"{}")), (429, "rate")),
    "broken JSON": (says(Said(200, b'{"a":')), (502, "bad-reply")),
    "not UTF-8": (says(Said(200, b'{"\xff":{}}')), (502, "bad-reply")),
    "very deep JSON": (says(Said(200, b"[" * 100_000)), (502, "bad-reply")),
    "a number": (says(Said(200, b"7")), (502, "bad-reply")),
    "a page": (says(Said(200, b"<html>", "text/html; charset=utf-8")), (502, "bad-reply")),
    "gzip that nobody asked for": (
        says(Said(200, b"\x1f\x8b", headers=(("Content-Encoding", "gzip"),))),
        (502, "bad-reply"),
    ),
    "an entry of another user": (with_record(userID=f"user://{DOMAIN}/mallory"), (502, "bad-reply")),
    "an entry of two users": (with_record(user=f"user://{DOMAIN}/mallory"), (502, "bad-reply")),
    "an entry of another domain": (with_record(hypertyID="hyperty://beta.example/h"), (502, "bad-reply")),
    "a look-alike domain": (with_record(hypertyID=f"hyperty://{DOMAIN}.evil/h"), (502, "bad-reply")),
    "a status that is none": (with_record(status="asleep"), (502, "bad-reply")),
    "records that are none": (says(Said(200, b'{"hyperty://alpha.example/h":7,"x":null}')), (502, "bad-reply")),
    "very many records": (says(Said(200, b"[" + b"{}," * 2000 + b"{}]")), (502, "bad-reply")),
    "nothing": (says(Said(200, b"{}")), (404, "not-registered")),
    "only a message": (says(Said(200, b'{"message":"Not Found"}')), (404, "not-registered")),
    "not found, with a page": (says(Said(404, b"<html>", "text/html")), (404, "not-registered")),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_has_its_code_and_the_node_goes_on(registry: RestRegistry, ana: Runtime, name: str) -> None:
    lie, expected = LIES[name]
    break_off(registry, lie)
    bo = await registry.rig.opened("bo")
    await ana.say(a_message("read", ana.address, ADDRESS, {"resource": USER}, id_="lied to"))
    assert (await bo.ask("create", ALLOCATION, {"scheme": "comm"}))["body"]["code"] == 200
    await ana.say(a_message("event", ana.address, bo.address, {"value": 1}))
    assert (await bo.next())["type"] == "event"
    assert code_and_reason(await ana.next()) == expected
    mend(registry)
    assert list((await read(ana, USER))["body"]["value"]) == [HYPERTY]
    assert registry.rig.bus.inquiries.statistics().get("registry under way", 0) == 0


async def test_no_contact_is_said_as_old_runtimes_know_it(registry: RestRegistry, ana: Runtime) -> None:
    break_off(registry, is_silent)
    reply = await read(ana, USER)
    assert reply["body"]["description"] == "Error contacting the domain registry."


async def test_strangers_among_the_entries_are_left_out(registry: RestRegistry, ana: Runtime) -> None:
    records: dict[str, Record] = dict(registry.peer.hyperties)
    records["hyperty://beta.example/h"] = {**records[HYPERTY], "hypertyID": "hyperty://beta.example/h"}
    records[OTHER] = {**records[HYPERTY]}  # under a key that is not its own
    registry.server.lies = [says(Said(200, json.dumps(records).encode()))]
    assert list((await read(ana, USER))["body"]["value"]) == [HYPERTY]


async def test_members_that_we_do_not_know_come_through(registry: RestRegistry, ana: Runtime) -> None:
    registry.peer.hyperties[HYPERTY]["room"] = {"floor": 3}
    assert (await read(ana, HYPERTY))["body"]["value"]["room"] == {"floor": 3}


# Writes.


async def test_a_write_that_failed_leaves_nothing_behind_here(registry: RestRegistry) -> None:
    ana = await registry.rig.opened("rt-ana")
    registry.server.always = says(Said(500, b"{}"))
    assert code_and_reason(await create(ana, hyperty())) == (502, "bad-reply")
    assert len(registry.rig.state.registry) == 0
    registry.server.always = None
    assert (await create(ana, hyperty()))["body"]["code"] == 200


async def test_an_entry_that_the_registry_has_forgotten_is_forgotten_here(registry: RestRegistry, ana: Runtime) -> None:
    registry.peer.hyperties.clear()
    assert code_and_reason(await ana.ask("update", ADDRESS, {"resource": HYPERTY})) == (404, "not-registered")
    assert len(registry.rig.state.registry) == 0
    assert (await create(ana, hyperty()))["body"]["code"] == 200


async def test_an_address_of_another_user_is_not_registered(registry: RestRegistry) -> None:
    ana = await registry.rig.opened("rt-ana")
    await ana.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    address = await ana.allocated("hyperty")
    registry.peer.hyperties[address] = {**hyperty(), "userID": f"user://{DOMAIN}/bo", "status": "live"}
    assert code_and_reason(await create(ana, hyperty(address))) == (403, "not-owner")


async def test_an_entry_that_another_node_wrote_is_protected_and_can_be_taken_over_when_it_is_free(
    registry: RestRegistry,
) -> None:
    other = await registry.rig.opened("rt-other")
    registry.peer.hyperties[HYPERTY] = {
        **hyperty(runtime=f"runtime://{DOMAIN}/rt-elsewhere"),
        "hypertyID": HYPERTY,
        "userID": USER,
        "startingTime": "2026-01-01T00:00:00Z",
        "lastModified": registry.peer._instant(),
    }
    for type_, body in (("update", {"resource": HYPERTY}), ("delete", {"resource": HYPERTY})):
        assert code_and_reason(await other.ask(type_, ADDRESS, body)) == (403, "not-owner")
    assert registry.server.asked_for("PUT") == registry.server.asked_for("DELETE") == []
    registry.peer.hyperties[HYPERTY]["status"] = "disconnected"
    assert (await other.ask("update", ADDRESS, {"resource": HYPERTY}))["body"]["code"] == 200
    entry = registry.rig.state.registry.get(HYPERTY)
    assert entry is not None
    assert entry.is_connected
    assert registry.peer.hyperties[HYPERTY]["status"] == "live"


async def test_the_end_of_a_session_is_reported_to_the_registry(
    registry: RestRegistry, ana: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_watch, "REPORT_SECONDS", 0.01)
    await create(ana, room())
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.watch.run)
        await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
        with trio.fail_after(10):
            while registry.watch.counters["disconnects reported"] < 2:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert [one["status"] for one in (registry.peer.hyperties | registry.peer.objects).values()] == ["disconnected"] * 2


async def test_the_end_of_a_session_is_reported_when_the_registry_is_back_and_old_news_do_not_revive_the_entry(
    registry: RestRegistry, ana: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_watch, "REPORT_SECONDS", 0.01)
    listener = await registry.rig.opened("rt-listener")
    await listener.subscribed(f"{HYPERTY}/registration", to=SM)
    registry.server.always = says(Said(500))
    await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
    assert (await listener.next())["body"]["value"] == "disconnected"
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.watch.run)
        asked = len(registry.server.asked)
        with trio.fail_after(10):
            while len(registry.server.asked) < asked + 2:
                await trio.lowlevel.checkpoint()
        registry.peer._updated[HYPERTY] = None
        changes = registry.relay.observe(Answered(200, json.dumps(registry.peer.hyperties).encode()), 0)
        assert changes == []
        registry.server.always = None
        with trio.fail_after(10):
            while not registry.watch.counters["disconnects reported"]:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert registry.peer.hyperties[HYPERTY]["status"] == "disconnected"
    await registry.later(1)
    assert await listener.heard() == []
    assert len(registry.rig.state.registry) == 0  # how long it is remembered is the registry's


# News.


async def test_news_of_entries_that_other_nodes_wrote_reach_our_subscribers_once(
    registry: RestRegistry, ana: Runtime
) -> None:
    registry.peer.hyperties[OTHER] = {**registry.peer.hyperties[HYPERTY], "hypertyID": OTHER}
    await ana.subscribed(f"{OTHER}/registration", to=SM)
    for status in ("disconnected", "disconnected", "live"):
        registry.peer._update(registry.peer.hyperties[OTHER], {"status": status})
        registry.peer._updated[OTHER] = None
        await registry.later(1)
    reported = [one["body"]["value"] for one in await ana.heard()]
    assert reported == ["disconnected", "live"]


@pytest.mark.parametrize("name", ["drips", "ten MiB", "a number", "500", "broken JSON", "records that are none"])
async def test_news_that_are_lies_are_counted_and_change_nothing(
    registry: RestRegistry, ana: Runtime, name: str
) -> None:
    await ana.subscribed(f"{HYPERTY}/registration", to=SM)
    break_off(registry, LIES[name][0])
    await registry.later(1)
    assert await ana.heard() == []
    mend(registry)
    await ana.ask("update", ADDRESS, {"resource": HYPERTY, "attribute": "status", "value": "disconnected"})
    assert [one["body"]["value"] for one in await ana.heard()] == ["disconnected"]


# Attempts and the breaker.


async def test_a_server_that_fails_now_and_then_is_asked_again(registry: RestRegistry, ana: Runtime) -> None:
    for lies in ([closes_at_once], [says(Said(503))], [closes_in_the_middle, says(Said(502))]):
        registry.server.lies = list(lies)
        assert (await read(ana, USER))["body"]["code"] == 200
    registry.server.lies = [closes_at_once]
    assert (await ana.ask("update", ADDRESS, {"resource": HYPERTY}))["body"]["code"] == 200
    assert registry.backend.counters["retries"] == 5


async def test_answers_in_turns_of_500_and_404_are_each_passed_on_as_they_are(
    registry: RestRegistry, ana: Runtime
) -> None:
    registry.server.lies = [says(Said(500)), says(Said(404)), says(Said(500)), says(Said(404)), None]
    codes = [(await read(ana, USER))["body"]["code"] for _ in range(5)]
    assert codes == [502, 404, 502, 404, 200]


async def test_retries_never_become_the_load(tmp_path: Path) -> None:
    async with rest_registry(tmp_path, cache_seconds=0, breaker=CircuitBreaker(failures=1000)) as registry:
        ana = await registry.rig.opened("rt-ana")
        registry.server.always = closes_at_once
        for _ in range(50):
            assert (await read(ana, USER))["body"]["code"] == 502
        assert 60 <= len(registry.server.asked) <= 66  # a stock of ten, and one for every ten calls


async def test_a_dead_registry_is_left_alone_and_tried_again_after_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = CircuitBreaker(failures=2, open_seconds=3600)
    async with rest_registry(tmp_path, cache_seconds=0, breaker=breaker) as registry:
        ana = await registry.rig.opened("rt-ana")
        assert (await create(ana, hyperty()))["body"]["code"] == 200
        registry.server.always = says(Said(500))
        for _ in range(2):
            assert code_and_reason(await read(ana, USER)) == (502, "bad-reply")
        asked = len(registry.server.asked)
        assert code_and_reason(await read(ana, USER)) == (503, "circuit-open")
        assert len(registry.server.asked) == asked
        registry.server.always = None
        breaker._opens_until = 0  # an hour has passed
        assert (await read(ana, USER))["body"]["code"] == 200
        assert "left alone" in caplog.text
        assert registry.backend.status()["circuit"] == "closed"


# The cache.


async def test_answers_are_given_again_no_longer_than_entries_live(tmp_path: Path) -> None:
    async with rest_registry(tmp_path, cache_seconds=3600) as registry:
        ana = await registry.rig.opened("rt-ana")
        await create(ana, hyperty(expires=60))
        relay_now: Callable[[], int] = lambda: len(registry.server.asked_for("GET"))  # noqa: E731 - counts
        for _ in range(3):
            assert (await read(ana, USER))["body"]["code"] == 200
        assert relay_now() == 1 + 1  # the look before the first write, and one read
        await ana.ask("update", ADDRESS, {"resource": HYPERTY, "value": {"resources": ["av"]}})
        assert (await read(ana, USER))["body"]["value"][HYPERTY]["resources"] == ["av"]
        await create(ana, hyperty(OTHER))
        assert len((await read(ana, USER))["body"]["value"]) == 2
        assert (await read(ana, "user-guid://kS3Qd0x"))["body"]["code"] == 200
        registry.peer._update(registry.peer.hyperties[HYPERTY], {"status": "disconnected"})
        await registry.later(1)
        assert (await read(ana, HYPERTY))["body"]["code"] == 408


# Proof of who we are.


async def test_the_registry_sees_our_certificate_and_we_check_its(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context()
    authority.configure_trust(client)
    stranger = ssl.create_default_context()
    ours = authority.issue_cert("mn.alpha.example")
    ours.configure_cert(client)
    ours.configure_cert(stranger)
    async with rest_registry(tmp_path, context=server, client_context=client) as registry:
        ana = await registry.rig.opened("rt-ana")
        assert (await create(ana, hyperty()))["body"]["code"] == 200
        assert all(one.peer_certificate for one in registry.server.asked)
    (tmp_path / "second").mkdir()
    async with rest_registry(tmp_path / "second", context=server, client_context=stranger) as registry:
        ana = await registry.rig.opened("rt-ana")
        assert code_and_reason(await create(ana, hyperty())) == (502, "tls-failed")
        assert registry.server.asked == []
