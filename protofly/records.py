"""The flat facts that a node writes down, and the evidence around them. The one definition; the pipeline reads it too.

A record is one JSON line. Lines are gathered into Zstandard frames, frames into segments, and every sealed segment has
a signed manifest that names the segment before it. No bodies are ever written.

Rules that keep files readable for years:

* `v` is the version of the kind's schema. New members are optional and keep `v`; any other change raises it.
* An absent member means null: unknown or not applicable. Members whose default is "" or 0 are identity, filled in by
  the writer (`v node boot seq`), and therefore always present in files.
* `(node, boot, seq)` names a record of its kind. `seq` starts at 1 and grows by one, also for records that were lost,
  so that every gap can be counted.
* Durations come from the monotonic clock, `ts_us` from the wall clock at acceptance (µs since the Unix epoch, UTC).

Records are mutable on purpose: the writer's thread completes them. On the message path keep one template per link and
direction, take `template.__copy__()` and set what differs: 0.4 µs, where twenty keywords cost 1.5 µs.

Source: pipeline study, section 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from protofly.address import canonical_key, scheme_of
from protofly.errors import Code, PeerError

DIGEST_DIGITS = 32
ADDRESS_HASH_BYTES = 12
SIGNED_PREFIX = b"trapezoid-segment/1\n"
_ADDRESS_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"\\]+")


class RecordKind(Enum):
    """Kinds of records; each has its own segments and its own numbering."""

    MESSAGE = "mdr"
    DECISION = "decision"
    STUB = "stub_event"
    LINK = "link_event"
    SESSION = "session_event"
    POLICY = "policy_event"
    ADMIN = "admin_event"


class _Record(Struct, kw_only=True, omit_defaults=True, gc=False):
    """What every record carries first. All but `ts_us` is filled in by the writer."""

    kind: ClassVar[RecordKind]
    schema_version: ClassVar[int] = 1
    address_members: ClassVar[tuple[str, ...]] = ()
    """Members that hold addresses of people or things, hashed when the operator asks."""
    free_members: ClassVar[tuple[str, ...]] = ()
    """Members with words of others, or that show where somebody is: left out when addresses are hashed."""
    text_members: ClassVar[tuple[str, ...]] = ()
    """Members with texts of our operators: each address in them is hashed where addresses are hashed."""

    v: int = 0
    node: str = ""
    boot: int = 0
    seq: int = 0
    ts_us: int

    if TYPE_CHECKING:

        def __copy__(self) -> Self:
            """A shallow copy; msgspec brings it, but does not say so to type checkers."""


class GateFacts(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
    rename={
        "via_length": "viaLength",
        "src_domain": "srcSPDomain",
        "dst_domain": "dstSPDomain",
        "roles": "session.roles",
        "identity_verified": "identity.verified",
        "identity_user": "identity.user",
        "identity_issuer": "identity.issuer",
        "identity_groups": "identity.groups",
        "class_": "class",
        "msg_id": "msgId",
        "link_class": "linkClass",
        "session_class": "session.class",
        "dst_status": "dstStatus",
        "dst_presence": "dstPresence",
    },
):
    """Attributes of a message that a gate used and its record has no column for, under the names that policies use.

    `src_domain` and `dst_domain` are there where an address is of another domain than the link (an alias). `class`,
    `resource` and `msgId` stand in the message itself. They, `session.class`, `identity.groups`, `dstStatus` and
    `dstPresence` are there only while the policies in force read them; for `class`, absence is what goes with the
    type, and null is a body that could not be read. `partial`: something that those policies read is not here, too
    long or hidden with the addresses; such a decision cannot be replayed. `link_class` is there unless the far end is
    of the class `node`, as all were before there were others. `labels`, `purpose` and `basis` are no input: they are
    what the rule that decided says about the data of a message that leaves.
    """

    via_length: int = 0
    src_domain: str | None = None
    dst_domain: str | None = None
    roles: tuple[str, ...] = ()
    auth: bool | None = None
    identity_verified: bool = False
    identity_user: str = ""
    identity_issuer: str = ""
    identity_groups: tuple[str, ...] | UnsetType = UNSET
    class_: str | UnsetType | None = UNSET
    resource: str | UnsetType = UNSET
    msg_id: str | UnsetType = UNSET
    partial: bool = False
    link_class: str = "node"
    session_class: str = ""
    dst_status: str = ""
    dst_presence: str = ""
    labels: tuple[str, ...] = ()
    purpose: str = ""
    basis: str = ""


NO_FACTS = GateFacts()


class MessageRecord(_Record, kw_only=True, omit_defaults=True, gc=False):
    """One attempt to pass one message over a border between domains; both nodes write one.

    `digest` is `envelope_digest` over the bytes that cross the border; of a message that ended before it crossed, over
    the bytes as they were. `src_key` and `dst_key` are addresses, or their keyed hashes. `reason` names the step of the
    gate that gave the verdict: `rate`, `list`, `gate`, `policy`, `limit`, `default`, or `node` for the node's own
    words, which pass none. What the gate took for the message's size is `size_in` on the way
    out and `size_wire` on the way in; its `now` is `ts_us`. Times in µs, sizes in bytes.
    """

    kind = RecordKind.MESSAGE
    address_members = ("src_key", "dst_key")

    role: Literal["out", "in"]
    msg_id: str
    attempt: int
    src_domain: str
    dst_domain: str
    src_key: str
    dst_key: str
    msg_type: str
    size_in: int
    digest: str
    outcome: Literal["delivered", "denied", "trapped", "timeout", "rejected", "expired", "duplicate", "undeliverable"]
    peer_node: str | None = None
    channel: str | None = None
    d_policy_us: int | None = None
    d_stub_us: int | None = None
    d_peer_us: int | None = None
    d_total_us: int | None = None
    clock_err_us: int | None = None
    size_wire: int | None = None
    policy_rev: str | None = None
    rule_id: str | None = None
    decision: Literal["permit", "deny"] | None = None
    reason: str | None = None
    facts: GateFacts | None = None
    outcome_code: str | None = None
    stub_id: str | None = None
    stub_ver: str | None = None
    fuel: int | None = None
    mem_peak_kib: int | None = None
    host_calls: int | None = None
    trap: str | None = None
    trace_id: str | None = None


class DecisionRecord(_Record, kw_only=True, omit_defaults=True, gc=False):
    """One decision of a gate that deserves its own line: a denial, a shadow rule that spoke, a peer not admitted.

    `hook` `local` is the own bus, `peer` comes before a link: whether we talk to that domain at all. How many of these
    two are written has a bound; `left_out` is how many were not, since the record of them before this one.
    """

    kind = RecordKind.DECISION
    address_members = ("src_key", "dst_key")

    hook: Literal["peer", "out", "in", "local"]
    effect: Literal["permit", "deny", "not-applicable", "indeterminate"]
    permitted: bool
    policy_rev: str
    src_domain: str
    dst_domain: str
    link_domain: str | None = None
    msg_id: str | None = None
    msg_type: str | None = None
    src_key: str | None = None
    dst_key: str | None = None
    size_in: int | None = None
    rule_id: str | None = None
    reason: str | None = None
    retry_after_us: int | None = None
    shadow: tuple[str, ...] | None = None
    obligations: tuple[str, ...] | None = None
    facts: GateFacts | None = None
    trace_id: str | None = None
    left_out: int | None = None


class StubEvent(_Record, kw_only=True, omit_defaults=True, gc=False):
    """Something happened to a foreign domain's stub. `stub_ver` is the SHA-256 of its module.

    `calls` (exchanges with the sandbox), `messages`, `traps`, `fuel` and `cpu_us` count since the node first needed
    this domain. A `summary` comes every minute with traffic and at the end of each run: `exchange_us` and
    `exchange_fuel` are the exchanges since the last one as (bucket, count), in order, by `protofly.log_linear`, and
    `duration_us` is how long that was.
    """

    kind = RecordKind.STUB
    free_members = ("detail",)

    domain: str
    event: Literal[
        "fetched",
        "verified",
        "refused",
        "compiled",
        "started",
        "state",
        "fault",
        "killed",
        "quarantined",
        "circuit",
        "stopped",
        "summary",
        "updating",
        "canary",
        "took-over",
        "turned-down",
        "rolled-back",
        "proved",
    ]
    stub_id: str | None = None
    stub_ver: str | None = None
    state: str | None = None
    code: str | None = None
    detail: str | None = None
    trap: str | None = None
    pid: int | None = None
    duration_us: int | None = None
    calls: int | None = None
    fuel: int | None = None
    cpu_us: int | None = None
    mem_peak_kib: int | None = None
    msg_id: str | None = None
    messages: int | None = None
    traps: int | None = None
    exchange_us: tuple[tuple[int, int], ...] | None = None
    exchange_fuel: tuple[tuple[int, int], ...] | None = None


class LinkEvent(_Record, kw_only=True, omit_defaults=True, gc=False):
    """Something happened between us and one foreign domain: a step of first contact, a link up, down or refused.

    `src_key` is the address in whose name a `spoofed` message came.
    """

    kind = RecordKind.LINK
    address_members = ("src_key",)
    free_members = ("detail",)

    domain: str
    event: Literal["step", "up", "down", "refused", "authenticated", "spoofed", "trust"]
    direction: Literal["out", "in"] | None = None
    step: str | None = None
    state: str | None = None
    level: str | None = None
    code: str | None = None
    detail: str | None = None
    peer_node: str | None = None
    endpoint: str | None = None
    duration_us: int | None = None
    attempt: int | None = None
    waiting: int | None = None
    src_key: str | None = None


class SessionEvent(_Record, kw_only=True, omit_defaults=True, gc=False):
    """Something happened to the session of a local runtime."""

    kind = RecordKind.SESSION
    address_members = ("runtime_key",)
    free_members = ("detail", "remote")

    event: Literal["opened", "re-opened", "taken-over", "lost", "expired", "closed", "refused"]
    runtime_key: str
    session: int | None = None
    code: str | None = None
    detail: str | None = None
    remote: str | None = None
    duration_us: int | None = None
    addresses: int | None = None
    subscriptions: int | None = None


class PolicyEvent(_Record, kw_only=True, omit_defaults=True, gc=False):
    """Policies were put in force, or were to be and stay out; or a quota is used up, once in each of its periods.

    `before` and `after` are revisions, `after` absent when the new ones were refused; `diff_sha256` names exactly this
    change: the hash of the canonical source of the old policies, a line feed, and that of the new ones. `actor` is the
    user of the operating system as whom the node runs, of an activation, roll-back or change of groups who asked for
    it. `files` are as the settings name them, those of a bundle behind its digest. `detail` says why, or which quota.
    """

    kind = RecordKind.POLICY

    event: Literal["deployed", "refused", "used-up"]
    cause: Literal["start", "reload", "activation", "roll-back", "groups", "quota"]
    actor: str
    mode: str
    files: tuple[str, ...]
    before: str | None = None
    after: str | None = None
    diff_sha256: str | None = None
    rules: int | None = None
    reads: tuple[str, ...] | None = None
    code: str | None = None
    detail: str | None = None


class AdminEvent(_Record, kw_only=True, omit_defaults=True, gc=False):
    """An operator changed the running node, or the time of a change was over.

    `actor` is a user of the machine, a runtime, the holder of a token, or `the node` for what ends by itself; `way` is
    how the request came. `arguments`, `before` and `after` are JSON; what was refused has a `code` and no `after`.
    """

    kind = RecordKind.ADMIN
    free_members = ("detail",)
    text_members = ("arguments", "before", "after")

    operation: str
    actor: str
    way: Literal["socket", "message", "https", "node"]
    arguments: str
    before: str | None = None
    after: str | None = None
    code: str | None = None
    detail: str | None = None


Record: TypeAlias = MessageRecord | DecisionRecord | StubEvent | LinkEvent | SessionEvent | PolicyEvent | AdminEvent
RECORD_TYPES: dict[RecordKind, type[Record]] = {
    RecordKind.MESSAGE: MessageRecord,
    RecordKind.DECISION: DecisionRecord,
    RecordKind.STUB: StubEvent,
    RecordKind.LINK: LinkEvent,
    RecordKind.SESSION: SessionEvent,
    RecordKind.POLICY: PolicyEvent,
    RecordKind.ADMIN: AdminEvent,
}

Closure: TypeAlias = Literal["size", "time", "shutdown", "recovered", "manual"]


class SegmentManifest(Struct, frozen=True, kw_only=True):
    """Manifest of one sealed segment; written last, so a segment without one is unfinished.

    `first_seq … last_seq` covers lost records too: `last_seq - first_seq + 1 == records + lost_records`, and each
    segment begins where the one before it in the same boot ended. `bytes` and `sha256` are of the file, `prev_sha256`
    is the hash of the segment before it ("" for the first ever). In the last segment of a boot that ended in a crash,
    everything until `uncertain_from_us` was written, and at `uncertain_until_us` the node started again: of what
    happened in between, records may be missing without being counted. `signature` is base64url over `signed_bytes`, by
    the key `key_id`; both are "" when the node has no key.
    """

    format: Literal["trapezoid-segment/1"] = "trapezoid-segment/1"
    kind: RecordKind
    node: str
    boot: int
    segno: int
    first_seq: int
    last_seq: int
    records: int
    lost_records: int
    size_bytes: int = field(name="bytes")
    sha256: str
    prev_sha256: str
    min_ts_us: int
    max_ts_us: int
    opened_us: int
    closed_us: int
    closure: Closure
    schema_version: int
    policy_revs: tuple[str, ...] = ()
    stub_vers: tuple[str, ...] = ()
    uncertain_from_us: int | UnsetType = UNSET
    uncertain_until_us: int | UnsetType = UNSET
    key_id: str = ""
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Build the text to sign: a prefix, then all members but `signature` as JSON, sorted, without white space."""
        members = msgspec.to_builtins(self)
        del members["signature"]
        return SIGNED_PREFIX + msgspec.json.encode(members, order="sorted")


