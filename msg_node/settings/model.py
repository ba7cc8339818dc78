"""The settings of one node: what an operator may write in `node.toml`, as types.

These types are the only definition. `config_load` reads files into them, `config_check` asks what types cannot express,
`config_reference` prints them as `docs/configuration.md`. Every field carries its own explanation; units end the names.

Unknown keys are errors. A setting at the wrong level that is silently ignored is how domain blocks come not to block.

Source: trust and hosts, sections 6.1 and 6.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from msg_node.settings.admin import AdminSettings
from msg_node.settings.alarms import AlarmSettings
from msg_node.settings.bindings import HttpsSettings, MqttSettings, TwinSettings
from msg_node.settings.block_lists import BlockListSettings
from msg_node.settings.cluster import ClusterSettings
from msg_node.settings.connectors import ConnectorSettings
from msg_node.settings.delivery import DeliverySettings
from msg_node.settings.exchange import ExchangeSettings
from msg_node.settings.grants import GrantSettings
from msg_node.settings.identity import Algorithm, GlobalRegistrySettings, IdentitySettings
from msg_node.settings.interworking import InterworkingSettings
from msg_node.settings.middleware import MiddlewareSettings
from msg_node.settings.policy import PolicySettings
from msg_node.settings.proxies import ListenProxiedSettings, ProxiedSettings
from msg_node.settings.publish import PublishSettings
from msg_node.settings.push import PushSettings
from msg_node.settings.rates import QuotaSettings, TypeRateSettings
from msg_node.settings.recording import RecordingSettings
from msg_node.settings.registries import CatalogueSettings, QosSettings, RegistrySettings
from msg_node.settings.storage import StorageSettings
from msg_node.settings.traces import TracesSettings
from protofly import limits

Port = Annotated[int, Meta(ge=0, le=65_535)]
PositiveInt = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0.0)]
KindWord = Literal["mdr", "decision", "stub_event", "link_event", "session_event", "policy_event", "admin_event"]
"""The kinds of records."""
Rate = Annotated[float, Meta(gt=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Fingerprint = Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$|^$")]


class NodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of this node, and the folder of its data."""

    domain: Annotated[str, Meta(description="The domain of this node: lower-case A-labels, at least two.")]
    name: Annotated[Name, Meta(description="Name of this node inside its domain; part of record files and proofs.")] = (
        "mn-1"
    )
    aliases: Annotated[
        tuple[str, ...],
        Meta(description="Additional domains whose addresses are local here; the published root must name them."),
    ] = ()
    processes: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="Processes that serve together on this machine, each with a core; 0: one for each core. "
            "More than one need `storage.engine`; see `docs/cluster.md`.",
        ),
    ] = 1
    data_dir: Annotated[
        Path, Meta(description="Folder for state, trust marks and the stubs cache; made with mode 0700.")
    ]
    drain_seconds: Annotated[
        NonNegative,
        Meta(description="Time in which a node that stops answers requests under way and hands over its messages."),
    ] = limits.DRAIN_SECONDS
    gather_seconds: Annotated[
        float,
        Meta(
            ge=0.0,
            le=0.01,
            description="Where more than a thousand messages a second come one by one, how long a busy node waits for "
            "further input, to do the work for several at once; 0: never.",
        ),
    ] = 0.001


class ListenSettings(ListenProxiedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where runtimes (`/ws`, `/socket.io/`, `/stub/connect`, `/messages`) and other nodes' stubs (`/link`) connect."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="TCP port; 0 lets the system choose one.")] = 8443
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS. Only for laboratories: then no certificate and key may be given.")
    ] = False
    client_ca: Annotated[
        Path | None,
        Meta(description="PEM file with the authorities whose client certificates prove runtimes; absent: none do."),
    ] = None
    client_certificate: Annotated[
        Literal["optional", "required"],
        Meta(description="`required`: no runtime opens a session without one. Links of other domains need none."),
    ] = "optional"
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web origins whose pages may connect as runtimes, such as `https://app.a.example`; `*` is any."
        ),
    ] = ("*",)
    unopened_per_second: Annotated[
        Rate,
        Meta(
            description="Connections of one address, or of one /64 of IPv6, that open no session and prove no domain; "
            "further ones are closed at once. Behind a proxy that is not in `trusted_proxies`, all have its address."
        ),
    ] = limits.UNOPENED_PER_SECOND


