"""The online private keys of a node, from folders of `trapezoid keys`: `live-….pem`, `node-….pem`, `token-….pem`.

`root` and `pkg` keys sign rarely and belong on a machine that is not connected. A node never looks for a root key, and
for a `pkg` key only when a manifest is about to expire: an operator who puts one there wants it renewed.

Source: trust and hosts, sections 2.7 and 3.4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msg_node.storage.file_checks import FileError, check_private_folder, read_private
from protofly.documents import SigningKey, domain_of_pem

Role = Literal["live", "node", "token", "pkg"]


def load_online_keys(folder: Path, role: Role, *, domain: str = "") -> list[SigningKey]:
    """The keys of one role, the one made last first. The stem of a file is the key's id.

    Args:
        folder: Folder of `trapezoid keys`.
        role: Whose keys.
        domain: Refuse keys whose files say that they are another domain's; "" takes any.

    Raises:
        SettingsError: There is none, one is no private key or of another domain, or others may read it or write into
            the folder.
    """
    check_private_folder(folder)
    try:
        paths = sorted(
            folder.glob(f"{role}-*.pem"), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True
        )
    except OSError as exc:
        raise FileError.unreadable(folder, exc) from exc
    if not paths:
        command = "token" if role == "token" else "init"
        raise FileError("key-missing", folder, f"no {role} key here", f"make keys with `trapezoid keys {command}`")
    return [_load(path, domain) for path in paths]


def _load(path: Path, domain: str) -> SigningKey:
    try:
        pem = read_private(path)
        owner = domain_of_pem(pem)
        if domain and owner and owner != domain:
            raise FileError(
                "key-foreign", path, f"is a key of {owner}, and not of {domain}", f"name the folder of {domain}'s keys"
            )
        return SigningKey.from_pem(path.stem, pem)
    except ValueError as exc:
        raise FileError("key-malformed", path, str(exc)) from exc
