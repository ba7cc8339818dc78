"""Settings of block lists of other operators: `[[block_list]]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msg_node.settings.problem import Problem
from msg_node.settings.registries import problems_at
from msg_node.settings.tables.block_lists import BlockListSettings
from protofly.signatures import KeyRecord, is_usable


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
