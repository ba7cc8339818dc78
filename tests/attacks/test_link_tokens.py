"""Tokens that were stolen, misdirected, relayed, asked for without need, or signed with old keys.

Trust and hosts, section 7, rows 32, 33, 36, 37 and 40; the forms of tokens are in test_authentication.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.lowlevel
import trio.testing

from federation.core import auth
from federation.core.auth import Issuer, TokenRequest
from federation.core.link_frames import FrameKind
from federation.links.peer_session import RECHECK_SECONDS
from protofly.documents import Revoked
from protofly.errors import Code
from protofly.limits import PING_SECONDS, STUB_REQUESTS_PER_ANSWER
from sandbox.core.exchange import Action, Event, GuestEvent
from tests.support.hosted import StubRig, stub_rig
from tests.support.lines import binding_of, certificate_of, client_context, server_context
from tests.support.link_endpoint import (
    ENDPOINT,
    Documents,
    LinkClient,
    LinkEndpoint,
    LinkRig,
    link_rig,
    make_world,
)
from tests.support.repository import World, signing_key
from tests.support.scripted_stub import Answer, ScriptedProcess, act, opening, status
from tests.support.services import until
from tests.support.sides import chat, text
from wire.byte_channel import ByteChannel


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = make_world(tmp_path)
    yield made
    made.close()


@pytest.fixture
async def rig(world: World) -> AsyncIterator[LinkRig]:
    async with link_rig(world) as running:
        yield running


async def bye_to(client: LinkClient, make_token: Callable[[], bytes]) -> str:
    """The word that the node has for this token."""
    client.say_hello()
    await client.receive_challenge()
    client.send(FrameKind.TOKEN, 0, make_token())
    return await client.code_of_bye()


# Rows 32 and 33.


async def test_a_token_overheard_on_another_connection_is_refused(rig: LinkRig) -> None:
    async with rig.live_client() as honest:
        stolen = honest.token()
        async with rig.client() as thief:
            assert await bye_to(thief, lambda: stolen) == "auth-nonce"
        assert rig.link.is_live
    assert rig.bus.events[:1] == ["up"]


async def test_a_token_said_again_on_its_own_connection_ends_it(rig: LinkRig) -> None:
    async with rig.live_client() as client:
        client.send(FrameKind.TOKEN, 0, client.token())
        assert await client.code_of_bye() == "protocol-error"


async def test_a_token_for_another_endpoint_or_without_tls_is_refused(rig: LinkRig) -> None:
    async with rig.client() as client:
        assert await bye_to(client, lambda: client.token(endpoint="wss://mn.c.example/link")) == "auth-endpoint"
    async with rig.client() as client:
        assert await bye_to(client, lambda: client.token(binding=auth.WITHOUT_TLS)) == "auth-binding"
    async with rig.client() as client:
        other = binding_of(certificate_of("mn.b.example", number=1))
        assert await bye_to(client, lambda: client.token(binding=other)) == "auth-binding"


async def test_a_token_for_another_domain_is_refused(rig: LinkRig) -> None:
    def for_c(client: LinkClient) -> bytes:
        binding = auth.channel_binding(client.line.peer_certificate_sha256)
        request = TokenRequest(peer_domain="c.example", endpoint=ENDPOINT, binding=binding, challenge=client.challenge)
        return client.identity.token_for(request)[0].encode()

    async with rig.client() as client:
        assert await bye_to(client, lambda: for_c(client)) == "auth-audience"


class Relay:
    """A man in the middle with a valid certificate for the same name: ends TLS, passes everything on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.certificate = certificate_of("mn.b.example", number=1)
        self.passed = 0

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as self._nursery:
            task_status.started(listener.socket.getsockname()[1])
            await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        context = server_context(self.certificate)
        near = await ByteChannel.over(stream, drain_nursery=self._nursery, context=context, server_side=True)
        far = await ByteChannel.over(
            await trio.open_tcp_stream("127.0.0.1", self._port),
            drain_nursery=self._nursery,
            context=client_context(),
            server_hostname="mn.b.example",
        )
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far)
            nursery.start_soon(self._copy, far, near)

    async def _copy(self, source: ByteChannel, target: ByteChannel) -> None:
        while data := await source.receive():
            self.passed += len(data)
            target.send_nowait(data)
        await target.aclose()


