"""Bundles of policies in the data folder: versions that operators added, and which of them is in force.

A bundle is a set of policy files in one file of ours, named after the digest of what they say, so that nothing in it
can change unnoticed. `active.json` names the bundle in force and those before it; without it, or with "", the files of
the settings are in force. Blocking; what a call has changed is on disk when it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

import msgspec

from policy.core.document import Syntax
from policy.core.engine import CompiledPolicies
from policy.core.model import Mode
from policy.core.text import PolicyText, load_policies
from policy.files import digest_of_files
from protofly.errors import Code, HostError, PeerError, SettingsError
from protofly.limits import POLICY_BUNDLE_BYTES, POLICY_BUNDLE_FILES, POLICY_BUNDLES, POLICY_ROLL_BACKS
from stubs_cache.store import write_whole

FOLDER: Final = "policies"
ACTIVE: Final = "active.json"
GROUPS: Final = "groups.json"

Groups = Mapping[str, tuple[str, ...]]
"""Members of each group, by its name, in the order in which they were added."""
FILES_OF_SETTINGS: Final = "settings"
"""What operators call the files of the settings where they may name a bundle."""
SHORTEST_NAME: Final = 8
_NAME_CHARS: Final = 128
_NO_GROUPS: Final[Groups] = {}
_SUFFIX: Final = ".json"
_SYNTAX: Final[Mapping[str, Syntax]] = {".toml": "toml", ".json": "json"}


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a bundle besides its files.

    Attributes:
        digest: SHA-256 of its files.
        revision: That of the policies, as records name it.
        rules: How many there are.
        by: Who added it.
        at: When, in seconds since the Unix epoch.
        note: Why, in the words of whom added it.
        credential: Keyed hash of the credential with which it was added.
    """

    digest: str
    revision: str
    rules: int
    by: str
    at: float
    note: str = ""
    credential: str = ""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle with its files: text by name, in order; and their signature, "" without one."""

    facts: BundleFacts
    files: dict[str, str]
    signature: str = ""


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """One activation of a bundle: its digest, by whom and when; "" stands for the files of the settings."""

    bundle: str
    by: str
    at: float


class ActivePolicies(msgspec.Struct, frozen=True):
    """Activations of bundles, the one in force last. Empty: the files of the settings have always been in force."""

    activations: tuple[Activation, ...] = ()

    @property
    def bundle(self) -> str:
        """Digest of the bundle in force, "" for the files of the settings."""
        return self.activations[-1].bundle if self.activations else ""

    @property
    def before(self) -> str | None:
        """Bundle that a roll-back puts in force; None when there is nothing to return to."""
        return self.activations[-2].bundle if len(self.activations) > 1 else None

    def with_newest(self, activation: Activation) -> ActivePolicies:
        """After an activation. The oldest ones are forgotten."""
        begun = self.activations or (Activation(bundle="", by="", at=0.0),)
        return ActivePolicies((*begun, activation)[-POLICY_ROLL_BACKS:])

    def rolled_back(self) -> ActivePolicies:
        """After a roll-back; precondition: `before` is not None."""
        return ActivePolicies(self.activations[:-1])


class PolicyStore:
    """The bundles of one node.

    Args:
        data_dir: Its data folder; what is missing in it is made by the first change.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER
        self.active_file = self._folder / ACTIVE
        """Says what is in force; without it the files of the settings are."""

    def active(self) -> ActivePolicies:
        """Read what is in force.

        Raises:
            SettingsError: The file cannot be read.
        """
        path = self.active_file
        try:
            return msgspec.json.decode(path.read_bytes(), type=ActivePolicies)
        except (FileNotFoundError, NotADirectoryError):
            return ActivePolicies()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{path}: {exc}; remove it to return to the files of the settings") from exc

    def set_active(self, active: ActivePolicies) -> None:
        """Name what is in force from the next start on. Raises HostError: STORAGE."""
        self._write(ACTIVE, msgspec.json.encode(active))

    def groups(self) -> Groups:
        """Read the groups that rules may refer to as lists.

        Raises:
            SettingsError: The file cannot be read.
        """
        path = self._folder / GROUPS
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{path}: {exc}; bring it back from a copy, or remove it to have no groups") from exc

    def set_groups(self, groups: Groups) -> None:
        """Keep these groups and no others. Raises HostError: STORAGE."""
        self._write(GROUPS, msgspec.json.encode(groups))

    def bundles(self) -> list[BundleFacts]:
        """All bundles, the newest first; what cannot be read is left out."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in (ACTIVE, GROUPS):
                try:
                    found.append(self._read(path).facts)
                except SettingsError:
                    continue
        return sorted(found, key=lambda one: -one.at)

    def find(self, name: str) -> Bundle:
        """Find a bundle by its digest, its revision, or the first characters of either.

        Raises:
            PeerError: NO_SUCH_BUNDLE, also for what several bundles begin with.
            SettingsError: It is not what it was.
        """
        known = self.bundles() if len(name) >= SHORTEST_NAME else []
        fits = {one.digest for one in known if one.digest.startswith(name) or one.revision.startswith(name)}
        if len(fits) != 1:
            text = f"{len(fits)} bundles begin with" if fits else "there is no bundle"
            raise PeerError(Code.NO_SUCH_BUNDLE, f"{text} {name[:64]!r}; `policy bundles` lists them")
        return self.read(fits.pop())

    def read(self, digest: str) -> Bundle:
        """Read one bundle.

        Raises:
            SettingsError: It is missing, or not what it was.
        """
        return self._read(self._folder / f"{digest}{_SUFFIX}")

    def add(self, bundle: Bundle) -> None:
        """Keep a bundle; the oldest ones that nothing returns to make room.

        Raises:
            HostError: STORAGE.
        """
        kept = {one.bundle for one in self.active().activations}
        others = [one.digest for one in self.bundles() if one.digest not in {*kept, bundle.facts.digest}]
        for digest in others[max(0, POLICY_BUNDLES - 1 - len(kept)) :]:
            self.remove(digest)
        self._write(f"{bundle.facts.digest}{_SUFFIX}", msgspec.json.encode(bundle))

    def remove(self, digest: str) -> None:
        """Forget a bundle; one that is not there is forgotten already. Raises HostError: STORAGE."""
        path = self._folder / f"{digest}{_SUFFIX}"
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise _storage_error(path, exc) from exc

    def _read(self, path: Path) -> Bundle:
        try:
            bundle = msgspec.json.decode(path.read_bytes(), type=Bundle)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise SettingsError(f"{path}: {exc}") from exc
        if digest_of_files(bundle.files) != path.name.removesuffix(_SUFFIX):
            raise SettingsError(f"{path}: its files are not those that were added; add them again")
        return bundle

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_whole(path, content)
        except OSError as exc:
            raise _storage_error(path, exc) from exc


def compile_files(files: Mapping[str, str], mode: Mode = Mode.ENFORCE, groups: Groups = _NO_GROUPS) -> CompiledPolicies:
    """Parse policy files, run their tests, and compile them.

    Args:
        files: Text by name.
        mode: REPORT makes all of them report what they would decide, and decide nothing.
        groups: Lists that the files may refer to.

    Raises:
        PeerError: TOO_LARGE; POLICY_INVALID with file and line: they cannot be used, or one of their tests fails.
    """
    size = sum(len(text) for text in files.values())
    if len(files) > POLICY_BUNDLE_FILES or size > POLICY_BUNDLE_BYTES:
        most = f"{POLICY_BUNDLE_FILES} files and {POLICY_BUNDLE_BYTES} characters"
        raise PeerError(Code.TOO_LARGE, f"a bundle has at most {most}; name larger files in `policy.files`")
    if not files:
        raise PeerError(Code.POLICY_INVALID, "a bundle has at least one file")
    try:
        return load_policies([_policy_text(name, text) for name, text in files.items()], mode=mode, groups=groups)
    except SettingsError as exc:
        raise PeerError(Code.POLICY_INVALID, exc.detail) from exc


def _policy_text(name: str, text: str) -> PolicyText:
    syntax = _SYNTAX.get(PurePath(name).suffix)
    if syntax is None or len(name) > _NAME_CHARS or not name.isprintable():
        raise SettingsError(f"{name[:_NAME_CHARS]}: the name of a policy file ends in .toml or .json")
    return PolicyText(name, text, syntax)


def _storage_error(path: Path, exc: OSError) -> HostError:
    return HostError(Code.STORAGE, f"{path}: {exc.strerror or exc}")
