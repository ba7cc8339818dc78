"""Settings of block lists of other operators: `[[block_list]]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from msg_node.settings.registries import BackendSettings, Problem, problems_at
from protofly.signatures import KeyRecord, is_usable

PublicKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}\Z")]


class BlockListSettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of domains that another operator advises to block, signed by it. See `docs/operating.md`."""

    author: Annotated[str, Meta(description="Domain of the operator whose list it is.")]
    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(min_length=1, max_length=4, description="Its public Ed25519 keys, base64url; one of them has signed it."),
    ]
    mode: Annotated[
        Literal["report", "enforce"],
        Meta(description="`report` shows what would be blocked; `enforce` blocks it while the list is valid."),
    ] = "report"
    exempt: Annotated[
        tuple[str, ...], Meta(description="Domains that this list never blocks; `*.b.example` for those below one.")
    ] = ()
    poll_seconds: Annotated[
        Annotated[float, Meta(ge=1.0, le=86_400.0)], Meta(description="Interval of asking for the list.")
    ] = 900.0


def block_list_problems(lists: Sequence[BlockListSettings], lists_agree: int = 1) -> Iterator[Problem]:
    """Check addresses and keys; of one author there is one list, since restrictions are known by their author.

    `lists_agree` is how many have to name a domain: no more than there are, else nobody would ever be blocked.
    """
    if lists_agree > max(len(lists), 1):
        yield ("policy", "lists_agree"), f"{lists_agree} lists would have to agree, and there are {len(lists)}"
    seen: set[str] = set()
    for index, one in enumerate(lists):
        path = ("block_list", index)
        yield from problems_at(path, one)
        if one.author in seen:
            yield (*path, "author"), f"a second list of {one.author}"
        seen.add(one.author)
        if not all(is_usable(KeyRecord(alg="ed25519", pub=pub)) for pub in one.keys):
            yield (*path, "keys"), "a key is malformed or weak"
