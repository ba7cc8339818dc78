"""The zoo: stubs that keep the structure which is asked of them, and harm a node that runs them without care.

Each is a WebAssembly module of a few hundred bytes in `interop/hostile/zoo/`; `index.json` has what it does and how our
node refuses it. A domain that publishes one of them is to suffer alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from protofly.errors import SettingsError

_FOLDER: Final = Path(__file__).parent / "zoo"


class HostileStub(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stub of the zoo. `code` is the word with which our node answers what needs it."""

    name: str
    does: str
    code: str

    @property
    def module(self) -> bytes:
        """The module."""
        return (_FOLDER / f"{self.name}.wasm").read_bytes()


def zoo() -> dict[str, HostileStub]:
    """All stubs, by name."""
    stubs = msgspec.json.decode((_FOLDER / "index.json").read_bytes(), type=list[HostileStub])
    return {one.name: one for one in stubs}


def hostile_stub(name: str) -> HostileStub:
    """One stub. Raises SettingsError with the names that there are."""
    stubs = zoo()
    if name not in stubs:
        raise SettingsError(f"there is no hostile stub {name}; there are {', '.join(stubs)}")
    return stubs[name]
