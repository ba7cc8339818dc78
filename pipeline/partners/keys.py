"""The keys of an exchange with a partner: our private one, and the partner's public one, which comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, SigningKey, is_usable


def load_signing_key(path: Path) -> SigningKey:
    """Our Ed25519 key out of a PEM file; the file's stem is its id.

    Raises:
        SettingsError: No such file, none of ours, of another algorithm, or others may read it.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path}: others may read this key; say: chmod 600 {path}")
        key = SigningKey.from_pem(path.stem, path.read_bytes())
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"{path}: {exc}") from exc
    if key.alg != "ed25519":
        raise SettingsError(f"{path}: extracts are signed with Ed25519, not {key.alg}")
    return key


def public_key(text: str) -> KeyRecord:
    """A partner's Ed25519 key as documents write it: 43 characters of base64url. Raises SettingsError."""
    key = KeyRecord(alg="ed25519", pub=text.strip())
    if not is_usable(key):
        raise SettingsError(
            "--peer-key is the partner's public key, 43 characters of base64url; `keys show` lists it there, role live"
        )
    return key