_manifest_decoder = msgspec.json.Decoder(SegmentManifest)


def decode_manifest(raw: bytes) -> SegmentManifest:
    """Read a manifest file. Raises PeerError DOCUMENT_MALFORMED."""
    try:
        return _manifest_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"segment manifest: {exc}") from exc


def envelope_digest(type_: str, from_: str, to: str, id_: bytes | None, body: bytes) -> str:
    """Fingerprint of one message as it crosses the border, 32 hex digits; the nodes on both sides get the same one.

    The first 16 bytes of SHA-256 over the five members of the envelope, each but the last ended by a line feed, which
    none of the first four can hold: `type`, `from`, `to`, `id` as its JSON text or nothing, `body` as it is. A stub
    that writes the body anew changes the digest; the records of the two domains then differ, which is what it is for.
    """
    return sha256(f"{type_}\n{from_}\n{to}\n".encode() + (id_ or b"") + b"\n" + body).hexdigest()[:DIGEST_DIGITS]


def envelope_digests(type_: str, from_: str, to: str) -> Callable[[bytes | None, bytes], str]:
    """`envelope_digest` for messages that share type, sender and recipient: of id and body."""
    begun = sha256(f"{type_}\n{from_}\n{to}\n".encode())

    def digest(id_: bytes | None, body: bytes) -> str:
        whole = begun.copy()
        whole.update((id_ or b"") + b"\n" + body)
        return whole.hexdigest()[:DIGEST_DIGITS]

    return digest


