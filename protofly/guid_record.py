"""The signed record of a GUID: which user identifiers its holder has, and at which domains.

Theory of operation. Global registries check little: anybody may store anything under a free name, and replay what was
true once. So a record is believed for what it proves by itself, in this order: it is small and has the one form that
records have; its GUID is the one that was asked for and follows from the key inside; that key signed it
(`read_record`). Then it is held against what was seen of the same GUID before, as a `Mark` (`advance`), and against the
clock and its own switches (`check_usable`).

`alg` says ES256 although the curve is secp256k1: nothing is chosen by the header, it is only compared.

Source: data formats, sections 4.2 to 4.4; message specification, section 12.4.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Meta, Struct

from protofly.errors import Code, PeerError
from protofly.guid import Encoding, derive_guid, is_signed, load_public_key, public_key_text, sign
from protofly.limits import GUID_FUTURE_SECONDS, GUID_RECORD_BYTES, GUID_RECORD_ENTRIES
from protofly.signatures import base64url, parse_strict


class Flaw(StrEnum):
    """The flaws that a record can have."""

    TOO_LARGE = "too-large"
    FORM = "form"
    HEADER = "header"
    DATASET = "dataset"
    GUID = "guid"
    KEY = "key"
    SIGNATURE = "signature"
    FUTURE = "future"
    OUTDATED = "outdated"
    CONFLICT = "conflict"
    REVOKED = "revoked"
    INACTIVE = "inactive"
    EXPIRED = "expired"


_CODES: Final = {
    Flaw.REVOKED: Code.RECORD_REVOKED,
    Flaw.INACTIVE: Code.RECORD_INACTIVE,
    Flaw.EXPIRED: Code.EXPIRED,
    Flaw.OUTDATED: Code.ROLLBACK,
}
"""Flaws that a reader gets as such; any other flaw makes the registry's answer a bad one.

