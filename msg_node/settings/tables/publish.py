"""Settings of what the domain publishes, and of endpoints of its stubs: `[[publish.endpoint]]`.

A messaging node has one, where other domains' nodes connect to it. The stub of a legacy service has others: places of
that service, which the node that publishes it never talks to itself. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from protofly import limits
from protofly.documents import EndpointName, EndpointUrl

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
NonNegative = Annotated[float, Meta(ge=0.0)]


class EndpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more endpoint that `live` names, for stubs that connect elsewhere than to this node."""

    name: Annotated[EndpointName, Meta(description="Its name, as manifests and stubs say it.")]
    url: Annotated[EndpointUrl, Meta(description="`wss://`, `tls://` or `https://`, host in lower case, port, path.")]
    spki: Annotated[
        tuple[str, ...], Meta(description="Key pins (base64url SHA-256 of SubjectPublicKeyInfo) for its certificate.")
    ] = ()


class PublishSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of what this domain publishes about itself. Without this table the node federates only outwards."""

    keys_dir: Annotated[
        Path, Meta(description="Folder of `trapezoid keys init`; the node needs `live` and `node` keys only.")
    ]
    site_dir: Annotated[
        Path, Meta(description="Folder written by `trapezoid publish`: roots, manifests, descriptors, modules.")
    ]
    endpoint_url: Annotated[str, Meta(description="Where other domains' stubs connect: `wss://host[:port]/link`.")]
    endpoint_name: Annotated[Name, Meta(description="Name of that endpoint in `live` and in manifests.")] = "mn"
    endpoint_spki: Annotated[
        tuple[str, ...],
        Meta(description="Key pins (base64url SHA-256 of SubjectPublicKeyInfo) for the endpoint's certificate."),
    ] = ()
    live_seconds: Annotated[
        Annotated[float, Meta(ge=3_600.0, le=limits.LIVE_VALIDITY_SECONDS)],
        Meta(description="Life of a signed `live` document; a new one is signed at half of it."),
    ] = 172_800.0
    cache_seconds: Annotated[NonNegative, Meta(description="`max-age` of `live` for readers.")] = 3_600.0
    mode: Annotated[
        Literal["enforce", "testing"], Meta(description="`testing` asks others to report failures instead of refusing.")
    ] = "enforce"
    renew: Annotated[
        bool, Meta(description="The node renews manifests that are about to expire, if `keys_dir` holds a `pkg` key.")
    ] = True
    endpoint: Annotated[tuple[EndpointSettings, ...], Meta(description="Further endpoints of the domain's stubs.")] = ()
    contact: Annotated[str, Meta(description="Contact for this domain, for example `mailto:ops@a.example`.")] = ""
