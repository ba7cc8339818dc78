"""Addresses of catalogue entries, where such an entry may be, and what came from there.

    hyperty-catalogue://[catalogue.]<domain>/[.well-known/]<kind>/<name>[/<attribute>]

Nothing about an entry is proven but who served it: original catalogues sign nothing. Source: data formats, sections
2.2 to 2.4 and 8, decision 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from protofly.address import domain_of, parse, valid_domain
from protofly.documents import parse_strict
from protofly.errors import Code, PeerError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KINDS = {
    "hyperty": "hyperty",
    "protocolstub": "protocolstub",
    "protostub": "protocolstub",
    "runtime": "runtime",
    "dataschema": "dataschema",
    "dataobjectschema": "dataschema",
    "idp-proxy": "idp-proxy",
    "policy": "policy",
}
_FILES = {"hyperty": ".hy.json", "protocolstub": ".ps.json", "dataschema": ".ds.json", "idp-proxy": ".idp.json"}
"""What the static variant of a catalogue calls its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One entry; `attribute` is "" for the whole descriptor."""

    domain: str
    authority: str
    kind: str
    name: str
    attribute: str = ""


def entry_of(address: str) -> CatalogueEntry:
    """Read the address of an entry.

    Raises:
        PeerError: BAD_BODY for an address that names none; NO_SUCH_SERVICE for a kind that is not sent in messages;
            NAME_INVALID.
    """
    scheme, authority, path = parse(address)
    if scheme != "hyperty-catalogue":
        raise PeerError(Code.BAD_BODY, "no address of a catalogue entry")
    parts = path.removeprefix("/.well-known").strip("/").split("/")
    if len(parts) not in (2, 3) or not all(_NAME.fullmatch(part) for part in parts):
        raise PeerError(Code.BAD_BODY, "a catalogue address is hyperty-catalogue://<domain>/.well-known/<kind>/<name>")
    kind = _KINDS.get(parts[0].lower())
    if kind is None:
        raise PeerError(Code.NO_SUCH_SERVICE, f"no descriptors of the kind {parts[0][:40]}")
    domain = domain_of(address)
    valid_domain(domain)
    return CatalogueEntry(
        domain=domain,
        authority=authority,
        kind=kind,
        name=parts[1],
        attribute=parts[2] if len(parts) == 3 else "",
    )


def places(entry: CatalogueEntry, *, well_known_url: str = "", own_url: str = "") -> list[str]:
    """URLs where the descriptor of an entry may be, best first.

    Args:
        entry: What is looked for.
        well_known_url: Where the domain was found to publish, "" when it was not found.
        own_url: Base URL of our own catalogue, when the entry is ours; then nothing else is asked.
    """
    if own_url:
        hosts = [own_url.rstrip("/")]
    else:
        named = [entry.authority, f"catalogue.{entry.domain}", entry.domain]
        hosts = [f"https://{host}" for host in named]
        if well_known_url:
            parts = urlsplit(well_known_url)
            hosts.insert(0, f"{parts.scheme}://{parts.netloc}")
    path = f"/.well-known/{entry.kind}/{entry.name}"
    suffixes = ("", _FILES[entry.kind]) if entry.kind in _FILES else ("",)
    return [f"{host}{path}{suffix}" for host in dict.fromkeys(hosts) for suffix in suffixes]


def decode_entry(raw: bytes, *, domain: str) -> dict[str, object]:
    """A descriptor as its catalogue gives it.

    Raises:
        PeerError: DOCUMENT_MALFORMED, blaming `domain`.
    """
    try:
        members = parse_strict(raw)
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, str(exc)[:200], domain=domain) from exc
    if not isinstance(members, dict):
        raise PeerError(Code.DOCUMENT_MALFORMED, "a descriptor is a JSON object", domain=domain)
    return members