Source: data formats, section 4.3, checks 5 to 7.
"""


class RecordError(PeerError):
    """A record is not to be believed, or says that it is of no use. `code` is the answer to a reader."""

    def __init__(self, flaw: Flaw, detail: str) -> None:
        super().__init__(_CODES.get(flaw, Code.BAD_REPLY), f"the record is not accepted: {detail}")
        self.flaw = flaw

    def of_writer(self) -> PeerError:
        """Return the same for a request to store the record: the requester is at fault."""
        match self.flaw:
            case Flaw.OUTDATED | Flaw.CONFLICT:
                return PeerError(Code.RECORD_OUTDATED, self.detail)
            case Flaw.TOO_LARGE:
                return PeerError(Code.TOO_LARGE, self.detail)
            case Flaw.REVOKED:
                return PeerError(Code.RECORD_REVOKED, self.detail)
        return PeerError(Code.BAD_BODY, self.detail)


class UserId(Struct, frozen=True):
    """One identifier of a user. `domain` is the one whose registry knows the user, "" where the record is silent."""

    uid: str
    domain: str = ""


class LegacyId(Struct, frozen=True, omit_defaults=True):
    """Address of the user in another system, for example a telephone number or a mail address."""

    type: str
    category: str
    id: str
    description: str = ""


class GuidRecord(Struct, frozen=True, kw_only=True):
    """A record that proves its GUID: `read_record` is the only one who makes it.

    `last_update_us` and `timeout_us` are microseconds since the Unix epoch; `digest` names the signed dataset;
    `is_complete`: it has the members without which registries refuse to store it.
    """

    guid: str
    user_ids: tuple[UserId, ...]
    legacy_ids: tuple[LegacyId, ...]
    last_update_us: int
    timeout_us: int
    is_active: bool
    is_revoked: bool
    is_complete: bool
    schema_version: int
    defaults: dict[str, str]
    public_key: str
    salt: str
    digest: str


class Mark(Struct, frozen=True):
    """Progress of the records of one GUID: time and digest of the newest one accepted, and if that revokes."""

    last_update_us: int
    digest: str
    is_revoked: bool = False


class _Payload(Struct, frozen=True, forbid_unknown_fields=True):
    data: str


class _WireUserId(Struct, frozen=True):
    domain: str = ""
    uid: str = ""
    uid_v1: str = msgspec.field(default="", name="uID")


class _WireDefaults(Struct, frozen=True):
    voice: str = ""
    chat: str = ""
    video: str = ""


class _WireDataset(Struct, frozen=True, kw_only=True):
    """Members as they were ever written: records of 2015 have no `schemaVersion` and no `defaults`."""

    guid: str
    salt: str
    public_key: str = msgspec.field(name="publicKey")
    user_ids: Annotated[list[str | _WireUserId], Meta(max_length=GUID_RECORD_ENTRIES)] = msgspec.field(name="userIDs")
    last_update: str = msgspec.field(name="lastUpdate")
    timeout: str
    revoked: Literal[0, 1]
    active: Literal[0, 1] = 1
    schema_version: Literal[1, 2] | None = msgspec.field(default=None, name="schemaVersion")
    legacy_ids: Annotated[list[LegacyId], Meta(max_length=GUID_RECORD_ENTRIES)] = msgspec.field(
        default_factory=list, name="legacyIDs"
    )
    defaults: _WireDefaults | None = None


_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_HEADER: Final = {"alg": "ES256"}


def read_record(jwt: str, *, guid: str = "") -> GuidRecord:
    """Believe what a record proves by itself. Some milliseconds of CPU once its form is right.

    Args:
        jwt: In compact form, as a registry gave it.
        guid: The one that was asked for; "" takes any.

    Raises:
        RecordError: TOO_LARGE, FORM, HEADER, DATASET, GUID, KEY or SIGNATURE.

    Source: data formats, section 4.3, checks 1 to 4.
    """
    if len(jwt) > GUID_RECORD_BYTES:
        raise RecordError(Flaw.TOO_LARGE, f"more than {GUID_RECORD_BYTES:,} characters")
    parts = jwt.strip(" \t\r\n").split(".")
    if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
        raise RecordError(Flaw.FORM, "not three parts of base64url")
    if _members(parts[0], "header") != _HEADER:
        raise RecordError(Flaw.HEADER, 'its header is not {"alg":"ES256"}')
    raw, wire = _dataset(parts[1])
    if guid and wire.guid != guid:
        raise RecordError(Flaw.GUID, "it is of another GUID than the one that was asked for")
    try:
        key = load_public_key(wire.public_key)
    except ValueError as exc:
        raise RecordError(Flaw.KEY, f"`publicKey`: {exc}") from exc
    if not is_signed(f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2], "signature"), key):
        raise RecordError(Flaw.SIGNATURE, "its key has not signed it")
    if derive_guid(wire.public_key, wire.salt) != wire.guid:
        raise RecordError(Flaw.GUID, "its GUID does not follow from its key and salt")
    return _record(wire, hashlib.sha256(raw).hexdigest())


def advance(record: GuidRecord, seen: Mark | None, *, now: float) -> Mark:
    """The mark to keep from now on; a record only ever goes forward, and a revocation stays.

    Args:
        record: One that proves its GUID.
        seen: What is kept of the same GUID, None for nothing.
        now: Seconds since the Unix epoch.

    Raises:
        RecordError: FUTURE, OUTDATED, CONFLICT (two datasets of one moment) or REVOKED (it was, and this one says
            it is not).

    Source: data formats, section 4.3, checks 6 to 8.
    """
    if seen is not None and seen.is_revoked and not record.is_revoked:
        raise RecordError(Flaw.REVOKED, "its GUID was revoked before")
    mark = Mark(record.last_update_us, record.digest, record.is_revoked)
    if record.is_revoked:  # however old it is: its holder has said it once
        return mark
    if record.last_update_us > (now + GUID_FUTURE_SECONDS) * 1e6:
        raise RecordError(Flaw.FUTURE, "its last update lies in the future; compare the clocks")
    if seen is not None and record.last_update_us < seen.last_update_us:
        raise RecordError(Flaw.OUTDATED, "a newer one of this GUID has been seen")
    if seen is not None and record.last_update_us == seen.last_update_us and record.digest != seen.digest:
        raise RecordError(Flaw.CONFLICT, "another one with the same last update has been seen")
    return mark


def check_usable(record: GuidRecord, *, now: float) -> None:
    """True if a record says that its holder can be found by it now; `now` is seconds since the Unix epoch.

    Raises:
        RecordError: REVOKED, INACTIVE or EXPIRED.

    Source: data formats, section 4.3, checks 5 and 6.
    """
    if record.is_revoked:
        raise RecordError(Flaw.REVOKED, "its GUID is revoked")
    if now * 1e6 >= record.timeout_us:
        raise RecordError(Flaw.EXPIRED, "its time is over (`timeout`)")
    if not record.is_active:
        raise RecordError(Flaw.INACTIVE, "its holder has switched it off (`active`)")


class Draft(Struct, frozen=True, kw_only=True):
    """Content of a dataset before it is signed by the holder of its GUID; times are RFC 3339 text with a zone."""

    salt: str
    user_ids: tuple[UserId, ...]
    last_update: str
    timeout: str
    legacy_ids: tuple[LegacyId, ...] = ()
    is_active: bool = True
    is_revoked: bool = False


def make_record(draft: Draft, key: ec.EllipticCurvePrivateKey, *, encoding: Encoding = "raw") -> str:
    """Write and sign the record of a key's GUID, in compact form."""
    public_key = public_key_text(key.public_key())
    dataset = {
        "schemaVersion": 2,
        "guid": derive_guid(public_key, draft.salt),
        "salt": draft.salt,
        "userIDs": draft.user_ids,
        "legacyIDs": draft.legacy_ids,
        "lastUpdate": draft.last_update,
        "timeout": draft.timeout,
        "publicKey": public_key,
        "active": int(draft.is_active),
        "revoked": int(draft.is_revoked),
        "defaults": _WireDefaults(),
    }
    return sign_dataset(msgspec.json.encode(dataset), key, encoding=encoding)


