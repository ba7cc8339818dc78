"""What an operator may write about people: `[global_registry]`.

Source: message specification, sections 12 and 20.4.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from msg_node.config_registries import BackendSettings
from protofly import limits


class GlobalRegistrySettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The global registry, where records of GUIDs are; without this table `global://registry/` is switched off."""

    attempt_seconds: Annotated[
        Annotated[float, Meta(gt=0.0, le=60.0)], Meta(description="How long a read may take.")
    ] = limits.GLOBAL_REGISTRY_READ_SECONDS
    write_seconds: Annotated[
        Annotated[float, Meta(gt=0.0, le=60.0)], Meta(description="How long a write may take.")
    ] = limits.GLOBAL_REGISTRY_WRITE_SECONDS
    verify: Annotated[
        Literal["enforce", "warn"],
        Meta(description="`warn` hands records that fail the checks to runtimes; the node itself never uses them."),
    ] = "enforce"
    cache_seconds: Annotated[
        Annotated[float, Meta(ge=0.0)], Meta(description="How long a record is used before it is asked for again.")
    ] = limits.GLOBAL_REGISTRY_CACHE_SECONDS
