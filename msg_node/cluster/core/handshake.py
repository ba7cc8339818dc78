"""How two nodes of one domain prove to each other that they know the key of their cluster.

    dialler                                   listener
      HELLO (node, nonce, …)   ─────────────▶
              ◀─────────────   HELLO (node, nonce, …), PROOF
      PROOF                    ─────────────▶

A proof is an HMAC over both hellos, under a label for the side that makes it, and over the certificate of the listener
that both ends see. So a hello or a proof that was recorded is worth nothing on another connection (the other nonce
differs), a proof cannot be sent back to the node that made it (the label differs), and a node in the middle that ends
TLS on both sides is found out (the certificates differ). The key itself never crosses the line; it has 32 random bytes,
so what a stranger gets to see of it by connecting helps it nowhere. Source: design, section 6; RFC 5929 (binding).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from msg_node.cluster.core.link_frames import Frame, FrameKind, frame
from protofly.errors import Code, PeerError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 32
VERSION: Final = 1
RUNS_ABROAD: Final = "runs-abroad"
"""Ability: takes runs of messages for other domains (`msg_node.cluster.core.runs`)."""
ADDRESSES: Final = "addresses"
"""Ability: says what another domain may see of its addresses (`msg_node.bus.addresses_of_nodes`)."""
ABILITIES: Final = (RUNS_ABROAD, ADDRESSES)
"""Those of this version."""
_DIALLER, _LISTENER = b"trapezoid-cluster/1 dialler", b"trapezoid-cluster/1 listener"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """First frame of a node on a connection.

    Attributes:
        domain: The domain that it serves.
        node: Its name in that domain.
        epoch: Under which it holds that name; a process with an older epoch has lost it.
        process: Random text of this process: numbers of frames count within one process at each end.
        nonce: Fresh random text of this connection.
        met_process: The process of the other end as this one last knew it, "" for none.
        received: How many content frames of that process this one has taken over.
        version: Of the protocol.
        abilities: What this node understands beyond that version: a node of the release before has none of the newest.
    """

    domain: str
    node: str
    epoch: int
    process: str
    nonce: str
    met_process: str = ""
    received: int = 0
    version: int = VERSION
    abilities: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Hello)


class Handshake:
    """One side of a handshake; it ends with a verified hello of the other side, or with an error.

    Args:
        ours: Makes our hello for a node; the dialler's is made at once.
        key: Of the cluster.
        is_dialler: We have connected; the other side listens.
        binding: What both ends see of the encrypted line: a hash of the listener's certificate, b"" without one.
        node: The node that we meant to reach; "" takes any.
    """

    def __init__(
        self, ours: Callable[[str], Hello], key: bytes, *, is_dialler: bool, binding: bytes, node: str = ""
    ) -> None:
        self._make_ours = ours
        self._ours = ours(node)
        self._our_bytes = msgspec.json.encode(self._ours)
        self._key = key
        self._is_dialler = is_dialler
        self._binding = binding
        self._node = node
        self._peer: Hello | None = None
        self._peer_bytes = b""
        self.verified: Hello | None = None
        """The hello of the other side, once it has proved that it knows the key."""

    def begin(self) -> bytes:
        """Frame that the dialler sends first; b"" for the listener."""
        return frame(FrameKind.HELLO, self._our_bytes) if self._is_dialler else b""

    def take(self, received: Frame) -> bytes:
        """Take the next frame of the other side; gives what is to be sent.

        Raises:
            PeerError: PROTOCOL_ERROR, WRONG_DOMAIN, AUTH_SIGNATURE, AUTH_AUDIENCE; or the code with which the other
                side refused, as CONNECT_FAILED.
        """
        if received.kind == FrameKind.REFUSED:
            raise PeerError(Code.CONNECT_FAILED, f"the other node refuses: {received.content[:64]!r}")
        if received.kind == FrameKind.HELLO and self._peer is None:
            return self._introduced(received.content)
        if received.kind == FrameKind.PROOF and self._peer is not None and self.verified is None:
            return self._proved(received.content)
        raise PeerError(Code.PROTOCOL_ERROR, "this frame has no place in a handshake")

    def _introduced(self, content: bytes) -> bytes:
        try:
            peer = _decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the hello cannot be read") from exc
        if peer.version != VERSION:
            raise PeerError(Code.PROTOCOL_ERROR, f"protocol version {peer.version}; this node speaks {VERSION}")
        if peer.domain != self._ours.domain:
            raise PeerError(Code.WRONG_DOMAIN, "the node is of another domain", domain=peer.domain)
        if peer.node == self._ours.node or self._node not in ("", peer.node):
            raise PeerError(Code.AUTH_AUDIENCE, f"this is node {peer.node[:64]}", domain=peer.domain)
        if peer.nonce == self._ours.nonce or len(peer.nonce) < NONCE_BYTES:
            raise PeerError(Code.PROTOCOL_ERROR, "the nonce is not fresh")
        self._peer, self._peer_bytes = peer, content
        if self._is_dialler:
            return b""
        self._our_bytes = msgspec.json.encode(self._make_ours(peer.node))
        return frame(FrameKind.HELLO, self._our_bytes) + frame(FrameKind.PROOF, self._proof(_LISTENER))

    def _proved(self, content: bytes) -> bytes:
        if not hmac.compare_digest(content, self._proof(_LISTENER if self._is_dialler else _DIALLER)):
            raise PeerError(Code.AUTH_SIGNATURE, "the other node does not know the key of this cluster")
        self.verified = self._peer
        return frame(FrameKind.PROOF, self._proof(_DIALLER)) if self._is_dialler else b""

    def _proof(self, label: bytes) -> bytes:
        hellos = (self._our_bytes, self._peer_bytes) if self._is_dialler else (self._peer_bytes, self._our_bytes)
        parts = (label, self._binding, *hellos)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")
