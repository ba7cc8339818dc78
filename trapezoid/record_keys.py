"""The public keys that verify the records of a node."""

from __future__ import annotations

from msg_node.settings.model import Settings
from msg_node.storage.key_files import load_online_keys
from protofly.errors import SettingsError


def record_keys(settings: Settings) -> dict[str, dict[str, str]]:
    """Public node keys by key id, as `trapezoid pipeline --keys` takes them.

    Raises:
        SettingsError: The node has no permanent keys; its records are signed by a key made at each start.
    """
    if settings.publish is None:
        raise SettingsError(
            "settings without [publish]: the records of this node are signed by a key made at each start"
        )
    keys = {}
    for key in load_online_keys(settings.publish.keys_dir, "node"):
        record = key.record()
        keys[key.key_id] = {"node": settings.node_id, "alg": record.alg, "pub": record.pub}
    return keys