def sign_dataset(dataset: bytes, key: ec.EllipticCurvePrivateKey, *, encoding: Encoding = "raw") -> str:
    """Wrap a dataset as registries exchange it. Nothing about it is checked."""
    payload = msgspec.json.encode(_Payload(base64url(dataset)))
    text = f"{base64url(msgspec.json.encode(_HEADER))}.{base64url(payload)}"
    return f"{text}.{base64url(sign(text.encode(), key, encoding=encoding))}"


def merged_user_ids(old: Sequence[UserId], more: Sequence[UserId]) -> tuple[UserId, ...]:
    """User identifiers without repetition, in order; a later one replaces an earlier one of the same `uid`."""
    return tuple({one.uid: one for one in (*old, *more)}.values())


def _dataset(part: str) -> tuple[bytes, _WireDataset]:
    try:
        payload = msgspec.convert(_members(part, "payload"), _Payload)
    except msgspec.ValidationError as exc:
        raise RecordError(Flaw.FORM, 'its payload is not {"data": …}') from exc
    if not _PART.fullmatch(payload.data):
        raise RecordError(Flaw.FORM, "`data` is not base64url")
    raw = _decoded(payload.data, "data")
    try:
        return raw, msgspec.convert(parse_strict(raw), _WireDataset)
    except (ValueError, RecursionError) as exc:
        raise RecordError(Flaw.DATASET, str(exc)[:200]) from exc


def _record(wire: _WireDataset, digest: str) -> GuidRecord:
    return GuidRecord(
        guid=wire.guid,
        user_ids=tuple(_user_id(entry) for entry in wire.user_ids),
        legacy_ids=tuple(wire.legacy_ids),
        last_update_us=_microseconds(wire.last_update, "lastUpdate"),
        timeout_us=_microseconds(wire.timeout, "timeout"),
        is_active=bool(wire.active),
        is_revoked=bool(wire.revoked),
        is_complete=wire.schema_version is not None and wire.defaults is not None,
        schema_version=wire.schema_version or 1,
        defaults={} if wire.defaults is None else msgspec.to_builtins(wire.defaults),
        public_key=wire.public_key,
        salt=wire.salt,
        digest=digest,
    )


def _user_id(entry: str | _WireUserId) -> UserId:
    """Three ways to write one. Source: data formats, section 4.3."""
    if isinstance(entry, str):
        return UserId(entry)
    return UserId(entry.uid or entry.uid_v1, entry.domain)


def _microseconds(text: str, name: str) -> int:
    """A moment of RFC 3339, in microseconds since the Unix epoch."""
    if _MOMENT.fullmatch(text):
        try:
            since = datetime.fromisoformat(text.upper()) - _EPOCH
        except (ValueError, OverflowError):
            pass
        else:
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    raise RecordError(Flaw.DATASET, f"`{name}` is no date with time and zone")


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _members(part: str, name: str) -> dict[str, object]:
    try:
        members = parse_strict(_decoded(part, name))
    except ValueError as exc:
        raise RecordError(Flaw.FORM, f"its {name} is not JSON") from exc
    if not isinstance(members, dict):
        raise RecordError(Flaw.FORM, f"its {name} is no object")
    return members


def _decoded(part: str, name: str) -> bytes:
    bare = part.rstrip("=")
    try:
        return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except ValueError as exc:
        raise RecordError(Flaw.FORM, f"its {name} is not base64url") from exc
