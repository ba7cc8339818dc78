"""Settings of recordings of conversations: off unless the operator of the machine names a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class RecordingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operators may record what passes the node, for a time, into encrypted files: `trapezoid node recording start`."""

    key_file: Annotated[
        Path,
        Meta(
            description="File of `trapezoid keys state`, mode 0600, outside `data_dir`: its first key encrypts "
            "recordings, and who replays them needs it."
        ),
    ]
    folder: Annotated[
        Path | None, Meta(description="Where recordings are written. Default: `conversations` in `data_dir`.")
    ] = None
    max_seconds: Annotated[
        float, Meta(ge=1.0, le=86_400.0, description="The longest recording, whatever an operator asks for.")
    ] = 3600.0
    max_bytes: Annotated[
        int, Meta(ge=1 << 16, le=4 << 30, description="The largest one. A recording that reaches it ends.")
    ] = 64 << 20
    max_files: Annotated[
        int, Meta(ge=1, le=1000, description="How many the folder may hold; then none is started before one is gone.")
    ] = 20
