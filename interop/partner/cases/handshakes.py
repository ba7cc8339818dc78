"""Tokens and frames before a partner is welcome, from both sides of a link."""

from __future__ import annotations

from typing import Final

from interop.partner.core.frames import (
    ACK,
    BYE,
    CHALLENGE,
    HELLO,
    MESSAGES,
    REFUSE,
    TOKEN,
    WELCOME,
    pack,
    pack_messages,
)
from interop.partner.core.keys import as_json
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.stage import Handshake
from interop.partner.steps import (
    Connects,
    Ended,
    Gets,
    GetsNothing,
    Hears,
    HearsOnlyHonest,
    Hosts,
    Publishes,
    Refused,
    Says,
    Sends,
    Visits,
    Welcomed,
    Writes,
)

_HELLO: Final = {"stream": "5" * 32, "peer_stream": "", "delivered": 0, "domain": "x.example", "node": "x"}
_SPOKEN: Final = pack_messages(1, [b'{"type":"create","from":"hyperty://x.example/x","to":"hyperty://y/y","body":{}}'])


def _case(id_: str, section: str, says: str, *steps: PartnerStep) -> PartnerCase:
    return PartnerCase(id=id_, group="handshake", section=section, says=says, steps=steps)


def _token(id_: str, says: str, manner: Handshake, *words: str) -> PartnerCase:
    return _case(f"token-{id_}", "2.7, step 4", says, Visits(manner), Refused(words))


def _welcome(id_: str, says: str, manner: Handshake) -> PartnerCase:
    return _case(f"welcome-{id_}", "2.7, step 5", says, Writes(), Hosts(manner), GetsNothing())


def _frames(id_: str, says: str, *frames: bytes) -> PartnerCase:
    return _case(f"frames-{id_}", "docs/link.md", says, Connects(frames), Refused())


