"""Documents, modules and compiled code of foreign domains on disk, trusted only after checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "StubsCache",
    "load_secret",
]

if TYPE_CHECKING:
    from stubs_cache.cache import StubsCache
    from stubs_cache.store import load_secret
else:
    __getattr__ = public_names(
        __name__,
        {
            "StubsCache": "stubs_cache.cache",
            "load_secret": "stubs_cache.store",
        },
    )
