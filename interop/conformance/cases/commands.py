"""Cases of dialects B and C: command frames and the query. Source: message specification, sections 5.2 and 5.3."""

from __future__ import annotations

from typing import Final

from interop.conformance.jsontext import write
from interop.conformance.model import (
    Arrives,
    Asks,
    Case,
    Closed,
    Connects,
    Dialect,
    Hears,
    Opens,
    Says,
    Scope,
    Silent,
    Survives,
    case,
)

B: Final = frozenset({Dialect.B})
C: Final = frozenset({Dialect.C})
HANDSHAKE: Final = (
    'anything else first: {"cmd":"connect","response":403,"data":{"msg":"Invalid handshake!"}}, then close'
)
INVALID: Final = {"cmd": "connect", "response": 403, "data": {"msg": "Invalid handshake!"}}
FIRST_FRAMES: Final = {
    "message": '{"id":1,"type":"open","from":"{ana}","to":"mn:/session"}',
    "no-json": "hello",
    "list": '["connect"]',
    "unknown-command": '{"cmd":"attach","data":{"runtimeURL":"{ana}"}}',
    "disconnect": '{"cmd":"disconnect","data":{"runtimeURL":"{ana}"}}',
    "upper-case": '{"cmd":"CONNECT","data":{"runtimeURL":"{ana}"}}',
    "no-data": '{"cmd":"connect"}',
    "data-text": '{"cmd":"connect","data":"{ana}"}',
    "no-runtime": '{"cmd":"connect","data":{}}',
    "runtime-number": '{"cmd":"connect","data":{"runtimeURL":5}}',
    "runtime-empty": '{"cmd":"connect","data":{"runtimeURL":""}}',
}

COMMANDS: Final = (
    *(
        case(
            f"command-first-{slug}",
            "5.2",
            HANDSHAKE,
            Connects("ana"),
            Says("ana", text),
            Hears("ana", INVALID),
            Closed("ana"),
            Opens("bo"),
            Silent("bo"),
            cast="",
            scope=Scope(dialects=B),
        )
        for slug, text in FIRST_FRAMES.items()
    ),
    case(
        "command-disconnect-of-another",
        "5.2",
        "disconnect ends the session of this connection, not that of another",
        Says("bo", write({"cmd": "disconnect", "data": {"runtimeURL": "{ana}"}})),
        Asks("cy", "read", "{ana}/sm"),
        Arrives("ana", "cy"),
        cast="ana bo cy",
        scope=Scope(dialects=B),
    ),
    case(
        "command-second-connect",
        "5.2",
        "after connect, plain messages flow: a second connect opens no second session",
        Says("ana", write({"cmd": "connect", "data": {"runtimeURL": "{bo}"}})),
        Asks("cy", "read", "{bo}/sm"),
        Arrives("bo", "cy"),
        cast="ana bo cy",
        scope=Scope(dialects=B),
    ),
    case(
        "command-no-session-messages",
        "5.2",
        "no open in this dialect: whatever is answered, the session goes on",
        Asks("ana", "open", "mn:/session"),
        Survives("ana"),
        Silent("ana"),
        scope=Scope(dialects=B),
    ),
)

QUERY: Final = (
    case(
        "query-usable-at-once",
        "5.3",
        "no handshake frame",
        Connects("ana"),
        Asks("ana", "update", "{bo}", {"value": 1}),
        Arrives("bo", "ana"),
        cast="bo",
        scope=Scope(dialects=C, reference=True),
    ),
    case(
        "query-disconnect-of-another",
        "5.3",
        "disconnect ends the session of this connection, not that of another",
        Says("bo", write({"cmd": "disconnect", "body": {"runtimeURL": "{ana}"}})),
        Asks("cy", "read", "{ana}/sm"),
        Arrives("ana", "cy"),
        cast="ana bo cy",
        scope=Scope(dialects=C),
    ),
    case(
        "query-connect-command",
        "5.3",
        "no handshake frame: a command frame does no harm",
        Says("ana", write({"cmd": "connect", "data": {"runtimeURL": "{bo}"}})),
        Asks("cy", "read", "{bo}/sm"),
        Arrives("bo", "cy"),
        cast="ana bo cy",
        scope=Scope(dialects=C),
    ),
)

CASES: Final[tuple[Case, ...]] = (*COMMANDS, *QUERY)
