"""The table `[sandbox]`: what stubs may spend."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.values import PositiveInt, Rate
from protofly import limits


class SandboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Confinement of foreign code. Stubs and manifests can only ask for less."""

    insecure_no_seccomp: Annotated[
        bool,
        Meta(description="Run workers without system call filter where the platform has none. Only for laboratories."),
    ] = False
    memory_bytes: Annotated[
        Annotated[int, Meta(ge=65_536, le=limits.MEMORY_BYTES)], Meta(description="Largest memory of one stub.")
    ] = limits.MEMORY_BYTES
    batch_seconds: Annotated[
        Rate, Meta(description="Wall time after which a worker that does not answer is killed.")
    ] = limits.BATCH_SECONDS
    cpu_share: Annotated[
        Annotated[float, Meta(gt=0.0, le=1.0)],
        Meta(
            description="What the calls of one stub may take of a core over time. One that takes more waits between "
            "them, and its link gets slower; a minute's worth may come at once."
        ),
    ] = limits.STUB_CPU_SHARE
    cache_bytes: Annotated[
        PositiveInt,
        Meta(description="Size of the stubs cache; entries unused for 30 days or longest are removed."),
    ] = 512 << 20