class SiteSettings(ProxiedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's own HTTP site: `.well-known`, catalogue, health and status."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="TCP port; 0 lets the system choose one.")] = 8444
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS, for example behind a proxy that ends it.")
    ] = False
    public_url: Annotated[
        str,
        Meta(description="How others reach this site; absent: `https://` and the domain. Never taken from a request."),
    ] = ""
    status_token_sha256: Annotated[
        str,
        Meta(
            description="Hex SHA-256 of the bearer token that opens `/status`; absent: loopback clients over TLS only, "
            "and none behind a proxy."
        ),
    ] = ""
    reverse_check: Annotated[
        bool,
        Meta(
            description="Answer another domain that proves itself whether a link of it would be admitted, and by which "
            "code not; nobody learns anything about others. With `[publish]` only."
        ),
    ] = True
    connections: Annotated[PositiveInt, Meta(description="Maximum number of connections.")] = limits.WEB_CONNECTIONS
    connections_per_address: Annotated[
        PositiveInt,
        Meta(description="Connections of one address, or of one /64 of IPv6; those of proxies count in all only."),
    ] = limits.WEB_CONNECTIONS_PER_ADDRESS
    requests_per_second: Annotated[
        Rate, Meta(description="Requests of one address, five seconds' worth at once; further ones get 429.")
    ] = limits.WEB_REQUESTS_PER_SECOND


class DiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How other domains are found."""

    nameservers: Annotated[
        tuple[str, ...], Meta(description="Resolvers as `address:port`; empty: those of the operating system.")
    ] = ()
    ca_file: Annotated[Path | None, Meta(description="PEM file with additional certificate authorities to trust.")] = (
        None
    )
    trust_ad_bit: Annotated[
        bool,
        Meta(description="Believe the DNSSEC verdict (AD bit) of the name servers above; only on a protected path."),
    ] = False


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds that an operator may change. All others are fixed in `protofly/limits.py`."""

    frame_bytes: Annotated[
        Annotated[int, Meta(ge=4_096, le=limits.FRAME_BYTES_MAX)],
        Meta(description="Largest message of a runtime or a peer."),
    ] = limits.FRAME_BYTES
    max_hops: Annotated[
        Annotated[int, Meta(ge=1, le=limits.VIA_ENTRIES)], Meta(description="Domains a message may pass.")
    ] = limits.MAX_HOPS
    session_queue_messages: Annotated[PositiveInt, Meta(description="Messages waiting for one slow runtime.")] = (
        limits.SESSION_QUEUE_MESSAGES
    )
    session_queue_bytes: Annotated[PositiveInt, Meta(description="Bytes waiting for one slow runtime.")] = (
        limits.SESSION_QUEUE_BYTES
    )
    allocation_per_session: Annotated[PositiveInt, Meta(description="Addresses one session may own.")] = (
        limits.ALLOCATION_PER_SESSION
    )
    allocation_per_guest_domain: Annotated[
        PositiveInt, Meta(description="Addresses that all guests of one other domain may own together.")
    ] = limits.ALLOCATION_PER_GUEST_DOMAIN
    subscriptions_per_session: Annotated[PositiveInt, Meta(description="Subscriptions one session may hold.")] = (
        limits.SUBSCRIPTIONS_PER_SESSION
    )
    waiting_messages: Annotated[
        PositiveInt, Meta(description="Messages waiting for one domain during its look-up.")
    ] = limits.WAITING_MESSAGES
    waiting_bytes: Annotated[PositiveInt, Meta(description="Bytes waiting for one domain during its look-up.")] = (
        limits.WAITING_BYTES
    )
    waiting_seconds: Annotated[
        Rate, Meta(description="How long a message waits for its domain before it is answered.")
    ] = limits.WAITING_SECONDS
    sessions: Annotated[
        PositiveInt,
        Meta(
            description="Runtimes connected or in grace at the same time. When all places are taken, the network with "
            "the most that have proved nothing gives way."
        ),
    ] = 20_000
    links: Annotated[
        PositiveInt,
        Meta(
            description="Foreign domains with a link at the same time; peers that are named in full always have theirs."
        ),
    ] = 256


class RecordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audit records about messages, decisions, stubs, links and sessions."""

    spool_dir: Annotated[
        Path | None, Meta(description="Folder for record segments; absent: `records` in the data folder.")
    ] = None
    durability: Annotated[
        Literal["counted", "strict"],
        Meta(description="Queue full: `counted` loses records and counts them, `strict` takes no more messages."),
    ] = "counted"
    segment_format: Annotated[
        Literal["columns", "lines"],
        Meta(
            description="How messages are written: in `columns` (schema version 2), or in JSON `lines` (version 1), "
            "which pipelines from before version 2 read, too."
        ),
    ] = "columns"
    hash_addresses: Annotated[
        bool, Meta(description="Write keyed hashes in place of addresses, and no words of others.")
    ] = True
    keep_days: Annotated[
        dict[KindWord, Annotated[float, Meta(gt=0.0, le=36_600.0)]],
        Meta(
            description="For how many days sealed segments are kept, by kind, for example `mdr = 90`; those of other "
            "kinds are kept until somebody removes them."
        ),
    ] = {}
    queue_records: Annotated[PositiveInt, Meta(description="Records waiting for the writer.")] = (
        limits.RECORD_QUEUE_RECORDS
    )
    segment_bytes: Annotated[PositiveInt, Meta(description="Raw bytes after which a segment is sealed.")] = (
        limits.SEGMENT_BYTES
    )
    segment_seconds: Annotated[Rate, Meta(description="Age at which a segment is sealed.")] = limits.SEGMENT_SECONDS
    sync_seconds: Annotated[Rate, Meta(description="Longest time a record waits for the disk.")] = (
        limits.RECORD_SYNC_SECONDS
    )


class SandboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How foreign code is confined. Stubs and manifests can only ask for less."""

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
    cache_bytes: Annotated[
        PositiveInt,
        Meta(description="Size of the stubs cache; entries unused for 30 days or longest are removed."),
    ] = 512 << 20


class CredentialSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bearer token that local runtimes may open a session with."""

    runtime: Annotated[str, Meta(description="Runtime address it is valid for; `*` at the end stands for any rest.")]
    token_sha256: Annotated[
        Digest, Meta(description="Hex SHA-256 of the token; the token itself is never written down.")
    ]
    roles: Annotated[tuple[str, ...], Meta(description="Roles that policies see as `session.roles`.")] = ()


class IssuerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One issuer of bearer tokens (JWT) that local runtimes may open a session with."""

    issuer: Annotated[
        str, Meta(min_length=1, max_length=512, description="Its name, exactly as the claim `iss` says it.")
    ]
    audience: Annotated[str, Meta(min_length=1, description="Our name, which the claim `aud` must contain.")]
    jwks: Annotated[
        Path | None, Meta(description="File with its keys, a JWK set; or `public_keys`, or an `[[identity.provider]]`.")
    ] = None
    public_keys: Annotated[tuple[str, ...], Meta(description="Its public keys as PEM text; or `jwks`.")] = ()
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(description="Signature algorithms that it may use; absent: all that fit its keys.")
    ] = ()
    skew_seconds: Annotated[
        Annotated[float, Meta(ge=0.0, le=limits.BEARER_SKEW_MAX_SECONDS)],
        Meta(description="How far its clock may differ from ours."),
    ] = limits.BEARER_SKEW_SECONDS
    runtime_claim: Annotated[
        str,
        Meta(
            min_length=1,
            description="Claim with the runtime address, or several; `*` at the end of one stands for any rest.",
        ),
    ] = "runtime"
    roles_claim: Annotated[
        str, Meta(description="Claim with the roles that policies see as `session.roles`; absent: no roles.")
    ] = ""
    runtimes: Annotated[
        tuple[str, ...],
        Meta(description="Runtimes that it may speak for at most, as patterns; absent: those of our own domains."),
    ] = ()

    @property
    def has_keys(self) -> bool:
        """True if its keys are in this section; else those of the identity provider of that name count."""
        return self.jwks is not None or bool(self.public_keys)


class CertificateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client certificate by name, when it does not name its runtime itself (SAN URI) or is to have roles."""

    runtime: Annotated[str, Meta(description="Runtime address it is valid for; `*` at the end stands for any rest.")]
    sha256: Annotated[
        Fingerprint, Meta(description="Its SHA-256 fingerprint in hex, with or without colons; or `subject`.")
    ] = ""
    subject: Annotated[
        str, Meta(description="Its subject as RFC 4514 writes it, for example `CN=ana,O=Example`; or `sha256`.")
    ] = ""
    roles: Annotated[tuple[str, ...], Meta(description="Roles that policies see as `session.roles`.")] = ()


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of local runtimes."""

    grace_seconds: Annotated[NonNegative, Meta(description="How long a lost session keeps its addresses.")] = (
        limits.SESSION_GRACE_SECONDS
    )
    take_over_grace_seconds: Annotated[
        NonNegative, Meta(description="How long a second opener without credentials waits for a silent first one.")
    ] = limits.TAKE_OVER_GRACE_SECONDS
    ping_seconds: Annotated[Rate, Meta(description="Silence after which a runtime is pinged.")] = limits.PING_SECONDS
    lease_seconds: Annotated[
        Annotated[float, Meta(ge=10.0)] | None,
        Meta(description="Time after which a runtime has to `re-open` its session; absent: no limit."),
    ] = None
    anonymous: Annotated[bool, Meta(description="Runtimes may open sessions without credentials.")] = True
    anonymous_runtimes: Annotated[
        tuple[str, ...],
        Meta(description="Which runtimes may, as patterns: addresses, `*` at the end stands for any rest."),
    ] = ("*",)
    guests: Annotated[
        bool,
        Meta(description="Runtimes of other domains may open sessions, with a credential that covers their address."),
    ] = False
    presence: Annotated[
        bool, Meta(description="Subscribers to `<runtime>/status` are notified when it comes and goes.")
    ] = False
    credential: Annotated[tuple[CredentialSettings, ...], Meta(description="Accepted bearer tokens.")] = ()
    issuer: Annotated[tuple[IssuerSettings, ...], Meta(description="Issuers of accepted bearer tokens.")] = ()
    certificate: Annotated[
        tuple[CertificateSettings, ...], Meta(description="Client certificates that are named here.")
    ] = ()


class PoolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses that sessions borrow instead of getting new ones, for example telephone numbers of a gateway."""

    scheme: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]{0,63}$")],
        Meta(description="Requests for this scheme are served from the pool; no other pool may have it."),
    ]
    addresses: Annotated[
        tuple[str, ...],
        Meta(description="Addresses of the pool, used longest unused first: `sip:…` or `sip://user@domain`."),
    ]


class AllocationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allocation and release of addresses."""

    strict_release: Annotated[
        bool,
        Meta(
            description="Only the owner's runtime and operators release an address; off: any runtime of the domain "
            "does, if the owner has no credential."
        ),
    ] = True
    pool: Annotated[tuple[PoolSettings, ...], Meta(description="Addresses that are lent.")] = ()


class SubscriptionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Subscriptions to addresses and objects."""

    require_consent: Annotated[
        bool, Meta(description="Changes and children of an object are for those whom its reporter accepted.")
    ] = False
    expand_schema: Annotated[
        bool, Meta(description="A `schema` that is named without children is read, and its children are subscribed.")
    ] = False
    catch_up_seconds: Annotated[
        NonNegative,
        Meta(description="How long changes are kept for disconnected observers; 0: not at all."),
    ] = 0.0
    catch_up_messages: Annotated[
        Annotated[int, Meta(ge=1, le=limits.SESSION_QUEUE_MESSAGES)],
        Meta(description="How many of them for one runtime; it is notified when it missed more."),
    ] = limits.MISSED_MESSAGES
    taps: Annotated[
        bool, Meta(description="Operators may subscribe to `*`: they get a copy of every message, without its tokens.")
    ] = False


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Senders and recipients that routing accepts."""

    learn: Annotated[
        bool, Meta(description="A local address that nobody owns may be used as `from`, and is reachable for an hour.")
    ] = True
    users: Annotated[
        bool, Meta(description="Messages to `user://`, `user-guid://`, `acct://` go to the user's live hyperties.")
    ] = False
    reporter_only: Annotated[
        bool, Meta(description="Only the reporter, and observers in children, may send to the observers of an object.")
    ] = True


class CompatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Behaviour of the reference nodes that old runtimes or their test suites may need; see `docs/dialects.md`."""

    profile: Annotated[
        Literal["", "rethink"],
        Meta(
            description="`rethink`: all that existing runtimes rely on, in one line: every switch of this section, "
            "`allocation.strict_release = false` and a long `sessions.grace_seconds`. What you set yourself wins."
        ),
    ] = ""
    sm_error: Annotated[
        Literal[400, 500], Meta(description="The code for runtimes of dialect A when a subscription names nothing.")
    ] = 400
    echo: Annotated[
        bool, Meta(description="Runtimes of dialect A get copies of what they send to addresses they listen to.")
    ] = False
    return_by_address: Annotated[
        bool,
        Meta(description="A lost runtime of dialect B, C or socket.io that proves nothing comes back by its address."),
    ] = False
    take_over: Annotated[
        bool,
        Meta(
            description="A second `open` of a runtime that proves nothing takes its session over, in every dialect of "
            "the reference nodes, while the first connection is live too; off: 409."
        ),
    ] = False
    keep_registered: Annotated[
        bool,
        Meta(
            description="Registry entries stay `live` until they expire when the session of their runtime ends; off: "
            "they are `disconnected`."
        ),
    ] = False


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the log on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least level that is printed.")] = (
        "info"
    )
    format: Annotated[Literal["text", "json"], Meta(description="One line of text, or one JSON object, per event.")] = (
        "text"
    )


class DebugSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For those who look for a defect of the node."""

    flows: Annotated[
        Literal["on", "verify", "off"],
        Meta(
            description="Whether what messages of one sender, recipient and type have in common is decided once; "
            "`verify`: every message is judged by itself, and a difference is an error `flow-differs` in the log."
        ),
    ] = "on"


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


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeSettings
    listen: ListenSettings = ListenSettings()
    https: HttpsSettings = HttpsSettings()
    site: SiteSettings | None = None
    admin: AdminSettings | None = None
    alarms: AlarmSettings = AlarmSettings()
    publish: PublishSettings | None = None
    discovery: DiscoverySettings = DiscoverySettings()
    policy: PolicySettings = PolicySettings()
    registry: RegistrySettings | None = None
    qos: QosSettings | None = None
    catalogue: CatalogueSettings = CatalogueSettings()
    limits: LimitSettings = LimitSettings()
    storage: StorageSettings = StorageSettings()
    cluster: ClusterSettings = ClusterSettings()
    records: RecordSettings = RecordSettings()
    recording: RecordingSettings | None = None
    sandbox: SandboxSettings = SandboxSettings()
    sessions: SessionSettings = SessionSettings()
    allocation: AllocationSettings = AllocationSettings()
    subscriptions: SubscriptionSettings = SubscriptionSettings()
    routing: RoutingSettings = RoutingSettings()
    twin: TwinSettings = TwinSettings()
    middleware: MiddlewareSettings = MiddlewareSettings()
    mqtt: MqttSettings | None = None
    delivery: DeliverySettings = DeliverySettings()
    push: PushSettings | None = None
    global_registry: GlobalRegistrySettings | None = None
    identity: IdentitySettings = IdentitySettings()
    compat: CompatSettings = CompatSettings()
    log: LogSettings = LogSettings()
    traces: TracesSettings | None = None
    debug: DebugSettings = DebugSettings()
    peer: tuple[PeerSettings, ...] = ()
    exchange: ExchangeSettings | None = None
    block_list: Annotated[tuple[BlockListSettings, ...], Meta(max_length=16)] = ()
    interworking: tuple[InterworkingSettings, ...] = ()
    connector: tuple[ConnectorSettings, ...] = ()

    @property
    def own_domains(self) -> tuple[str, ...]:
        """The domain and its aliases: addresses in them are local."""
        return (self.node.domain, *self.node.aliases)

    @property
    def node_id(self) -> str:
        """Name of this node that is unique among all domains; identifies record files."""
        return f"{self.node.name}.{self.node.domain}"

    @property
    def exchange_dir(self) -> Path:
        """The folder of what partners have handed in."""
        named = self.exchange.folder if self.exchange is not None else None
        return named or self.node.data_dir / "exchange" / "in"

    @property
    def spool_dir(self) -> Path:
        """The folder of record segments."""
        return self.records.spool_dir or self.node.data_dir / "records"

    @property
    def site_url(self) -> str:
        """The address of our site for others, without a final slash."""
        public_url = self.site.public_url if self.site else ""
        return (public_url or f"https://{self.node.domain}").rstrip("/")
