"""The proof of a cluster's key: who knows it is let in, and a recording of who does is worth nothing."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.cluster.core.handshake import KEY_BYTES, NONCE_BYTES, VERSION, Handshake, Hello
from msg_node.cluster.core.link_frames import Frame, FrameKind, FrameReader, frame
from protofly.errors import PeerError

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
_nonces = count()


def hellos(node: str = "n1", domain: str = "a.example") -> Callable[[str], Hello]:
    def make(_: str) -> Hello:
        return Hello(domain=domain, node=node, epoch=1, process="p", nonce=f"{next(_nonces):064d}")

    return make


def dialler(
    key: bytes = KEY, node: str = "n1", domain: str = "a.example", binding: bytes = b"c", to: str = "n2"
) -> Handshake:
    return Handshake(hellos(node, domain), key, is_dialler=True, binding=binding, node=to)


def listener(key: bytes = KEY, node: str = "n2", binding: bytes = b"c") -> Handshake:
    return Handshake(hellos(node), key, is_dialler=False, binding=binding)


def frames(raw: bytes) -> list[Frame]:
    return FrameReader().feed(raw)


def run(one: Handshake, other: Handshake) -> list[bytes]:
    """Let both talk until nothing is said any more; gives what was said."""
    said = [one.begin()]
    sides = [other, one]
    while said[-1]:
        side = sides[(len(said) - 1) % 2]
        said.append(b"".join(side.take(one_frame) for one_frame in frames(said[-1])))
    return said


def test_a_hello_of_the_version_before_has_no_abilities() -> None:
    before = msgspec.to_builtins(hellos()(""))
    del before["abilities"]
    assert msgspec.json.decode(msgspec.json.encode(before), type=Hello).abilities == ()


def test_two_nodes_with_the_key_know_each_other() -> None:
    one, other = dialler(), listener()
    run(one, other)
    assert one.verified is not None
    assert other.verified is not None
    assert (one.verified.node, other.verified.node) == ("n2", "n1")


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (dialler(key=OTHER_KEY), "auth-signature"),
        (dialler(domain="b.example"), "wrong-domain"),
        (dialler(domain="a.example.evil"), "wrong-domain"),
        (dialler(node="n2", to="n3"), "auth-audience"),
        (dialler(to="n3"), "auth-audience"),
        (dialler(binding=b"of the node in the middle"), "auth-signature"),
    ],
    ids=["no key", "another domain", "a look-alike", "our own name", "not whom we dialled", "a node in the middle"],
)
def test_who_is_not_of_this_cluster_is_refused(one: Handshake, word: str) -> None:
    other = listener()
    with pytest.raises(PeerError, match=word):
        run(one, other)
    assert other.verified is None


def test_a_replayed_hello_and_proof_prove_nothing() -> None:
    one, other = dialler(), listener()
    said = run(one, other)
    fresh = listener()
    for one_frame in frames(said[0]):
        fresh.take(one_frame)
    with pytest.raises(PeerError, match="auth-signature"):
        fresh.take(frames(said[2])[0])
    assert fresh.verified is None


def test_a_proof_cannot_be_sent_back_to_the_node_that_made_it() -> None:
    fresh = listener()
    answer = fresh.take(frames(dialler(key=OTHER_KEY).begin())[0])
    with pytest.raises(PeerError, match="auth-signature"):
        fresh.take(frames(answer)[1])


def test_a_hello_that_comes_back_as_it_was_is_refused() -> None:
    one = dialler()
    raw = one.begin()
    with pytest.raises(PeerError, match="auth-audience"):
        one.take(frames(raw)[0])


def hello_of(nonce: str, *, version: int = VERSION) -> Frame:
    """A hello to the listener `n2` with that nonce."""
    hello = Hello(domain="a.example", node="n1", epoch=1, process="p", nonce=nonce, version=version)
    [sent] = frames(frame(FrameKind.HELLO, msgspec.json.encode(hello)))
    return sent


@pytest.mark.parametrize(
    ("nonce", "is_taken"), [("x" * NONCE_BYTES, True), ("x" * (NONCE_BYTES - 1), False), ("", False)]
)
def test_a_short_nonce_is_refused(nonce: str, is_taken: bool) -> None:
    if is_taken:
        assert listener().take(hello_of(nonce))
        return
    with pytest.raises(PeerError, match="nonce is not fresh"):
        listener().take(hello_of(nonce))


def test_the_proof_is_over_the_hello_of_the_dialler_before_that_of_the_listener() -> None:
    """Both sides change together in a test: a node of another version would not."""
    one, other = dialler(binding=b"binding"), listener(binding=b"binding")
    [hello] = frames(one.begin())
    answer, proof = frames(other.take(hello))
    parts = (b"trapezoid-cluster/1 listener", b"binding", hello.content, answer.content)
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    assert proof.content == hmac.digest(KEY, text, "sha256")


def test_the_listener_answers_with_what_it_says_to_that_node() -> None:
    def make(node: str) -> Hello:
        return Hello(domain="a.example", node="n2", epoch=1, process="p", nonce="n" * NONCE_BYTES, met_process=node)

    other = Handshake(make, KEY, is_dialler=False, binding=b"c")
    [hello] = frames(dialler(node="n7").begin())
    answer, _ = frames(other.take(hello))
    assert msgspec.json.decode(answer.content, type=Hello).met_process == "n7"


def test_a_key_and_a_nonce_have_256_bits() -> None:
    assert (KEY_BYTES * 8, NONCE_BYTES) == (256, 32)


def test_our_own_nonce_and_another_version_are_refused() -> None:
    ours = "o" * 64

    def make(_: str) -> Hello:
        return Hello(domain="a.example", node="n2", epoch=1, process="p", nonce=ours)

    fresh = Handshake(make, KEY, is_dialler=False, binding=b"c")
    with pytest.raises(PeerError, match="nonce is not fresh"):
        fresh.take(hello_of(ours))
    with pytest.raises(PeerError, match="protocol version"):
        listener().take(hello_of("x" * 64, version=VERSION + 1))


@pytest.mark.parametrize("kind", [FrameKind.CONTENT, FrameKind.RECEIVED, FrameKind.GOES_ON, FrameKind.PROOF])
def test_nothing_but_a_hello_comes_first(kind: FrameKind) -> None:
    with pytest.raises(PeerError, match="protocol-error"):
        listener().take(Frame(kind, b""))


@given(st.binary(max_size=300) | st.dictionaries(st.text(max_size=8), st.integers()).map(msgspec.json.encode))
def test_any_hello_is_read_or_refused(content: bytes) -> None:
    fresh = listener()
    try:
        fresh.take(frames(frame(FrameKind.HELLO, content))[0])
    except PeerError:
        assert fresh.verified is None


@pytest.mark.parametrize("is_dialler", [True, False])
def test_a_second_hello_is_refused_whatever_the_first_one_said(is_dialler: bool) -> None:
    """Else the proof of one hello would be taken for another: the peer is the one that was introduced first."""
    side = dialler() if is_dialler else listener()
    introduced = hellos("n2" if is_dialler else "n1")
    for is_first in (True, False):
        [hello] = frames(frame(FrameKind.HELLO, msgspec.json.encode(introduced(""))))
        if is_first:
            side.take(hello)
            continue
        with pytest.raises(PeerError, match="protocol-error"):
            side.take(hello)
    assert side.verified is None


def test_a_hello_after_the_proof_is_refused_and_changes_nothing() -> None:
    one, other = dialler(), listener()
    run(one, other)
    [hello] = frames(frame(FrameKind.HELLO, msgspec.json.encode(hellos("n3")(""))))
    for side, node in ((one, "n2"), (other, "n1")):
        with pytest.raises(PeerError, match="protocol-error"):
            side.take(hello)
        assert side.verified is not None
        assert side.verified.node == node


def test_only_a_frame_of_that_kind_is_a_hello_whatever_it_says() -> None:
    with pytest.raises(PeerError, match="protocol-error"):
        listener().take(Frame(FrameKind.CONTENT, msgspec.json.encode(hellos("n1")(""))))


def test_the_word_of_a_node_that_refuses_is_reported() -> None:
    with pytest.raises(PeerError, match="connect-failed: the other node refuses: b'wrong-domain'"):
        dialler().take(Frame(FrameKind.REFUSED, b"wrong-domain"))


def test_a_proof_is_taken_once() -> None:
    one, other = dialler(), listener()
    said = run(one, other)
    [proof] = [part for part in frames(said[2]) if part.kind == FrameKind.PROOF]
    with pytest.raises(PeerError, match="protocol-error"):
        other.take(proof)
