"""The table `[[peer]]`: one other domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from msg_node.settings.tables.grants import GrantSettings
from msg_node.settings.tables.rates import QuotaSettings, TypeRateSettings
from msg_node.settings.tables.values import Rate


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One foreign domain, or with `*.` before it all its subdomains. Domains that no entry names are denied."""

    domain: Annotated[str, Meta(description="`b.example`, or `*.b.example`; the most specific entry wins.")]
    default: Annotated[
        Literal["permit", "deny"],
        Meta(description="The decision on messages to which no policy rule applies."),
    ] = "permit"
    trust: Annotated[
        Literal["web", "pinned", "dnssec"],
        Meta(description="Why the first root of the domain is trusted; afterwards only continuity counts."),
    ] = "web"
    fingerprint: Annotated[
        str,
        Meta(description="Key-set fingerprint (`trapezoid keys fingerprint`), exchanged out of band; for `pinned`."),
    ] = ""
    aliases: Annotated[
        tuple[str, ...], Meta(description="Additional domains that it represents, without documents.")
    ] = ()
    allow_addresses: Annotated[
        tuple[str, ...], Meta(description="Internal ranges that this domain may resolve to, for example `10.7.0.0/16`.")
    ] = ()
    stub: Annotated[
        Path | None,
        Meta(
            description="A stub that you choose: a `.wasm` file, or the name of one in our catalogue or of one that "
            "comes with the program, such as `vertx_peer`. It wins over what the domain publishes, and its digest is "
            "pinned when it is used first."
        ),
    ] = None
    unsigned_stub: Annotated[
        str,
        Meta(
            description="In place of `stub`: URL of a JavaScript protostub in an original catalogue, "
            "`https://HOST/.well-known/protocolstub/NAME`. Nobody has signed it: it runs only while its code has the "
            "digest `sha256`."
        ),
    ] = ""
    sha256: Annotated[
        str, Meta(description="SHA-256 of the code of `unsigned_stub`, as `trapezoid peer catalogue` shows it.")
    ] = ""
    endpoint: Annotated[
        str, Meta(description="URL of the domain's node, the only place that this stub may connect to.")
    ] = ""
    updates: Annotated[
        Literal["auto", "hold", "pinned"],
        Meta(
            description="Newer versions of the stub that the domain publishes: `auto` runs them once they are "
            "verified, `hold` runs the first one and keeps each later one back until `trapezoid node stub approve`, "
            "`pinned` runs only `modules`."
        ),
    ] = "auto"
    modules: Annotated[
        tuple[str, ...],
        Meta(description="SHA-256 of modules that are approved: with `pinned` the only ones, with `hold` beforehand."),
    ] = ()
    canary_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=50,
            description="A newer version of the stub carries the messages of so many of 100 pairs of addresses first, "
            "beside the version that runs; 0: it takes over at once.",
        ),
    ] = 0
    canary_seconds: Annotated[
        int, Meta(ge=10, le=3600, description="For how long it does before it takes over whole.")
    ] = 300
    configuration: Annotated[
        dict[str, Any],
        Meta(description="Table of settings for the stub of the domain, as the stub's page explains them; no secrets."),
    ] = {}
    stay_connected: Annotated[
        bool, Meta(description="Connect when the node starts, and stay; for domains whose nodes cannot call us.")
    ] = False
    may_receive: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")], ...],
        Meta(
            max_length=64,
            description="Labels of data that may go there where a rule requires consent; else 403 `consent`.",
        ),
    ] = ()
    trust_class: Annotated[
        Literal["node", "plain"],
        Meta(description="`plain`: nothing proves who speaks inside the domain, so any user there may be any other."),
    ] = field(default="node", name="class")
    send_via: Annotated[
        bool,
        Meta(
            description="Messages carry `body.via` and `body.trace`; off: they stay here, for nodes whose runtimes "
            "stumble over them. A message that such a node sends back is then not known as one that was here."
        ),
    ] = True
    grant: GrantSettings = GrantSettings()
    record_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=64 << 20,
            description="Keep so many bytes in memory of what the domain's stub was given and answered (messages, its "
            "configuration, tokens), and write them, encrypted, into `stub_recordings` of the data folder when it "
            "faults; 0: off.",
        ),
    ] = 0
    well_known_url: Annotated[str, Meta(description="Use this URL for `live` and ask no name server.")] = ""
    connect: Annotated[
        str, Meta(description="`host:port` to connect to for that URL; its certificate must still fit.")
    ] = ""
    insecure_plaintext: Annotated[
        bool,
        Meta(description="Accept `ws://` and `http://` for this domain. Everybody on the way can read and change all."),
    ] = False
    messages_per_second: Annotated[
        Rate | None, Meta(description="Messages per second and direction; absent: unlimited.")
    ] = None
    bytes_per_second: Annotated[Rate | None, Meta(description="Bytes per second and direction; absent: unlimited.")] = (
        None
    )
    burst_seconds: Annotated[Rate, Meta(description="How many seconds' worth of both may come at once.")] = 2.0
    p2p: Annotated[
        bool, Meta(description="Runtimes of both domains may set up direct connections; off: 403 for setting them up.")
    ] = True
    rate: Annotated[
        tuple[TypeRateSettings, ...], Meta(description="Rates of single types besides, per direction.")
    ] = ()
    quota: Annotated[
        tuple[QuotaSettings, ...], Meta(description="Volumes per hour, day or month besides, per direction.")
    ] = ()
