"""The public keys of nodes that the operator trusts to sign their segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, is_usable

KEYS_FILE_BYTES = 4 << 20


class _NodeKey(KeyRecord, frozen=True, kw_only=True):
    node: str


@dataclass(frozen=True, slots=True)
class Trust:
    """Keys whose signatures on segments are accepted.

    Attributes:
        keys: Key records by node and key id; None when no keys were given, so nothing can be checked.
        requires_signatures: Reject what is not signed by one of these keys.
    """

    keys: Mapping[tuple[str, str], KeyRecord] | None = None
    requires_signatures: bool = False


@dataclass(slots=True)
class _Collection:
    keys: dict[tuple[str, str], KeyRecord] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        try:
            content = path.read_bytes()
            if len(content) > KEYS_FILE_BYTES:
                raise SettingsError(
                    f"{path}: too large for a file of keys; name one that `trapezoid keys records` has printed"
                )
            entries = msgspec.json.decode(content, type=dict[str, _NodeKey])
        except OSError as exc:
            raise SettingsError(f"{path}: {exc.strerror}") from exc
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise SettingsError(f'{path}: {exc}; expected {{"KEY ID": {{"node", "alg", "pub"}}}}') from exc
        for key_id, entry in entries.items():
            record = KeyRecord(alg=entry.alg, pub=entry.pub, nbf=entry.nbf, exp=entry.exp)
            if not is_usable(record):
                raise SettingsError(f"{path}: key {key_id} is malformed or weak; fetch the keys of the node anew")
            if self.keys.setdefault((entry.node, key_id), record) != record:
                raise SettingsError(
                    f"{path}: key {key_id} of {entry.node} is here twice, and differs; remove the wrong one"
                )


def load_trust(path: Path | None, *, requires_signatures: bool = False) -> Trust:
    """Read the keys of `--keys`.

    Args:
        path: A JSON file, `{"key id": {"node": …, "alg": "ed25519", "pub": base64url}}`, or a folder of such files;
            None for none.
        requires_signatures: As in `Trust`.

    Raises:
        SettingsError: Not such a file, a weak key, one key id with two keys, or signatures required without keys.
    """
    if path is None:
        if requires_signatures:
            raise SettingsError("signatures are required, but no keys were given: name them with --keys")
        return Trust()
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise SettingsError(f"{path}: no *.json with keys in this folder")
    found = _Collection()
    for file in files:
        found.add(file)
    return Trust(found.keys, requires_signatures)