def hash_address(address: str, key: bytes) -> str:
    """Keyed hash of an address: its scheme, a colon, 24 hex digits; only the digits where there is no scheme.

    Equal addresses stay equal, however they are written, and nobody without the key learns which. Policies ask for
    schemes, and a scheme names nobody.
    """
    scheme = ""
    with suppress(PeerError):  # no address: hashed as it is
        address = canonical_key(address)
        scheme = scheme_of(address)
    digits = blake2b(address.encode(), digest_size=ADDRESS_HASH_BYTES, key=key).hexdigest()
    return f"{scheme}:{digits}" if scheme else digits


def hash_addresses_in(text: str, hashed: Callable[[str], str]) -> str:
    """A text, JSON for example, with `hashed` of each address in it in place of the address."""
    return _ADDRESS_IN_TEXT.sub(lambda found: hashed(found[0]), text)


def address_key(secret: bytes) -> bytes:
    """The key of a node's `hash_address`, from the secret of its data folder."""
    return sha256(b"trapezoid addresses\0" + secret).digest()


_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_RLE_BLOCK = 1
_RESERVED_BLOCK = 3
_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"


def frame_end(data: bytes, start: int) -> int | None:
    """Find the end of the Zstandard frame at `start`; None if torn or no frame. Source: RFC 8878, section 3.1.1."""
    if data[start : start + 4] != _FRAME_MAGIC or len(data) < start + 5:
        return None
    descriptor = data[start + 4]
    single_segment = descriptor >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    position = start + 5 + (1 - single_segment) + dictionary_bytes + content_size_bytes
    is_last = False
    while not is_last:
        header = int.from_bytes(data[position : position + _BLOCK_HEADER_BYTES], "little")
        block_type, block_bytes = header >> 1 & 3, header >> 3
        if position + _BLOCK_HEADER_BYTES > len(data) or block_type == _RESERVED_BLOCK:
            return None
        is_last = bool(header & 1)
        position += _BLOCK_HEADER_BYTES + (1 if block_type == _RLE_BLOCK else block_bytes)
    end = position + (_CHECKSUM_BYTES if descriptor >> 2 & 1 else 0)
    return end if end <= len(data) else None