CASES: Final = (
    _case(
        "handshake-visitor",
        "2.7",
        "a partner that proves itself is welcome, and the node proves itself to it",
        Visits(),
        Welcomed(processed=0),
        Says({"body": {"value": "first"}}),
        Hears(("first",)),
    ),
    _case(
        "handshake-host",
        "2.7",
        "the node proves itself to a partner's endpoint, then writes to it",
        Writes(),
        Hosts(serial=1),
        Gets(),
    ),
    # Tokens of a visitor.
    _token("for-another-domain", "`aud` is the own domain", Handshake(claims={"aud": "{c}"}), "auth-audience"),
    _token("for-another-endpoint", "`ep` is an own endpoint", Handshake(claims={"ep": "wss://mn.{c}/link"})),
    _token(
        "for-another-connection",
        "`cb` is the hash of the certificate served here",
        Handshake(claims={"cb": "tls-server-end-point:" + "A" * 43}),
        "auth-binding",
    ),
    _token(
        "without-tls", '`cb` says no "none" on a connection with TLS', Handshake(claims={"cb": "none"}), "auth-binding"
    ),
    _token(
        "of-another-challenge",
        "`nonce` is the one issued on this connection",
        Handshake(claims={"nonce": "A" * 43}),
        "auth-nonce",
    ),
    _token("without-nonce", "a token answers a challenge", Handshake(claims={"nonce": None})),
    _token("stale", "`iat` is at most 60 s ago", Handshake(claims={"iat": -120, "exp": -90}), "auth-stale"),
    _token("of-the-future", "`iat` is at most 60 s ahead", Handshake(claims={"iat": 120, "exp": 150}), "auth-stale"),
    _token("valid-for-hours", "`exp` − `iat` is at most 60 s", Handshake(claims={"exp": 7200}), "auth-stale"),
    _token("ends-before-it-begins", "`exp` is after `iat`", Handshake(claims={"exp": -10}), "auth-stale"),
    _token("unknown-key", "`kid` is published by the domain", Handshake(key="N7"), "auth-key-unknown"),
    _token(
        "root-key", "the key has the use `node`: a root key signs no tokens", Handshake(key="K1"), "auth-key-unknown"
    ),
    _token(
        "live-key", "the key has the use `node`: a live key signs no tokens", Handshake(key="L1"), "auth-key-unknown"
    ),
    _token("forged", "the signature is that of the published key", Handshake(stranger=True), "auth-signature"),
    _token("other-type", "`typ` is a constant", Handshake(header={"typ": "JWT"})),
    _token("algorithm-none", "`alg` is a constant", Handshake(header={"alg": "none"})),
    _token("other-algorithm", "`alg` fits the published key", Handshake(header={"alg": "ES256"})),
    _token(
        "key-in-header",
        "the key comes from the node's own discovery, never from the token",
        Handshake(stranger=True, header={"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "A" * 43}}),
    ),
    _token(
        "of-our-domain",
        "nobody else speaks for the node's own domain",
        Handshake(claims={"iss": "{a}", "node": "runtime://{a}/mn-1"}, hello={"domain": "{a}"}),
    ),
    _token("claims-our-domain", "`doms` holds no domain of the node's own", Handshake(claims={"doms": ["{b}", "{a}"]})),
    _token(
        "claims-a-third",
        "`doms` holds no domain that its root does not name",
        Handshake(claims={"doms": ["{b}", "{c}"]}),
        "auth-policy",
    ),
    _token(
        "node-elsewhere", "`node` is of the domain that is proved", Handshake(claims={"node": "runtime://{c}/mn-1"})
    ),
    _token("another-in-hello", "HELLO and token name the same domain", Handshake(hello={"domain": "{c}"})),
    _token("domain-with-dot", "a name is not repaired: `b.example.` is refused", Handshake(claims={"iss": "{b}."})),
    _token("too-long", "a token has at most 4 KiB", Handshake(raw="a" * 5000)),
    _token("no-token", "what is no compact JWS is refused", Handshake(raw="proof")),
    _token("empty", "an empty token is refused", Handshake(raw="")),
    _case(
        "token-revoked-key",
        "2.7, step 4",
        "a revoked node key proves nothing",
        Publishes(lambda domain: (domain.revoked.update({"keys": ["N1"]}), domain.live())),
        Visits(),
        Refused(("auth-key-revoked",)),
    ),
    _case(
        "token-key-of-tomorrow",
        "2.7, step 4",
        "a node key proves nothing before its time",
        Publishes(
            lambda domain: domain.live(
                node_keys={
                    "N1": {**domain.key("N1").record(), "nbf": "2099-01-01T00:00:00Z", "exp": "2099-02-01T00:00:00Z"}
                }
            )
        ),
        Visits(),
        Refused(("auth-key-unknown",)),
    ),
    _case(
        "token-key-of-yesterday",
        "2.7, step 4",
        "a node key proves nothing after its time",
        Publishes(
            lambda domain: domain.live(
                node_keys={
                    "N1": {**domain.key("N1").record(), "nbf": "2020-01-01T00:00:00Z", "exp": "2020-02-01T00:00:00Z"}
                }
            )
        ),
        Visits(),
        Refused(("auth-key-unknown",)),
    ),
    _case(
        "token-twice",
        "2.7, step 4",
        "a token counts once: a second one ends the connection",
        Visits(),
        Welcomed(),
        Sends((pack(TOKEN, 0, b"again"),)),
        Ended(),
    ),
    # Answers of a partner's endpoint, which the stub hands to its host.
    _welcome(
        "of-another-domain", "the token of a partner has its own domain as `iss`", Handshake(claims={"iss": "{c}"})
    ),
    _welcome("for-another-domain", "`aud` is the node's domain", Handshake(claims={"aud": "{c}"})),
    _welcome("of-another-challenge", "`nonce` is the node's own challenge", Handshake(claims={"nonce": "A" * 43})),
    _welcome(
        "for-another-connection",
        "`cb` is the hash of the certificate that was seen",
        Handshake(claims={"cb": "tls-server-end-point:" + "A" * 43}),
    ),
    _welcome(
        "for-another-endpoint",
        "`ep` is the endpoint that was connected to",
        Handshake(claims={"ep": "wss://mn.{c}/link"}),
    ),
    _welcome("stale", "`iat` is at most 60 s ago", Handshake(claims={"iat": -120, "exp": -90})),
    _welcome("unknown-key", "`kid` is published by the domain", Handshake(key="N7")),
    _welcome("forged", "the signature is that of the published key", Handshake(stranger=True)),
    _welcome("without-token", "without a token of the partner nothing is sent", Handshake(raw="")),
    # Frames before the proof.
    _frames("messages-first", "messages before HELLO end the connection", _SPOKEN),
    _frames(
        "messages-instead-of-token",
        "messages in place of a token end the connection",
        pack(HELLO, 1, as_json(_HELLO)),
        _SPOKEN,
    ),
    _frames("version-2", "an unknown version of the link is refused", pack(HELLO, 2, as_json(_HELLO))),
    _frames("hello-no-json", "a HELLO that cannot be read is refused", pack(HELLO, 1, b"{")),
    _frames(
        "hello-without-stream", "a HELLO without a stream is refused", pack(HELLO, 1, as_json({**_HELLO, "stream": ""}))
    ),
    _frames("flags", "flags are 0", pack(HELLO, 1, as_json(_HELLO), flags=1)),
    _frames("unknown-kind", "an unknown kind of frame ends the connection", pack(77)),
    _frames("too-short", "a frame has eight bytes or more", b"\1\0\0"),
    _frames("welcome-first", "a visitor does not welcome", pack(WELCOME, 0, b"5" * 40)),
    # Frames behind it.
    *(
        _case(
            f"frames-{word}-later",
            "docs/link.md",
            f"{word.upper()} behind the handshake ends the connection",
            Visits(),
            Welcomed(),
            Sends((pack(kind, 1, b"x" * 32),)),
            Ended(),
            HearsOnlyHonest(),
        )
        for word, kind in (("hello", HELLO), ("challenge", CHALLENGE), ("welcome", WELCOME))
    ),
    _case(
        "frames-cut-off-message",
        "docs/link.md",
        "a length beyond the frame ends the connection",
        Visits(),
        Welcomed(),
        Sends((pack(MESSAGES, 1, b"\xff\0\0\0{}"),)),
        Ended(),
        HearsOnlyHonest(),
    ),
    _case(
        "frames-number-zero",
        "docs/link.md",
        "messages are numbered from 1",
        Visits(),
        Welcomed(),
        Sends((pack(MESSAGES, 0, b"\2\0\0\0{}"),)),
        Ended(),
        HearsOnlyHonest(),
    ),
    _case(
        "frames-empty-messages",
        "docs/link.md",
        "MESSAGES carries one message or more",
        Visits(),
        Welcomed(),
        Sends((pack(MESSAGES, 1),)),
        Ended(),
        HearsOnlyHonest(),
    ),
    _case(
        "frames-acknowledgement-of-nothing",
        "docs/link.md",
        "an acknowledgement of what was never sent costs nobody",
        Visits(),
        Welcomed(),
        Sends((pack(ACK, 4_000_000_000),)),
        HearsOnlyHonest(),
    ),
    _case(
        "frames-refusal-of-nothing",
        "docs/link.md",
        "a refusal of what was never sent costs nobody",
        Visits(),
        Welcomed(),
        Sends((pack(REFUSE, 77, b"403 policy no"),)),
        HearsOnlyHonest(),
    ),
    _case(
        "frames-bye",
        "docs/link.md",
        "BYE ends the connection",
        Visits(),
        Welcomed(),
        Sends((pack(BYE, 0, b"draining"),)),
        Ended(),
        HearsOnlyHonest(),
    ),
)