async def test_a_relay_with_a_valid_certificate_cannot_pass_the_proof_on(rig: LinkRig) -> None:
    relay = Relay(rig.port)
    async with trio.open_nursery() as nursery:
        rig.port = await nursery.start(relay.run)
        async with rig.client() as client:
            assert client.line.peer_certificate_sha256
            assert await bye_to(client, client.token) == "auth-binding"
        nursery.cancel_scope.cancel()
    assert relay.passed > 0
    assert (rig.link.state, rig.bus.delivered) == ("created", [])


# Row 40.


async def test_a_rotated_key_is_accepted_and_the_old_one_as_long_as_it_is_published(rig: LinkRig) -> None:
    old, new = rig.documents.keys["a.example"], signing_key("N2", of="a.example")
    async with rig.live_client():
        rig.documents.publish_keys("a.example", old, new)
        for key in (new, old):
            async with rig.live_client(rig.documents.identity("a.example", key=key), stream=f"{key.key_id:0>32}"):
                assert rig.link.is_live


async def test_a_removed_key_is_refused_once_our_cache_knows(rig: LinkRig) -> None:
    documents = rig.documents
    old = documents.keys["a.example"]
    async with rig.live_client():
        pass
    documents.publish_keys("a.example", signing_key("N2", of="a.example"))
    async with rig.live_client():
        pass  # our cache is old: believed as long as the documents are fresh
    await documents.trust_of("a.example", True)
    async with rig.client(documents.identity("a.example", key=old)) as client:
        assert await bye_to(client, client.token) == "auth-key-unknown"


async def test_a_revoked_key_is_refused_even_while_it_is_published(rig: LinkRig) -> None:
    key = rig.documents.keys["a.example"]
    rig.documents.publish_keys("a.example", key, revoked=Revoked(keys=[key.key_id]))
    async with rig.client() as client:
        assert await bye_to(client, client.token) == "auth-key-revoked"


async def _let_pass(mock_clock: trio.testing.MockClock, seconds: float) -> None:
    """Time passes in steps that no ping of the node's misses its answer in."""
    for _ in range(int(seconds / PING_SECONDS) + 1):
        await trio.testing.wait_all_tasks_blocked(0.0005)
        mock_clock.jump(PING_SECONDS)
        await trio.testing.wait_all_tasks_blocked(0.0005)


@pytest.mark.parametrize("what", ["revoked", "removed"])
async def test_a_link_that_is_up_ends_when_its_key_no_longer_holds(
    rig: LinkRig, mock_clock: trio.testing.MockClock, what: str
) -> None:
    documents = rig.documents
    async with rig.live_client() as client:
        key = documents.keys["a.example"]
        if what == "revoked":
            documents.publish_keys("a.example", key, revoked=Revoked(keys=[key.key_id]))
        else:
            documents.publish_keys("a.example", signing_key("N2", of="a.example"))
        await documents.trust_of("a.example", True)
        client.patience_seconds = float("inf")
        async with trio.open_nursery() as nursery:
            byes: list[str] = []

            async def read() -> None:
                byes.append(await client.code_of_bye())

            nursery.start_soon(read)
            await _let_pass(mock_clock, RECHECK_SECONDS)
        assert byes == ["auth-key-revoked" if what == "revoked" else "auth-key-unknown"]
        assert not rig.link.is_live


