"""Every border that is tried, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    cluster_borders,
    connection_borders,
    document_borders,
    identity_borders,
    legacy_borders,
    message_borders,
)
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        *message_borders.TARGETS,
        *connection_borders.TARGETS,
        *document_borders.TARGETS,
        *identity_borders.TARGETS,
        *legacy_borders.TARGETS,
        *cluster_borders.TARGETS,
    )
}
