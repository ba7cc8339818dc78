"""Random messages whose members hold what no honest program writes; the same for the same seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

LITERALS = [
    *(b"1e999", b"-1e999", b"9" * 400, b"9" * 5000, b"-0", b"-1", b"1.5", b"18446744073709551616", b"1e-999"),
    *(b'"\\ud800"', b'"\\udc00x"', b'""', b'"a\\u0000b"', b'"0001-01-01T00:00:00+14:00"', b'"xn--a.example"'),
    *(b"null", b"true", b"false", b"[]", b"{}", b"[null]", b"[{}]", b'{"a":1,"a":2}', b'{"":""}', b'["",""]'),
    *(b'"hyperty://\xef\xbd\x81.example/x"', b'"hyperty://[x/y"', b"[" * 60 + b"]" * 60, b'{"\\ud800":1}'),
    *(b"[1e999]", b'{"x":' + b"9" * 5000 + b"}", b'[9e999,"\\ud800"]', b'"9999-12-31T23:59:59-14:00"'),
]
"""JSON texts: numbers that no float holds, halves of characters, members that are there twice, depth, dates."""
MEMBERS = [
    *("value", "resource", "resources", "childrenResources", "source", "code", "via", "auth", "sessionToken"),
    *("assertedIdentity", "receipt", "ttl", "trace", "requestId", "identity", "reporter", "class", "guarantee"),
    *("status", "expires", "number", "scheme", "page", "queue", "attribute", "message", "policy", "schema", "criteria"),
]
TYPES = [
    *("open", "re-open", "ping", "pong", "create", "read", "update", "delete", "subscribe", "unsubscribe"),
    *("response", "event", "execute", "forward", "x"),
]
UNREADABLE = [
    "hyperty://a.example\x00/ana",
    "hyperty://\uff41.example/ana",
    "hyperty://[a.example/ana",
    "hyperty://a.example:99999/ana",
    "hyperty://a.example../ana",
    "hyperty:////x",
    "1:x",
    "a\nb",
]
"""Addresses that nobody can read."""


def hostile_message(random: Random, recipients: Sequence[str], senders: Sequence[str]) -> bytes:
    """The text of one message to one of `recipients` from one of `senders`; some are no message at all."""
    parts = [
        b'"type":' + _text(random.choice(TYPES)),
        b'"from":' + _text(random.choice(senders)),
        b'"to":' + _text(random.choice(recipients)),
    ]
    if random.random() < 0.7:
        parts.append(b'"id":' + (random.choice([b"1", b"2", b'"a"']) if random.random() < 0.6 else _value(random)))
    if random.random() < 0.95:
        parts.append(b'"body":' + (_members(random) if random.random() < 0.95 else _value(random)))
    if random.random() < 0.1:
        parts.append(random.choice([b'"type":', b'"from":', b'"to":']) + _value(random))
    random.shuffle(parts)
    return b"{" + b",".join(parts) + b"}"


def _text(text: str) -> bytes:
    return json.dumps(text).encode()


def _value(random: Random, depth: int = 0) -> bytes:
    kind = random.random()
    if kind < 0.7 or depth > 2:
        return random.choice(LITERALS)
    if kind < 0.85:
        return _members(random, depth + 1)
    return b"[" + b",".join(_value(random, depth + 1) for _ in range(random.randrange(3))) + b"]"


def _members(random: Random, depth: int = 0) -> bytes:
    members = [_text(random.choice(MEMBERS)) + b":" + _value(random, depth) for _ in range(random.randrange(5))]
    return b"{" + b",".join(members) + b"}"
