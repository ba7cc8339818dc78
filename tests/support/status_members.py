"""What nodes under test show at `/status`, held against the table that `docs/status.md` is made from."""

from __future__ import annotations

from msg_node.admin.core.status_members import leaves, member_of


def unlisted(status: object) -> list[str]:
    """Members that the table lacks."""
    return sorted({leaf for leaf in leaves(status) if member_of(leaf) is None})
