"""Decides if one domain is an alias of another: both have to say so, with the same root keys.

What a root names as an alias is a claim. It holds when the alias's own documents, found and verified under its own
name, name the main domain as well and carry the same root key set. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from catalogue_client.core.state import DomainTrust
from protofly.documents import key_set_fingerprint


def why_no_alias(alias: DomainTrust, main: DomainTrust) -> str:
    """Why `alias` is no alias of `main`, in words; "" when it is one.

    Args:
        alias: Verified documents of the alias, found under its own name.
        main: Verified documents of the domain that claims it.
    """
    if alias.domain not in main.root.aliases:
        return f"the root of {main.domain} does not name it"
    if main.domain not in alias.root.aliases:
        return f"its own root does not name {main.domain}"
    if key_set_fingerprint(alias.root) != key_set_fingerprint(main.root):
        return f"its root keys are not those of {main.domain}"
    if alias.level.strength < main.level.strength:
        return f"its documents are of level {alias.level.value}, those of {main.domain} of level {main.level.value}"
    return ""
