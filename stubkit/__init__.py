"""The kit for authors of stubs: build a module from C, check, pack and sign it for a catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "CheckReport",
    "KeyRing",
    "PackedStub",
    "StubRelease",
    "Trial",
    "check_stub",
    "load_keys",
    "make_keys",
    "pack_stub",
    "save_keys",
    "sign_manifest",
    "sign_root",
]

if TYPE_CHECKING:
    from stubkit.check import CheckReport, check_stub
    from stubkit.keys import KeyRing, load_keys, make_keys, save_keys
    from stubkit.pack import PackedStub, pack_stub
    from stubkit.sign import StubRelease, sign_manifest, sign_root
    from stubkit.trial import Trial
else:
    __getattr__ = public_names(
        __name__,
        {
            "CheckReport": "stubkit.check",
            "KeyRing": "stubkit.keys",
            "PackedStub": "stubkit.pack",
            "StubRelease": "stubkit.sign",
            "Trial": "stubkit.trial",
            "check_stub": "stubkit.check",
            "load_keys": "stubkit.keys",
            "make_keys": "stubkit.keys",
            "pack_stub": "stubkit.pack",
            "save_keys": "stubkit.keys",
            "sign_manifest": "stubkit.sign",
            "sign_root": "stubkit.sign",
        },
    )
