"""Who may speak for whom over a link: senders, sources, aliases, flags, hops and targets of a proved partner."""

from __future__ import annotations

import json
from typing import Final

from interop.partner.core.keys import Members
from interop.partner.core.scenarios import Change
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.stage import Handshake
from interop.partner.steps import (
    REFUSED_CODES,
    ArrivedBody,
    ComesAsGuest,
    Ended,
    Gets,
    GetsReply,
    Hears,
    HearsOnlyHonest,
    Hosts,
    Publishes,
    Says,
    SaysRaw,
    Visits,
    Welcomed,
    Writes,
)

_LINK: Final = "2.7, step 6"
_RULES: Final = "message-specification.md, 18.4"
_FORGED: Final = {
    "of-the-node-s-domain": "hyperty://{a}/eve",
    "of-the-receiver": "{ana}",
    "of-the-node": "runtime://{a}/mn-1",
    "of-its-services": "domain://msg-node.{a}/sm",
    "of-its-registry": "domain://registry.{a}/",
    "of-a-third": "hyperty://{c}/eve",
    "of-a-subdomain": "hyperty://sub.{b}/eve",
    "of-a-parent": "hyperty://partner.example/eve",
    "of-a-prefix": "hyperty://evil-{b}/eve",
    "of-a-suffix": "hyperty://{b}.evil.example/eve",
    "with-a-port": "hyperty://{b}:443/bo",
    "with-a-user": "hyperty://eve@{b}/bo",
    "with-the-node-as-user": "hyperty://{a}@{b}/bo",
    "with-us-as-user": "hyperty://{b}@{a}/bo",
    "without-slashes": "hyperty:{b}/bo",
    "without-a-scheme": "{b}/bo",
    "without-a-domain": "bo",
    "of-a-session": "mn:/session",
    "of-a-guid": "user-guid://somebody",
    "with-a-wide-letter": "hyperty://ｂ{b}/bo",
    "of-an-address": "hyperty://127.0.0.1/bo",
    "empty": "",
}
_KINDS: Final = {"null": None, "a-number": 7, "a-list": ["{bo}"], "an-object": {"a": "{bo}"}}
_SOURCES: Final = {"of-the-node-s-domain": "hyperty://{a}/eve", "of-a-third": "hyperty://{c}/eve"}
_FLAGS: Final = {"auth": "forged", "sessionToken": "x", "assertedIdentity": {"guid": "user-guid://admin"}}
_TARGETS: Final = {"a-third": "hyperty://{c}/carl", "the-partner": "{bo}"}
_FORGERIES: Final = 3


def _case(id_: str, section: str, says: str, *steps: PartnerStep) -> PartnerCase:
    return PartnerCase(id=id_, group="senders", section=section, says=says, steps=(Visits(), Welcomed(), *steps))


def _forged(id_: str, section: str, says: str, fields: Members) -> PartnerCase:
    return _case(id_, section, says, Says({"body": {"value": "forged"}, **fields}), HearsOnlyHonest())


def _aliases(names: list[str]) -> Change:
    """A root that names aliases, and a live document of it."""

    def change(domain: object) -> None:
        from interop.partner.core.publication import Publication

        assert isinstance(domain, Publication)
        domain.root(version=1, aliases=names, signers=("K1",))
        domain.live()

    return change


def _raw(text: str) -> str:
    return text.replace("'", '"')


