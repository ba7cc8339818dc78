"""Reverse checks in the name of another domain, forged, repeated or in floods: they show nothing of others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from federation.core import auth
from federation.core.auth import Claims, TokenRequest
from federation.discovery.identity import Identity
from federation.discovery.reverse_check import CHALLENGE_SECONDS, ReverseChecks
from protofly.errors import Code, PeerError, TransportError
from protofly.limits import HANDSHAKE_SECONDS, PENDING_REVERSE_CHECKS_PER_ADDRESS
from protofly.reverse_check import PATH, PROOF_BYTES, ReverseAnswer, ReverseProof, endpoint_of
from protofly.signatures import from_base64url
from tests.support.link_endpoint import ENDPOINT, Documents, make_world
from tests.support.repository import signing_key
from tests.support.web import EVE, HONEST, WebRig, web_rig

HERE = endpoint_of("b.example")


class Reply(NamedTuple):
    """Status and JSON of an answer."""

    status: int
    body: dict[str, Any]


class Asked:
    """The node of b.example, which is asked, and a clock that goes only when a test says so."""

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        self.refusal: PeerError | None = None
        self.foreseen: list[str] = []
        self.ahead_seconds = 0.0
        self.checks = ReverseChecks(
            documents.identity("b.example"),
            bindings=frozenset({auth.WITHOUT_TLS}),
            foresee=self._foresee,
            clock=lambda: trio.current_time() + self.ahead_seconds,
        )

    def _foresee(self, claims: Claims) -> None:
        self.foreseen.append(claims.iss)
        if self.refusal is not None:
            raise self.refusal

    def proof(self, identity: Identity | None = None, *, challenge: str = "", **changes: Any) -> ReverseProof:
        """The proof of a.example, or what differs from it."""
        challenge = challenge or self.checks.challenge()
        request = TokenRequest(
            peer_domain=changes.get("audience", "b.example"),
            endpoint=changes.get("endpoint", HERE),
            binding=changes.get("binding", auth.WITHOUT_TLS),
            challenge=from_base64url(challenge),
        )
        asking = identity or self.documents.identity("a.example")
        return ReverseProof(challenge=challenge, token=asking.token_for(request)[0])


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    world = make_world(tmp_path)
    yield Asked(Documents(world))
    world.close()


async def judged(asked: Asked, proof: ReverseProof, *, remote: str = HONEST) -> ReverseAnswer:
    return await asked.checks.judge(proof, remote=remote)


async def code_of(asked: Asked, proof: ReverseProof, *, remote: str = HONEST) -> Code:
    with pytest.raises(PeerError) as caught:
        await judged(asked, proof, remote=remote)
    return caught.value.code


async def is_unharmed(asked: Asked) -> bool:
    """Nothing is under way any more, and an honest domain is answered."""
    return len(asked.checks.pending) == 0 and (await judged(asked, asked.proof())).admitted


async def test_domain_that_proves_itself_hears_what_its_link_would_be(asked: Asked) -> None:
    assert await judged(asked, asked.proof()) == ReverseAnswer(admitted=True, code="ok")
    asked.refusal = PeerError(Code.AUTH_POLICY, "rule 7 of the list of secrets", domain="a.example")
    answer = await judged(asked, asked.proof())
    assert (answer.admitted, answer.code) == (False, "auth-policy")
    assert "[[peer]]" in answer.hint
    assert "secret" not in repr(answer)
    assert asked.foreseen == ["a.example"] * 2


async def test_forger_hears_the_same_at_the_same_time_whatever_is_true_of_the_domain(
    asked: Asked, autojump_clock: trio.testing.MockClock
) -> None:
    documents = asked.documents
    await documents.trust_of("a.example", is_refresh=False)
    forged = documents.identity("a.example", key=signing_key("N1", of="eve.example"))
    other_id = documents.identity("a.example", key=signing_key("N9", of="eve.example"))
    unknown = documents.identity("nobody.example", key=signing_key("N1", of="nobody.example"))
    blocked = PeerError(Code.DOMAIN_BLOCKED, "no policy lets us talk to this domain", domain="a.example")
    silent = TransportError(Code.FETCH_TIMEOUT, "nobody answers", phase="read")
    heard, took = [], []
    for identity, failure in ((forged, None), (other_id, None), (unknown, None), (forged, blocked), (forged, silent)):
        documents.failure = failure
        began = trio.current_time()
        heard.append(await judged(asked, asked.proof(identity)))
        took.append(round(trio.current_time() - began, 3))
    assert {one.code for one in heard} == {"auth-unproved"}
    assert len(set(heard)) == 1
    assert set(took) == {HANDSHAKE_SECONDS}
    assert asked.foreseen == []  # policy is asked about nobody who has not proved itself
    documents.failure = None
    assert await is_unharmed(asked)


async def test_domain_whose_documents_are_looked_up_for_ever_is_unproved_in_time(
    asked: Asked, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_options: object) -> Claims:
        await trio.sleep_forever()
        raise AssertionError

    began = trio.current_time()
    with monkeypatch.context() as patched:
        patched.setattr(asked.checks._identity, "verify", never)
        assert (await judged(asked, asked.proof())).code == "auth-unproved"
    assert trio.current_time() - began == pytest.approx(HANDSHAKE_SECONDS)
    assert await is_unharmed(asked)


async def test_proof_that_was_used_is_refused_and_shows_nothing(asked: Asked) -> None:
    proof = asked.proof()
    assert (await judged(asked, proof)).admitted
    again = await judged(asked, proof, remote=EVE)
    assert (again.admitted, again.code) == (False, "auth-replay")
    assert asked.foreseen == ["a.example"]
    assert await is_unharmed(asked)


async def test_token_for_another_audience_purpose_or_line_proves_nothing(asked: Asked) -> None:
    assert await code_of(asked, asked.proof(audience="c.example")) is Code.AUTH_AUDIENCE
    assert await code_of(asked, asked.proof(endpoint=ENDPOINT)) is Code.AUTH_ENDPOINT  # one that opens a link
    assert await code_of(asked, asked.proof(endpoint=endpoint_of("c.example"))) is Code.AUTH_ENDPOINT
    assert await code_of(asked, asked.proof(binding=auth.channel_binding(b"\x07" * 32))) is Code.AUTH_BINDING
    assert asked.foreseen == []
    assert await is_unharmed(asked)


async def test_token_of_a_reverse_check_opens_no_link(asked: Asked) -> None:
    proof = asked.proof()
    with pytest.raises(PeerError) as caught:
        await asked.documents.identity("b.example").verify(
            proof.token.encode(),
            endpoints=frozenset({ENDPOINT}),
            bindings=frozenset({auth.WITHOUT_TLS}),
            nonce=proof.challenge,
        )
    assert caught.value.code is Code.AUTH_ENDPOINT


async def test_challenge_of_another_node_of_long_ago_or_of_nobody_is_refused(asked: Asked) -> None:
    other = Asked(asked.documents)
    assert await code_of(asked, asked.proof(challenge=other.checks.challenge())) is Code.AUTH_NONCE
    old = asked.proof()
    asked.ahead_seconds = CHALLENGE_SECONDS + 1
    assert await code_of(asked, old) is Code.AUTH_NONCE
    asked.ahead_seconds = 0.0
    for text in ("A" * 22, "A" * 54, "A" * 86, asked.checks.challenge()[:-1] + "_"):
        assert await code_of(asked, ReverseProof(challenge=text, token="a.b.c")) is Code.AUTH_NONCE
    mixed = ReverseProof(challenge=asked.checks.challenge(), token=asked.proof().token)
    assert await code_of(asked, mixed) is Code.AUTH_NONCE
    assert await is_unharmed(asked)


async def test_address_with_many_proofs_keeps_nobody_else_out(
    asked: Asked, autojump_clock: trio.testing.MockClock
) -> None:
    forged = asked.documents.identity("a.example", key=signing_key("N1", of="eve.example"))
    await asked.documents.trust_of("a.example", is_refresh=False)
    async with trio.open_nursery() as nursery:
        for _ in range(PENDING_REVERSE_CHECKS_PER_ADDRESS):
            nursery.start_soon(lambda: judged(asked, asked.proof(forged), remote=EVE))
        await trio.testing.wait_all_tasks_blocked()
        assert await code_of(asked, asked.proof(), remote=EVE) is Code.AUTH_LIMIT
        assert (await judged(asked, asked.proof(), remote=HONEST)).admitted
    assert await is_unharmed(asked)


# Over HTTP.


@asynccontextmanager
async def site(asked: Asked, **settings: Any) -> AsyncIterator[Callable[..., Any]]:
    async with web_rig(reverse_checks=asked.checks, **settings) as rig:

        async def ask(body: bytes | None = None, *, address: str = HONEST) -> Reply:
            return await exchanged(rig, body, address)

        yield ask


async def exchanged(rig: WebRig, body: bytes | None, address: str) -> Reply:
    method = "GET" if body is None else "POST"
    head = f"{method} {PATH} HTTP/1.1\r\nHost: b.example\r\nContent-Length: {len(body or b'')}\r\n\r\n"
    raw = await rig.ask(head.encode() + (body or b""), address=address)
    text = raw.partition(b"\r\n\r\n")[2]
    return Reply(int(raw[9:12]), json.loads(text) if text.startswith(b"{") else {})


def posted(proof: ReverseProof) -> bytes:
    return json.dumps({"challenge": proof.challenge, "token": proof.token}).encode()


async def test_proof_over_http_is_answered_and_nothing_is_stored_by_caches(asked: Asked) -> None:
    async with site(asked) as ask:
        challenge = (await ask()).body["challenge"]
        assert await ask(posted(asked.proof(challenge=challenge))) == (
            200,
            {"admitted": True, "code": "ok", "hint": ""},
        )


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[" * 4000, b'{"challenge": 1, "token": "a"}', b'{"token":"a","token":"b"}', b"\xff" * 64, b"null"],
)
async def test_body_that_is_no_proof_is_a_bad_one(asked: Asked, body: bytes) -> None:
    async with site(asked) as ask:
        assert (await ask(body)).body["code"] == "bad-body"
        assert (await ask(posted(asked.proof()))).body["admitted"]


async def test_body_that_is_too_large_is_cut_off(asked: Asked) -> None:
    async with site(asked) as ask:
        reply = await ask(b"x" * (PROOF_BYTES + 1))
        assert (reply.status, reply.body["code"]) == (413, "too-large")
        assert (await ask(posted(asked.proof()))).body["admitted"]


async def test_address_beyond_its_rate_hears_when_to_come_again_and_others_are_answered(asked: Asked) -> None:
    async with site(asked) as ask:
        replies = [await ask(b"{}", address=EVE) for _ in range(6)]
        assert [one.status for one in replies] == [400] * 5 + [429]
        assert replies[-1].body["code"] == "rate"
        assert (await ask(posted(asked.proof()), address=EVE)).status == 429
        assert (await ask(posted(asked.proof()))).body["admitted"]
    assert asked.foreseen == ["a.example"]


async def test_site_that_does_not_offer_it_says_nothing(asked: Asked) -> None:
    async with site(asked, reverse_check=False) as ask:
        assert (await ask()).status == 404
        assert (await ask(posted(asked.proof()))).status == 404
    assert asked.foreseen == []
