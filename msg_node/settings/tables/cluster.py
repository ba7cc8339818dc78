"""Settings of a node that is one of several of its domain: `[cluster]`.

Source: design, section 6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This node among the nodes of its domain that share an engine (`[storage]`); see `docs/cluster.md`."""

    standby: Annotated[
        bool,
        Meta(
            description="While another process runs under this node's name, wait, and take over when it has ended or "
            "died; off: refuse to start."
        ),
    ] = False
    listen: Annotated[
        str,
        Meta(
            description="Where this node listens for the others of its domain, that hold other names: `host:port`, or "
            "`unix:/path` on one machine; absent: it knows none."
        ),
    ] = ""
    advertise: Annotated[
        str, Meta(description="The address at which the others reach it; absent: that of `listen`.")
    ] = ""
    key_file: Annotated[
        Path | None,
        Meta(description="File with 32 random bytes, mode 0600, the same at every node: who has it is a node."),
    ] = None
