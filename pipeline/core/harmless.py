"""Text out of records, made so that it cannot act on a terminal."""

from __future__ import annotations


def harmless(name: str) -> str:
    """The text without what would steer a terminal; of one line."""
    return "".join(sign if sign.isprintable() else "·" for sign in name)
