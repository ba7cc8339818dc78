"""Settings of rates of single message types, for one session and for one peer.

Source: feature row BU-26; trust and hosts, section 5.3, rule 8.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Rate = Annotated[float, Meta(gt=0.0)]
Volume = Annotated[int, Meta(gt=0)]
TypeName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]


class TypeRateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate of some message types together, in addition to the rate of all messages."""

    types: Annotated[
        tuple[TypeName, ...],
        Meta(min_length=1, description="Message types in lower case, for example `subscribe`; they share the rate."),
    ]
    messages_per_second: Annotated[Rate | None, Meta(description="Messages per second; absent: unlimited.")] = None
    bytes_per_second: Annotated[Rate | None, Meta(description="Bytes per second; absent: unlimited.")] = None
    burst_seconds: Annotated[Rate, Meta(description="How many seconds' worth of both may come at once.")] = 2.0


class QuotaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds for an hour, a day or a month of UTC, in addition to the rates; each direction by itself."""

    per: Annotated[Literal["hour", "day", "month"], Meta(description="The period, of UTC.")]
    messages: Annotated[Volume | None, Meta(description="Messages in it; absent: unlimited.")] = None
    bytes: Annotated[Volume | None, Meta(description="Bytes in it; absent: unlimited.")] = None
    types: Annotated[
        tuple[TypeName, ...], Meta(description="Only messages of these types count, in lower case; absent: all.")
    ] = ()
