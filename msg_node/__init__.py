"""A messaging node for one domain: connectors, bus, services, storage and site. `msg_node.app` connects the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofly.public_names import public_names

__all__ = [
    "Node",
    "Settings",
    "load_settings",
    "serve",
]

if TYPE_CHECKING:
    from msg_node.app import serve
    from msg_node.node import Node
    from msg_node.settings.load import load_settings
    from msg_node.settings.model import Settings
else:
    __getattr__ = public_names(
        __name__,
        {
            "Node": "msg_node.node",
            "Settings": "msg_node.settings.model",
            "load_settings": "msg_node.settings.load",
            "serve": "msg_node.app",
        },
    )
