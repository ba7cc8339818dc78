"""Policy files from the disk. Whatever cannot be read is an error: no file is ever taken for an empty one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policy.core.conditions import NO_LISTS, Lists
from policy.core.document import Syntax
from policy.core.engine import CompiledPolicies
from policy.core.model import Mode
from policy.core.text import PolicyText, load_policies
from protofly.errors import SettingsError
from protofly.limits import POLICY_FILE_BYTES

SIGNATURE_SUFFIX: Final = ".sig"
"""Ends the names of files that sign a bundle."""
_SYNTAX: Final[dict[str, Syntax]] = {".toml": "toml", ".json": "json"}


def read_policies(paths: Sequence[Path], *, mode: Mode = Mode.ENFORCE, groups: Lists = NO_LISTS) -> CompiledPolicies:
    """Read, test and compile policy files; with none of them there are no rules. `groups`: see `load_policies`.

    Raises:
        SettingsError: A file is missing, unreadable, empty, half-written or wrong; nothing is loaded then.
    """
    return load_policies([read_policy_text(path) for path in paths], mode=mode, groups=groups)


def read_bundle(paths: Sequence[Path]) -> dict[str, str]:
    """Read the files of a bundle: text by name, in order.

    Raises:
        SettingsError: As `read_policy_text`; or two of them have the same name.
    """
    texts = {path.name: read_policy_text(path).text for path in paths}
    if len(texts) < len(paths):
        raise SettingsError("two of the policy files have the same name: rename one")
    return texts


def digest_of_files(files: Mapping[str, str]) -> str:
    """SHA-256 of policy files, their names and their order."""
    return hashlib.sha256(msgspec.json.encode(list(files.items()))).hexdigest()


def read_policy_text(path: Path) -> PolicyText:
    """Read one file without looking into it.

    Raises:
        SettingsError: It is missing, unreadable, too large, not UTF-8, or neither `.toml` nor `.json`.
    """
    syntax = _SYNTAX.get(path.suffix)
    if syntax is None:
        raise SettingsError(f"{path}: a policy file ends in .toml or .json")
    try:
        with path.open("rb") as file:
            data = file.read(POLICY_FILE_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    if len(data) > POLICY_FILE_BYTES:
        raise SettingsError(f"{path}: larger than {POLICY_FILE_BYTES} bytes; split it")
    try:
        return PolicyText(str(path), data.decode("utf-8-sig"), syntax)
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: not UTF-8 (byte {exc.start})") from exc
