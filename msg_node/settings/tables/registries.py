"""Settings of services elsewhere that the node asks: `[registry]`, `[qos]`, `[catalogue]`.

Source: message specification, sections 10 and 14; data formats, sections 2 and 5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from protofly import limits


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server with a REST interface, and how to reach it."""

    url: Annotated[str, Meta(description="`https://host[:port][/path]`; internal addresses are allowed.")]
    ca_file: Annotated[
        Path | None, Meta(description="PEM file with additional certificate authorities to trust for it.")
    ] = None
    certificate: Annotated[Path | None, Meta(description="PEM file with our client certificate, if it needs one.")] = (
        None
    )
    key: Annotated[Path | None, Meta(description="PEM file with the private key of that certificate.")] = None
    insecure_plaintext: Annotated[bool, Meta(description="Let `url` be `http://`. Laboratories only.")] = False
    attempt_seconds: Annotated[
        Annotated[float, Meta(gt=0.0, le=limits.INQUIRY_SECONDS)],
        Meta(description="Time limit of one attempt; repeatable requests are tried three times within 10 s."),
    ] = limits.BACKEND_ATTEMPT_SECONDS


class RegistrySettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An external domain registry; without this table the node has its own. See `docs/registries.md`."""

    cache_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=3_600.0)],
        Meta(description="How long an answer is reused at most, never longer than `expires` says; 0: never."),
    ] = limits.REGISTRY_CACHE_SECONDS
    poll_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=3_600.0)],
        Meta(description="Interval of polling for changes of statuses; 0: another node polls."),
    ] = limits.REGISTRY_POLL_SECONDS


class QosSettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The QoS broker behind `domain://qos.<domain>`; without this table there is none. See `docs/registries.md`."""

    max_lease_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=86_400)],
        Meta(description="Maximum duration of a reservation; longer ones are cut."),
    ] = limits.QOS_LEASE_MAX_SECONDS
    watch_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=3_600.0)],
        Meta(description="Interval of polling the usage of providers with subscribers; 0: never."),
    ] = limits.QOS_WATCH_SECONDS


class CatalogueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Descriptors that local runtimes read by messages to `hyperty-catalogue://…`. See `docs/registries.md`."""

    serve: Annotated[bool, Meta(description="Offer this service; off: 501 `connector-off`.")] = True
    guest_stubs: Annotated[
        bool,
        Meta(
            description="Runtimes may read stubs and identity provider proxies of other domains, to run them; else 403."
        ),
    ] = True
    cache_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=86_400.0)],
        Meta(description="How long a descriptor is reused when its server says nothing about it; 0: never."),
    ] = limits.CATALOGUE_CACHE_SECONDS
    own: Annotated[
        BackendSettings | None, Meta(description="Our own catalogue, when it is not at `https://catalogue.<domain>`.")
    ] = None