CASES: Final = (
    _case(
        "sender-honest",
        _LINK,
        "a message of the proved domain arrives, without what the border adds",
        Says({"body": {"value": "honest"}}),
        Hears(("honest",)),
        ArrivedBody(),
    ),
    *(
        _forged(f"sender-{word}", _LINK, f"a message from {address or 'nobody'} reaches nobody", {"from": address})
        for word, address in _FORGED.items()
    ),
    *(
        _case(
            f"sender-is-{word}",
            _LINK,
            f"a `from` that is {word.replace('-', ' ')} reaches nobody",
            SaysRaw(_raw(f"{{'type':'create','from':{json.dumps(value)},'to':'{{ana}}','body':{{'value':'forged'}}}}")),
            HearsOnlyHonest(),
        )
        for word, value in _KINDS.items()
    ),
    _case(
        "sender-missing",
        _LINK,
        "a message without `from` reaches nobody",
        SaysRaw(_raw("{'type':'create','to':'{ana}','body':{'value':'forged'}}")),
        HearsOnlyHonest(),
    ),
    _case(
        "sender-twice",
        _LINK,
        "of two `from` none is a way around",
        SaysRaw(
            _raw(
                "{'type':'create','from':'hyperty://{a}/eve','from':'hyperty://{a}/eve','to':'{ana}',"
                "'body':{'value':'forged'}}"
            )
        ),
        HearsOnlyHonest(),
    ),
    *(
        _forged(
            f"source-{word}",
            _RULES,
            f"a `body.source` of {address} reaches nobody",
            {"body": {"value": "forged", "source": address}},
        )
        for word, address in _SOURCES.items()
    ),
    _case(
        "sender-third-forgery",
        _LINK,
        f"the connection is closed after {_FORGERIES} forgeries",
        *(Says({"from": "hyperty://{c}/eve", "body": {"value": "forged"}}) for _ in range(_FORGERIES)),
        Ended(),
        HearsOnlyHonest(),
    ),
    _case(
        "reply-nobody-asked",
        _RULES,
        "a reply in the name of another that nobody waits for reaches nobody",
        Says({"type": "response", "id": 77, "from": "hyperty://{c}/eve", "body": {"code": 200, "value": "forged"}}),
        HearsOnlyHonest(),
    ),
    *(
        _case(
            f"flag-{name.lower()}",
            _RULES,
            f"`body.{name}` does not cross",
            Says({"body": {"value": "flagged", name: value}}),
            Hears(("flagged",)),
            ArrivedBody(),
        )
        for name, value in _FLAGS.items()
    ),
    _case(
        "hops-loop",
        "message-specification.md, 20.6",
        "a message that was here before is a loop",
        Says({"id": 5, "body": {"value": "forged", "via": ["runtime://{a}/mn-1", "runtime://{b}/mn-1"]}}),
        GetsReply(5, (508, 508)),
        HearsOnlyHonest(),
    ),
    _case(
        "hops-too-many",
        "message-specification.md, 20.6",
        "a message with more than eight hops is refused",
        Says({"id": 5, "body": {"value": "forged", "via": [f"runtime://h{n}.example/mn" for n in range(20)]}}),
        GetsReply(5, (508, 508)),
        HearsOnlyHonest(),
    ),
    _forged(
        "hops-no-list",
        "message-specification.md, 20.6",
        "a `via` that is no list of addresses is refused",
        {"body": {"value": "forged", "via": {"runtime": "x"}}},
    ),
    *(
        _case(
            f"transit-to-{word}",
            _RULES,
            f"no transit: a message to {word.replace('-', ' ')} is refused",
            Says({"id": 6, "to": address, "body": {"value": "forged"}}),
            GetsReply(6, REFUSED_CODES),
            HearsOnlyHonest(),
        )
        for word, address in _TARGETS.items()
    ),
    _case(
        "registry-write",
        _RULES,
        "a partner writes nothing into the registry",
        Says(
            {
                "id": 7,
                "type": "create",
                "to": "domain://registry.{a}",
                "body": {"value": {"url": "hyperty://{b}/h", "user": "user://{b}/eve"}},
            }
        ),
        GetsReply(7, REFUSED_CODES),
        HearsOnlyHonest(),
    ),
    _case(
        "allocation",
        _RULES,
        "a partner gets no addresses of the node's domain",
        Says(
            {
                "id": 8,
                "type": "create",
                "to": "domain://msg-node.{a}/address-allocation",
                "body": {"value": {"number": 1}, "scheme": "hyperty"},
            }
        ),
        GetsReply(8, REFUSED_CODES),
        HearsOnlyHonest(),
    ),
    _case(
        "session-open",
        _RULES,
        "a partner opens no session over a link",
        Says({"id": 9, "type": "open", "from": "runtime://{b}/r", "to": "mn:/session", "body": {}}),
        HearsOnlyHonest(),
    ),
    PartnerCase(
        id="guest-without-a-proof",
        group="senders",
        section="message-specification.md, 18.5",
        says="a runtime of a partner's domain has no session at the node without a proof",
        steps=(ComesAsGuest(),),
    ),
    PartnerCase(
        id="alias-claimed",
        group="senders",
        section="3.4",
        says="an alias that the alias's own documents do not confirm is spoken for by nobody",
        steps=(
            Publishes(_aliases(["third.partner.example"])),
            Visits(Handshake(claims={"doms": ["{b}", "{c}"]})),
            Welcomed(),
            Says({"from": "hyperty://{c}/eve", "body": {"value": "forged"}}),
            HearsOnlyHonest(),
        ),
    ),
    PartnerCase(
        id="alias-of-the-node",
        group="senders",
        section="3.4",
        says="own domains of a node are nobody's aliases, whatever documents say",
        steps=(
            Publishes(_aliases(["a.example"])),
            Visits(),
            Welcomed(),
            Says({"from": "hyperty://{a}/eve", "body": {"value": "forged"}}),
            HearsOnlyHonest(),
        ),
    ),
    PartnerCase(
        id="sender-from-the-stub",
        group="senders",
        section=_LINK,
        says="what comes out of the partner's stub is checked as well, whatever the stub does",
        steps=(
            Writes(),
            Hosts(),
            Gets(),
            Says({"from": "hyperty://{c}/eve", "body": {"value": "forged"}}),
            Says({"from": "hyperty://{a}/eve", "body": {"value": "forged"}}),
            HearsOnlyHonest(),
        ),
    ),
)