async def test_a_link_proves_itself_again_after_a_day(
    rig: LinkRig, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.live_client() as client:
        client.patience_seconds = float("inf")
        byes: list[str] = []

        async def read() -> None:
            byes.append(await client.code_of_bye())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await _let_pass(mock_clock, RECHECK_SECONDS)
            assert rig.link.is_live
            monkeypatch.setattr("federation.links.peer_session.REAUTHENTICATE_SECONDS", 0.0)  # a day has gone
            await _let_pass(mock_clock, RECHECK_SECONDS)
        assert byes == ["auth-stale"]
    async with rig.live_client():
        assert rig.link.is_live


async def test_a_node_cannot_take_the_name_of_another_domains_node(rig: LinkRig) -> None:
    liar = rig.documents.identity("a.example")
    liar.node = "runtime://c.example/mn-1"
    async with rig.client(liar) as client:
        assert (await bye_to(client, client.token)).startswith("auth-")


# Rows 36 and 37: what a stub asks of its host.


class Attack:
    """A scripted stub of b.example on a.example's host, towards a real endpoint of b.example."""

    def __init__(self, rig: StubRig, endpoint: LinkEndpoint) -> None:
        self.rig, self.endpoint = rig, endpoint
        self.signed: list[TokenRequest] = []
        token_for = rig.identity.token_for

        def counted(request: TokenRequest) -> tuple[str, str]:
            made = token_for(request)
            self.signed.append(request)
            return made

        rig.identity.token_for = counted  # type: ignore[method-assign]


@pytest.fixture
async def attack(world: World, nursery: trio.Nursery) -> Attack:
    documents = Documents(world)
    endpoint = LinkEndpoint(documents)
    rig = await stub_rig(world, documents)
    rig.dialler.places["mn_b_example"] = await nursery.start(endpoint.run)
    return Attack(rig, endpoint)


ASK = act(Action.REQUEST_AUTH_TOKEN, 1, b"c" * 32)
OPEN = opening(1, subprotocol="trapezoid-link.1")


async def test_a_stub_gets_one_token_for_a_channel_however_often_it_asks(attack: Attack) -> None:
    asks = {Event.START: [OPEN], Event.OPENED: [ASK] * STUB_REQUESTS_PER_ANSWER}
    process = ScriptedProcess(lambda event: asks.get(Event(event.op), []))
    async with attack.rig.running(process):
        await until(lambda: len(process.events(Event.AUTH_TOKEN)) == STUB_REQUESTS_PER_ANSWER)
    granted = [event for event in process.events(Event.AUTH_TOKEN) if event.flags]
    assert len(granted) == len(attack.signed) == 1


async def test_a_stub_that_asks_for_a_thousand_tokens_at_once_gets_one_and_is_ended(attack: Attack) -> None:
    process = ScriptedProcess(lambda event: {Event.START: [OPEN], Event.OPENED: [ASK] * 1_000}.get(Event(event.op), []))
    await attack.rig.run(process)
    assert attack.rig.fault is not None
    assert attack.rig.fault.code is Code.STUB_OUTPUT
    assert len(attack.signed) == 1


async def test_tokens_are_limited_by_the_minute_over_all_channels(attack: Attack) -> None:
    channel = 1

    def script(event: GuestEvent) -> Answer:
        nonlocal channel
        if event.op == Event.OPENED:
            return [act(Action.REQUEST_AUTH_TOKEN, channel, b"c" * 32), act(Action.CLOSE, channel)]
        if event.op == Event.CLOSED:
            channel += 1
        return [opening(channel, subprotocol="trapezoid-link.1")] if channel <= 30 else []

    process = ScriptedProcess(lambda event: script(event) if event.op != Event.AUTH_TOKEN else [])
    async with attack.rig.running(process):
        await until(lambda: len(process.events(Event.AUTH_TOKEN)) == 30)
    assert len(attack.signed) == 10


@pytest.mark.parametrize("when", ["before-it-connects", "foreign-channel", "closed-channel"])
async def test_no_token_without_an_open_channel_of_ones_own(attack: Attack, when: str) -> None:
    def script(event: GuestEvent) -> Answer:
        if event.op == Event.START:
            return [OPEN, ASK] if when == "before-it-connects" else [OPEN]
        if event.op == Event.OPENED and when == "foreign-channel":
            return [act(Action.REQUEST_AUTH_TOKEN, 2, b"c" * 32)]
        if event.op == Event.OPENED and when == "closed-channel":
            return [act(Action.CLOSE, 1)]
        return [ASK] if event.op == Event.CLOSED and when == "closed-channel" else []

    process = ScriptedProcess(script)
    async with attack.rig.running(process):
        await until(lambda: process.events(Event.AUTH_TOKEN))
    assert [event.flags for event in process.events(Event.AUTH_TOKEN)] == [0]
    assert attack.signed == []


@pytest.mark.parametrize("challenge", [b"", b"x" * 15, b"x" * 65, b"x" * 60_000])
async def test_a_challenge_of_the_wrong_length_is_not_signed(attack: Attack, challenge: bytes) -> None:
    ask = act(Action.REQUEST_AUTH_TOKEN, 1, challenge)
    process = ScriptedProcess(lambda event: {Event.START: [OPEN], Event.OPENED: [ask]}.get(Event(event.op), []))
    async with attack.rig.running(process):
        await until(lambda: process.events(Event.AUTH_TOKEN))
    assert attack.signed == []


def _token_of(attack: Attack, domain: str, counter: str) -> bytes:
    """A token as a node of `domain` would answer our counter-challenge."""
    identity = attack.rig.documents.identity(domain)
    asked = TokenRequest(domain, ENDPOINT, "none", b"")
    claims = auth.new_claims(Issuer("a.example", "n", ["a.example"]), asked, "n", now=0, random_bytes=bytes(48))
    binding = binding_of(attack.endpoint.certificate)
    request = TokenRequest(peer_domain="a.example", endpoint=ENDPOINT, binding=binding, challenge=b"")
    return identity.answer_for(request, msgspec.structs.replace(claims, cnonce=counter)).encode()


async def _verdicts(attack: Attack, answers: Callable[[str], list[bytes]], *, asks: bool = True) -> list[int]:
    """What the stub receives when it hands these answers to its host and then says that it is live."""

    def script(event: GuestEvent) -> Answer:
        if event.op == Event.START:
            return [OPEN]
        if event.op == Event.OPENED:
            return [ASK] if asks else [act(Action.VERIFY_PEER, 1, answer) for answer in answers("n")]
        if event.op == Event.AUTH_TOKEN:
            counter = attack.rig.counter_challenge
            return [act(Action.VERIFY_PEER, 1, answer) for answer in answers(counter)]
        return []

    process = ScriptedProcess(script)
    async with attack.rig.running(process):
        wanted = len(answers("n"))
        await until(lambda: len(process.events(Event.PEER_VERIFIED)) == wanted)
    return [event.flags for event in process.events(Event.PEER_VERIFIED)]


async def test_the_answer_of_the_right_node_is_believed_once(attack: Attack) -> None:
    answers = {"": [b""]}

    def twice(counter: str) -> list[bytes]:
        return answers.setdefault(counter, [_token_of(attack, "b.example", counter)] * 2)

    answers["n"] = [b"", b""]
    assert sorted(await _verdicts(attack, twice)) == [0, 1]


async def test_the_answer_of_another_domain_is_not_believed(attack: Attack) -> None:
    assert await _verdicts(attack, lambda counter: [_token_of(attack, "a.example", counter)]) == [0]


async def test_an_answer_that_nobody_asked_for_is_not_believed(attack: Attack) -> None:
    assert await _verdicts(attack, lambda _: [_token_of(attack, "b.example", "n")], asks=False) == [0]


async def test_an_answer_to_another_challenge_is_not_believed(attack: Attack) -> None:
    assert await _verdicts(attack, lambda _: [_token_of(attack, "b.example", "other")]) == [0]


@pytest.mark.parametrize("answer", [b"", b"x", b"a.b.c", b"x" * 5_000, b"\xff" * 100])
async def test_what_is_no_token_is_not_believed(attack: Attack, answer: bytes) -> None:
    assert await _verdicts(attack, lambda _: [answer]) == [0]


async def test_a_stub_that_says_live_without_a_verified_peer_gets_and_delivers_nothing(attack: Attack) -> None:
    attack.rig.send(chat(1))
    process = ScriptedProcess(
        lambda _event: [act(Action.DELIVER, 1, text()), status("live"), act(Action.DELIVER, 2, text())]
    )
    await attack.rig.run(process)
    assert attack.rig.fault is not None
    assert attack.rig.fault.code is Code.STUB_FAILED
    assert attack.rig.bus.delivered == []
    assert (process.events(Event.MESSAGE), attack.rig.link.queue.waiting) == ([], 1)


def live_stub(attack: Attack, then: Callable[[GuestEvent], Answer]) -> ScriptedProcess:
    """A stub that proves its peer honestly, says live, and then does as it is asked."""

    def script(event: GuestEvent) -> Answer:
        if event.op == Event.START:
            return [OPEN]
        if event.op == Event.OPENED and event.arg == 1:
            return [ASK]
        if event.op == Event.AUTH_TOKEN and event.flags:
            counter = attack.rig.counter_challenge
            return [act(Action.VERIFY_PEER, 1, _token_of(attack, "b.example", counter))]
        if event.op == Event.PEER_VERIFIED:
            return [act(Action.PEER_STREAM, 0, "e" * 32), status("live")]
        return then(event)

    return ScriptedProcess(script)


async def test_a_stub_that_forges_senders_is_ended_at_the_third(attack: Attack) -> None:
    forged = text("hyperty://a.example/ana", "hyperty://a.example/ana")
    deliveries = [act(Action.DELIVER, number, raw) for number, raw in enumerate((forged, text(), forged, forged), 1)]
    process = live_stub(attack, lambda event: deliveries if event.op == Event.TIMER else [])
    async with attack.rig.running(process):
        await until(lambda: attack.rig.link.is_live)
        attack.rig.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: attack.rig.fault)
    assert attack.rig.fault is not None
    assert attack.rig.fault.code is Code.SPOOFED_SOURCE
    assert len(attack.rig.bus.delivered) == 1
    assert not attack.rig.link.is_live


