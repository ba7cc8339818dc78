"""Cases of input that is no message: broken text, depth, size. Source: message specification, sections 1.6 and 1.7."""

from __future__ import annotations

from typing import Final

from interop.conformance.model import (
    ALL,
    FRAMES,
    Arrives,
    Case,
    Closed,
    Dialect,
    Opens,
    RefusedOrClosed,
    Says,
    Scope,
    SendsMalformed,
    Silent,
    case,
    over_limit,
    owns,
)

RULE: Final = "not JSON, or not an object: no reply (no sender known); counter"
FIVE_RULE: Final = "after 5 in a row close with protocol error"
DEPTH_RULE: Final = "nesting 64; over the limit: refused if an id and from could be read, else close"
SIZE_RULE: Final = "frame 1 MiB by default; over the limit: 413 if an id and from could be read, else close"
NOT_MESSAGES: Final = {
    "no-json": "hello",
    "empty-text": "",
    "space": "  ",
    "half-an-object": '{"id":1,"type":"read"',
    "two-objects": '{"id":1,"type":"read","from":"a","to":"b"}{"id":2}',
    "trailing-comma": '{"id":1,"type":"read","from":"{ana}","to":"{sm}",}',
    "single-quotes": "{'id':1,'type':'read','from':'{ana}','to':'{sm}'}",
    "not-a-number": '{"id":1,"type":"read","from":"{ana}","to":"{sm}","body":{"value":NaN}}',
    "raw-control-character": '{"id":1,"type":"re\nad","from":"{ana}","to":"{sm}"}',
    "list": '[{"id":1,"type":"read","from":"{ana}","to":"{sm}"}]',
    "text": '"read"',
    "number": "42",
    "null": "null",
    "true": "true",
}
LEVELS_READABLE: Final = 500  # deeper than this the suite cannot read its own text, and compares less
PROTOCOL_ERROR_CODES: Final = (1002, 1007, 1008)


def _nested(levels: int) -> str:
    """A message with so many levels of lists in its value; three more are around them."""
    inside = "[" * levels + "]" * levels
    return '{"id":7,"type":"read","from":"{ana}","to":"{h}","body":{"value":' + inside + "}}"


def _sized(size_bytes: int) -> str:
    return '{"id":7,"type":"read","from":"{ana}","to":"{h}","body":{"value":"' + "x" * size_bytes + '"}}'


CASES: Final[tuple[Case, ...]] = (
    *(case(f"broken-{slug}", "1.7", RULE, Says("ana", text), Silent("ana")) for slug, text in NOT_MESSAGES.items()),
    case(
        "broken-five-in-a-row",
        "1.7",
        FIVE_RULE,
        *(Says("ana", f"broken {number}") for number in range(5)),
        Closed("ana", PROTOCOL_ERROR_CODES),
        Opens("bo"),
        Silent("bo"),
    ),
    case(
        "broken-four-in-a-row",
        "1.7",
        FIVE_RULE,
        *(Says("ana", f"broken {number}") for number in range(4)),
        Silent("ana"),
        *(Says("ana", f"broken {number}") for number in range(4)),
        Silent("ana"),
    ),
    *(
        case(
            f"broken-utf-8-{slug}",
            "1.1",
            "a message is UTF-8; a text frame that is none fails the connection (RFC 6455, section 8.1)",
            owns("bo", "h"),
            SendsMalformed("ana", text),
            Closed("ana", (1007, 1002)),
            Silent("bo"),
            cast="ana bo",
            scope=Scope(dialects=FRAMES),
        )
        for slug, text in {
            "in-header": '{"id":1,"type":"\ufffd","from":"{ana}","to":"{h}"}',
            "in-body": '{"id":1,"type":"read","from":"{ana}","to":"{h}","body":{"value":"\ufffd"}}',
        }.items()
    ),
    case(
        "broken-first-message",
        "1.7",
        RULE,
        Opens("bo"),
        Says("bo", "hello"),
        Silent("bo"),
        cast="",
        scope=Scope(dialects=ALL - {Dialect.B}),
    ),
    case(
        "broken-depth-60",
        "1.6",
        "nesting 64",
        owns("bo", "h"),
        Says("ana", _nested(60)),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    *(
        case(
            f"broken-depth-{levels}",
            "1.6",
            DEPTH_RULE,
            owns("bo", "h"),
            Says("ana", _nested(levels)),
            RefusedOrClosed("ana", over_limit("ana") if levels < LEVELS_READABLE else None),
            Silent("bo"),
            cast="ana bo",
        )
        for levels in (65, 400, 100_000)
    ),
    case(
        "broken-size-half-a-mebibyte",
        "1.6",
        SIZE_RULE,
        owns("bo", "h"),
        Says("ana", _sized(1 << 19)),
        Arrives("bo", "ana"),
        cast="ana bo",
    ),
    case(
        "broken-size-over-a-mebibyte",
        "1.6",
        SIZE_RULE,
        owns("bo", "h"),
        Says("ana", _sized((1 << 20) + 1)),
        RefusedOrClosed("ana", None),
        Silent("bo"),
        cast="ana bo",
    ),
)
