"""Kinds of values that several tables have."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65_535)]
PositiveInt = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0.0)]
Rate = Annotated[float, Meta(gt=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$|^$")]
