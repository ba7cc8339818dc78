"""Live documents of a domain with one flaw each, for which nodes have to refuse them.

Source: trust and hosts, section 3.6, steps 2 and 3.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from interop.partner.core.publication import DAY, LIVE_TYPE, moment, payload_of
from protofly.signatures import SigningKey, sign_envelope

_ROLLED_BACK_BY: Final = 1_000
_HOUR: Final = 3_600


def flawed(kind: str, genuine: bytes, key: SigningKey, *, now: float, port: int) -> bytes:
    """A live document that names another endpoint, and must not be believed.

    Args:
        kind: The fault: `expired-documents`, `rolled-back-documents`, or `forged-documents`.
        genuine: The envelope that the domain serves now.
        key: What signs it: the domain's own key for live documents, or for a forged one any other with its id.
        now: Unix seconds.
        port: Where the endpoint is that it names.
    """
    document = json.loads(payload_of(genuine))
    serial = int(document["serial"])
    changes: dict[str, dict[str, object]] = {
        "expired-documents": {
            "serial": serial + 1,
            "issued": moment(now - 3 * DAY),
            "expires": moment(now - _HOUR),
        },
        "rolled-back-documents": {"serial": serial - _ROLLED_BACK_BY},
        "forged-documents": {"serial": serial + 1},
    }
    endpoints = [{"name": one["name"], "url": _at(str(one["url"]), port)} for one in document["endpoints"]]
    payload = json.dumps({**document, **changes[kind], "endpoints": endpoints}, separators=(",", ":")).encode()
    return sign_envelope(payload, LIVE_TYPE, [key])


def _at(url: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.hostname}:{port}"))
