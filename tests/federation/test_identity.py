"""Who is at the other end: tokens of one node, checked by another, with documents that were really published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from federation.core import auth
from federation.core.alias_rules import AliasRules
from federation.core.auth import Claims, StubIdentity, TokenRequest
from federation.discovery import identity as identities
from federation.discovery.identity import Identity
from protofly.documents import Revoked
from protofly.errors import Code, PeerError, TransportError
from protofly.signatures import base64url
from tests.support.link_endpoint import ENDPOINT, Documents, make_world
from tests.support.repository import signing_key
from tests.support.sides import node_of

BINDING = auth.channel_binding(b"\x06" * 32)
CHALLENGE = b"\x05" * 32


@pytest.fixture
def documents(tmp_path: Path) -> Iterator[Documents]:
    world = make_world(tmp_path)
    yield Documents(world)
    world.close()


def token_of(identity: Identity, *, challenge: bytes = CHALLENGE, peer: str = "b.example") -> bytes:
    request = TokenRequest(
        peer_domain=peer,
        endpoint=ENDPOINT,
        binding=BINDING,
        challenge=challenge,
        stub=StubIdentity(name="link", serial=3, sha256="ab"),
    )
    return identity.token_for(request)[0].encode()


async def verify(identity: Identity, token: bytes, *, nonce: str = "", peer_domain: str = "") -> Claims:
    return await identity.verify(
        token,
        endpoints=frozenset({ENDPOINT}),
        bindings=frozenset({BINDING}),
        nonce=nonce or auth.nonce_text(CHALLENGE),
        peer_domain=peer_domain,
    )


async def code_of(identity: Identity, token: bytes, *, nonce: str = "", peer_domain: str = "") -> Code:
    with pytest.raises(PeerError) as caught:
        await verify(identity, token, nonce=nonce, peer_domain=peer_domain)
    return caught.value.code


async def test_a_node_proves_itself_with_its_published_key(documents: Documents) -> None:
    claims = await verify(documents.identity("b.example"), token_of(documents.identity("a.example")))
    assert (claims.iss, claims.node, claims.doms) == ("a.example", node_of("a.example"), ["a.example"])
    assert claims.stub == StubIdentity(name="link", serial=3, sha256="ab")


async def test_both_prove_themselves_over_one_challenge_each(documents: Documents) -> None:
    a, b = documents.identity("a.example"), documents.identity("b.example")
    request = TokenRequest(peer_domain="b.example", endpoint=ENDPOINT, binding=BINDING, challenge=CHALLENGE)
    token, counter_challenge = a.token_for(request)
    claims = await verify(b, token.encode())
    answer = b.answer_for(
        TokenRequest(peer_domain="a.example", endpoint=ENDPOINT, binding=BINDING, challenge=b""), claims
    )
    proven = await verify(a, answer.encode(), nonce=counter_challenge, peer_domain="b.example")
    assert proven.iss == "b.example"


async def test_every_token_has_its_own_id_and_counter_challenge(documents: Documents) -> None:
    identity = documents.identity("a.example")
    request = TokenRequest(peer_domain="b.example", endpoint=ENDPOINT, binding=BINDING, challenge=CHALLENGE)
    made = [identity.token_for(request) for _ in range(50)]
    assert len({token for token, _ in made}) == len({counter for _, counter in made}) == 50


@pytest.mark.parametrize("size", [0, 15, 65, 1 << 20])
async def test_a_challenge_of_the_wrong_length_is_not_signed(documents: Documents, size: int) -> None:
    with pytest.raises(PeerError) as caught:
        token_of(documents.identity("a.example"), challenge=b"x" * size)
    assert caught.value.code is Code.AUTH_NONCE


async def test_a_token_used_twice_is_refused_the_second_time(documents: Documents) -> None:
    b, token = documents.identity("b.example"), token_of(documents.identity("a.example"))
    await verify(b, token)
    assert await code_of(b, token) is Code.AUTH_REPLAY


async def test_another_node_of_the_same_domain_refuses_it_by_its_own_challenge(documents: Documents) -> None:
    token = token_of(documents.identity("a.example"))
    await verify(documents.identity("b.example"), token)
    other_node = documents.identity("b.example")
    assert await code_of(other_node, token, nonce=auth.nonce_text(b"\x09" * 32)) is Code.AUTH_NONCE


async def test_a_token_of_our_own_domain_is_refused_before_anything_is_looked_up(documents: Documents) -> None:
    b = documents.identity("b.example")
    assert await code_of(b, token_of(b)) is Code.OWN_DOMAIN
    assert not documents.asked


async def test_an_alias_of_ours_is_our_own_domain_too(documents: Documents) -> None:
    b = documents.identity("b.example", domains=["b.example", "a.example"])
    assert await code_of(b, token_of(documents.identity("a.example"))) is Code.OWN_DOMAIN


@pytest.mark.parametrize("issuer", ["A.example", "a.example.", "a.example:443", "x@a.example", "a", "127.0.0.1"])
async def test_an_issuer_that_is_no_domain_name_is_refused_before_anything_is_looked_up(
    documents: Documents, issuer: str
) -> None:
    stranger = documents.identity("a.example", domains=[issuer])
    assert await code_of(documents.identity("b.example"), token_of(stranger)) is Code.NAME_INVALID
    assert not documents.asked


async def test_what_can_be_refused_without_a_key_asks_nobody(documents: Documents) -> None:
    b = documents.identity("b.example")
    token = token_of(documents.identity("a.example"), peer="c.example")
    assert await code_of(b, token) is Code.AUTH_AUDIENCE
    assert await code_of(b, b"no.token.atall") is Code.AUTH_MALFORMED
    assert await code_of(b, b"x" * 5000) is Code.AUTH_MALFORMED
    assert not documents.asked


async def test_the_keys_come_from_our_own_discovery_of_the_issuer(documents: Documents) -> None:
    forged = documents.identity("a.example", key=signing_key("N1", of="evil.example"))
    assert await code_of(documents.identity("b.example"), token_of(forged)) is Code.AUTH_SIGNATURE
    assert documents.asked == {"a.example": 1}


async def test_why_the_documents_could_not_be_had_is_the_refusal(documents: Documents) -> None:
    documents.failure = TransportError(Code.CONNECT_FAILED, "nobody answers", phase="connect")
    with pytest.raises(TransportError) as caught:
        await verify(documents.identity("b.example"), token_of(documents.identity("a.example")))
    assert caught.value.code is Code.CONNECT_FAILED


async def test_another_domain_than_the_expected_one_is_refused(documents: Documents) -> None:
    token = token_of(documents.identity("a.example"))
    assert await code_of(documents.identity("b.example"), token, peer_domain="c.example") is Code.AUTH_AUDIENCE


async def test_domains_that_the_root_does_not_name_cannot_be_claimed(documents: Documents) -> None:
    greedy = documents.identity("a.example", domains=["a.example", "c.example"])
    assert await code_of(documents.identity("b.example"), token_of(greedy)) is Code.AUTH_POLICY


async def test_an_alias_that_only_the_root_names_may_be_claimed_and_counts_for_nothing(documents: Documents) -> None:
    documents.published["a.example"].rotate_root(aliases=["alias.example"])
    documents.publish_keys("a.example", documents.keys["a.example"])
    wide = documents.identity("a.example", domains=["a.example", "alias.example"])
    for identity in (documents.identity("b.example"), documents.identity("b.example", rules=AliasRules())):
        assert (await verify(identity, token_of(wide))).doms == ["a.example"]


async def test_a_proof_is_remembered_by_who_gave_it_and_not_by_its_number_alone(documents: Documents) -> None:
    b = documents.identity("b.example")
    claims = await verify(b, token_of(documents.identity("a.example")))
    stranger = b.take_proof(msgspec.structs.replace(claims, iss="c.example"))
    with pytest.raises(PeerError):
        await b.check_again(stranger)
    assert await b.check_again(b.take_proof(claims)) == {"a.example"}


async def test_a_proof_that_somebody_relies_on_is_not_forgotten_for_those_of_others(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "UNTAKEN_PROOFS", 3)
    a, b = documents.identity("a.example"), documents.identity("b.example")
    proof = b.take_proof(await verify(b, token_of(a)))
    for _ in range(9):
        await verify(b, token_of(a))
    assert await b.check_again(proof) == {"a.example"}
    assert len(b._untaken) == 3


async def test_a_key_that_the_cached_documents_do_not_know_is_looked_up_once_more(documents: Documents) -> None:
    b = documents.identity("b.example")
    await verify(b, token_of(documents.identity("a.example")))
    new_key = signing_key("N2", of="a.example")
    documents.publish_keys("a.example", documents.keys["a.example"], new_key)
    await verify(b, token_of(documents.identity("a.example", key=new_key)))
    assert documents.refreshes == {"a.example": 2}


async def test_a_known_key_asks_for_nothing_new(documents: Documents) -> None:
    a, b = documents.identity("a.example"), documents.identity("b.example")
    for _ in range(5):
        await verify(b, token_of(a))
    assert documents.refreshes == {"a.example": 1}


async def test_a_key_that_nobody_published_is_refused_after_asking(documents: Documents) -> None:
    stranger = documents.identity("a.example", key=signing_key("N9", of="a.example"))
    assert await code_of(documents.identity("b.example"), token_of(stranger)) is Code.AUTH_KEY_UNKNOWN


async def test_a_revoked_key_is_refused(documents: Documents) -> None:
    key = documents.keys["a.example"]
    documents.publish_keys("a.example", key, revoked=Revoked(keys=[key.key_id]))
    token = token_of(documents.identity("a.example"))
    assert await code_of(documents.identity("b.example"), token) is Code.AUTH_KEY_REVOKED


async def test_the_cancelled_look_up_leaves_the_token_unused(documents: Documents) -> None:
    a, b = documents.identity("a.example"), documents.identity("b.example")
    token = token_of(a)
    documents.world.fetcher.is_patient = True
    with trio.CancelScope() as scope:
        scope.cancel()
        await verify(b, token)
    assert scope.cancelled_caught
    assert (await verify(b, token)).iss == "a.example"


async def test_a_signature_over_other_claims_does_not_hold(documents: Documents) -> None:
    a, b = documents.identity("a.example"), documents.identity("b.example")
    head, body, signature = token_of(a).split(b".")
    claims = msgspec.json.decode(auth._decoded(body))
    changed = base64url(msgspec.json.encode({**claims, "node": "runtime://a.example/mn-2"})).encode()
    assert await code_of(b, b".".join((head, changed, signature))) is Code.AUTH_SIGNATURE
