"""Messages over a link: order, acknowledgement, resumption, recovery, bounds, and broken messages."""

from __future__ import annotations

from typing import Final

from interop.partner.core.frames import BYE, pack
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.steps import (
    REFUSED_CODES,
    Acknowledged,
    Answered,
    Answers,
    Cuts,
    Ended,
    Gets,
    GetsAgain,
    GetsReply,
    Hears,
    HearsOnlyHonest,
    Hosts,
    Pauses,
    Says,
    SaysAgain,
    SaysRaw,
    Sends,
    Visits,
    Welcomed,
    Writes,
)

_LINK: Final = "docs/link.md"
_MANY: Final = 50
_VISIT: Final = (Visits(), Welcomed())
_STUB: Final = (Writes(1), Hosts(), Gets(1))
_BROKEN: Final = {
    "no-json": "{",
    "no-object": "[1,2,3]",
    "number": "7777777777777777",
    "deep": '{"type":"create","from":"{bo}","to":"{ana}","body":' + "[" * 500 + "]" * 500 + "}",
    "half-a-character": '{"type":"create","from":"{bo}","to":"{ana}","body":{"value":"\udc80"}}',
    "no-type": '{"from":"{bo}","to":"{ana}","body":{"value":"forged"}}',
    "no-target": '{"type":"create","from":"{bo}","body":{"value":"forged"}}',
    "long-target": '{"type":"create","from":"{bo}","to":"hyperty://{a}/' + "x" * 5000 + '","body":{"value":"forged"}}',
}


def _case(id_: str, says: str, *steps: PartnerStep, section: str = _LINK) -> PartnerCase:
    return PartnerCase(id=id_, group="delivery", section=section, says=says, steps=steps)


def _says(*values: object) -> tuple[PartnerStep, ...]:
    return tuple(Says({"body": {"value": value}}) for value in values)


CASES: Final = (
    # From the partner to the node.
    _case(
        "inbound-order",
        "messages arrive in the order of their numbers, each once, and are acknowledged",
        *_VISIT,
        *_says(*range(_MANY)),
        Hears(tuple(range(_MANY))),
        Acknowledged(_MANY),
    ),
    _case(
        "inbound-request",
        "a request of a partner is answered over the link",
        *_VISIT,
        Says({"id": 3, "body": {"value": 1}}),
        GetsReply(3),
        Hears((1,)),
    ),
    _case(
        "inbound-nobody-there",
        "a request to an address that nobody has is refused",
        *_VISIT,
        Says({"id": 4, "to": "hyperty://{a}/nobody"}),
        GetsReply(4, REFUSED_CODES),
        section="message-specification.md, 4",
    ),
    _case(
        "inbound-repeated-number",
        "a message that comes again with its number is dropped",
        *_VISIT,
        *_says(1),
        Hears((1,)),
        SaysAgain(1, {"body": {"value": 1}}),
        *_says(2),
        Hears((1, 2)),
    ),
    _case(
        "inbound-repeated-after-cut",
        "what the node has processed is dropped when it comes again on a new line",
        *_VISIT,
        *_says(1, 2),
        Hears((1, 2)),
        Cuts(),
        Visits(),
        Welcomed(processed=2),
        SaysAgain(2, {"body": {"value": 2}}),
        *_says(3),
        Hears((1, 2, 3)),
    ),
    _case(
        "inbound-gap",
        "numbers may have gaps",
        *_VISIT,
        *_says(1),
        SaysAgain(1000, {"body": {"value": 2}}),
        Hears((1, 2)),
        Acknowledged(1000),
    ),
    *(
        _case(
            f"inbound-broken-{word}",
            "a message that cannot be read costs nobody else",
            *_VISIT,
            SaysRaw(text),
            HearsOnlyHonest(),
        )
        for word, text in _BROKEN.items()
    ),
    _case(
        "inbound-too-large",
        "a message above the size limit is refused, and costs nobody else",
        *_VISIT,
        Says({"body": {"value": "x" * (9 << 20)}}),
        HearsOnlyHonest(),
        section="7, attack 10",
    ),
    # From the node to the partner.
    _case(
        "outbound-order",
        "messages of a runtime arrive in order, each once",
        Writes(1, count=_MANY),
        Hosts(),
        Gets(1, count=_MANY),
    ),
    _case(
        "outbound-request",
        "a request of a runtime is answered by the partner",
        Writes(is_request=True),
        Hosts(),
        Gets(1),
        Answers({"code": 200, "value": "yes"}),
        Answered(),
    ),
    _case(
        "outbound-refusal",
        "a refusal of the partner reaches the runtime as it is",
        Writes(is_request=True),
        Hosts(),
        Gets(1),
        Answers({"code": 403, "reason": "policy"}),
        Answered((403, 403)),
    ),
    _case(
        "outbound-over-the-visit",
        "a partner that has connected gets messages over its own connection",
        *_VISIT,
        Writes(1),
        Gets(1),
    ),
    _case(
        "outbound-repeated-after-cut",
        "what was not acknowledged comes again, with the same numbers, in order",
        *_STUB,
        Writes(2, count=3),
        Gets(2, count=3, acknowledges=False),
        Cuts(),
        Hosts(),
        GetsAgain(2, 2),
        GetsAgain(3, 3),
        GetsAgain(4, 4),
    ),
    _case(
        "outbound-acknowledged-once",
        "what was acknowledged does not come again",
        *_STUB,
        Writes(2),
        Gets(2),
        Cuts(),
        Writes(3),
        Hosts(),
        Gets(3),
    ),
    _case(
        "outbound-while-away",
        "what is sent while the line is down comes when it is up again, in order",
        *_STUB,
        Cuts(),
        Writes(2, count=10),
        Hosts(),
        Gets(2, count=10),
    ),
    _case(
        "outbound-stays-in-order",
        "what waited comes before what is sent later",
        *_STUB,
        Writes(2, count=2),
        Gets(2, count=2, acknowledges=False),
        Cuts(),
        Writes(4, count=2),
        Hosts(),
        Gets(2, count=4),
    ),
    _case(
        "outbound-after-bye",
        "after BYE of the partner the node connects again",
        *_STUB,
        Sends((pack(BYE, 0, b"draining"),)),
        Cuts(),
        Writes(2),
        Hosts(),
        Gets(2),
    ),
    _case(
        "outbound-away-for-seconds",
        "a partner that is away for some seconds is found again",
        *_STUB,
        Cuts(),
        Writes(2),
        Hosts(),
        Cuts(),
        Pauses(2),
        Hosts(),
        Gets(2),
    ),
    _case(
        "outbound-garbage",
        "a frame that is none ends the connection, and the node comes back",
        *_STUB,
        Sends((b"\xff" * 40,)),
        Ended(),
        Writes(2),
        Hosts(),
        Gets(2),
    ),
    _case(
        "outbound-no-answer",
        "a request that the partner does not answer is ended with an error",
        Writes(is_request=True),
        Hosts(),
        Gets(1),
        Answered(REFUSED_CODES),
        section="message-specification.md, 4",
    ),
)
