"""The interop harness: independent runtimes, laboratories of real nodes, the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "DevelopmentAuthority",
    "Laboratory",
    "LaboratoryNode",
    "LaboratoryPlan",
    "NameServer",
    "RuntimeClient",
]

if TYPE_CHECKING:
    from interop.authority import DevelopmentAuthority
    from interop.laboratory import Laboratory, LaboratoryNode, LaboratoryPlan
    from interop.name_server import NameServer
    from interop.runtime_client import RuntimeClient
else:
    __getattr__ = public_names(
        __name__,
        {
            "DevelopmentAuthority": "interop.authority",
            "Laboratory": "interop.laboratory",
            "LaboratoryNode": "interop.laboratory",
            "LaboratoryPlan": "interop.laboratory",
            "NameServer": "interop.name_server",
            "RuntimeClient": "interop.runtime_client",
        },
    )
