"""Settings of a node that is one of several of its domain: `[cluster]`.

Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from msg_node.settings.model import Settings


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This node among the nodes of its domain that share an engine (`[storage]`); see `docs/cluster.md`."""

    standby: Annotated[
        bool,
        Meta(
            description="While another process runs under this node's name, wait, and take over when it has ended or "
            "died; off: refuse to start."
        ),
    ] = False


def cluster_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check `[cluster]` against `[storage]`."""
    if settings.cluster.standby and not settings.storage.engine:
        yield ("cluster", "standby"), "goes with `storage.engine`: without it there is no state to take over"
