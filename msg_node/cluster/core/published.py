"""What one of several nodes adds to the `live` document of their domain."""

from __future__ import annotations

import msgspec

from protofly.documents import KeyRecord


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the `live` document of the domain that one node adds.

    Attributes:
        url: Where links of other domains reach it, "" when it publishes nothing.
        pins: Of the certificate there; none: any that the name fits.
        keys: Prove that node, by id.
    """

    url: str = ""
    pins: tuple[str, ...] = ()
    keys: dict[str, KeyRecord] = {}