async def test_a_proof_does_not_survive_its_connection(attack: Attack) -> None:
    """The verified line is closed, another one opened; nobody proved anything there."""

    def then(event: GuestEvent) -> Answer:
        if event.op == Event.TIMER:
            return [act(Action.CLOSE, 1)]
        if event.op == Event.CLOSED:
            return [opening(2, subprotocol="trapezoid-link.1")]
        return [act(Action.DELIVER, 1, text())] if event.op == Event.OPENED else []

    process = live_stub(attack, then)
    async with attack.rig.running(process):
        await until(lambda: attack.rig.link.is_live)
        attack.rig.hosted.running.emit(GuestEvent(Event.TIMER, 0, b""))
        await until(lambda: len(process.events(Event.OPENED)) == 2 or attack.rig.fault)
        await trio.testing.wait_all_tasks_blocked()
        assert not attack.rig.link.is_live
        assert attack.rig.bus.delivered == []


async def test_a_channel_number_used_again_can_prove_itself_again(attack: Attack) -> None:
    """The line broke between token and verdict; the stub opens the same channel again."""

    def script(event: GuestEvent) -> Answer:
        if event.op in (Event.START, Event.CLOSED):
            return [OPEN]
        if event.op == Event.OPENED:
            return [ASK]
        is_first = event.op == Event.AUTH_TOKEN and len(process.events(Event.AUTH_TOKEN)) == 1
        return [act(Action.CLOSE, 1)] if is_first else []

    process = ScriptedProcess(script)
    async with attack.rig.running(process):
        await until(lambda: len(process.events(Event.AUTH_TOKEN)) == 2)
    assert [event.flags for event in process.events(Event.AUTH_TOKEN)] == [1, 1]
