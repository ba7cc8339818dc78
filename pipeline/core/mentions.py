"""Places of texts that name an address. Strangers write them, and one address in many ways. Pure."""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = r"(?:^|[^A-Za-z0-9+.-])"
_SLASH: Final = r"\\?/"
"""As JSON allows it, too."""
_END: Final = r"(?:$|[^A-Za-z0-9_~%@.-]|\.(?:$|[^A-Za-z0-9_]))"
_END_OF_DOMAIN: Final = r"(?:$|[^A-Za-z0-9_~%@.:/\\-]|\\[^/]|(?:\.|:|\\?/)(?:$|[^A-Za-z0-9_]))"
"""A path behind a domain is another address; a path behind a person's address names the person."""


def mention_of(word: str) -> str:
    """Make the regular expression, in RE2's syntax, that finds an address or its hash in a text.

    It takes letters of scheme and domain large or small, and nothing that goes on as a longer name.
    """
    scheme, separator, rest = word.partition("://")
    if not separator:
        return f"{_BEGIN}{re.escape(word)}{_END}"
    domain, *path = map(re.escape, rest.split("/"))
    below = "".join(f"{_SLASH}{part}" for part in path)
    return f"{_BEGIN}(?i:{re.escape(scheme)}:{_SLASH}{_SLASH}{domain}){below}{_END if below else _END_OF_DOMAIN}"
