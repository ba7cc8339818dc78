"""Settings of interworking stubs: `[[interworking]]`.

Source: message specification, section 16; feature rows LI-07 to LI-10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class InterworkingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One interworking stub that is admitted; all others are refused. It needs a `[[peer]]` entry of its own."""

    domain: Annotated[str, Meta(description="The stub's domain, in full, such as `sip.legacy.example`.")]
    ranges: Annotated[
        tuple[str, ...],
        Meta(
            description="The most that it may speak for: `sip://legacy.example`, `tel:+4930*`. Absent: what the name "
            "of its domain says, `sip://legacy.example` for `sip.legacy.example`."
        ),
    ] = ()
    http: Annotated[bool, Meta(description="It may open channels of kind `http` to its endpoints.")] = False
    token_file: Annotated[
        Path | None,
        Meta(description="File with the access token of its service, mode 0600; read anew for every request."),
    ] = None
    token_origins: Annotated[
        tuple[str, ...],
        Meta(description="Where its and its users' tokens may go: `https://host[:port]` of endpoints; none: nowhere."),
    ] = ()
