"""The key that the nodes of one domain share: 32 random bytes in a file that only its owner may read."""

from __future__ import annotations

from pathlib import Path

from msg_node.cluster.core.handshake import KEY_BYTES
from msg_node.storage.file_checks import FileError, read_private


def read_cluster_key(path: Path) -> bytes:
    """The key in a file.

    Raises:
        FileError: The file cannot be read, is open to others, or is too short to be a key.
    """
    key = read_private(path)
    if len(key) < KEY_BYTES:
        raise FileError(
            "cluster-key-short",
            path,
            f"has {len(key)} bytes; a cluster's key has {KEY_BYTES} random ones",
            f"make one with: (umask 077; head -c {KEY_BYTES} /dev/urandom > {path}), and copy it to every node",
        )
    return key
