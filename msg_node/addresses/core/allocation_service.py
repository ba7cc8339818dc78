"""`domain://msg-node.<d>/address-allocation` and its two phase-1 forms. Source: message specification, section 7."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from msg_node.addresses.core.allocation import Block, OwnedRow
from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.resources import (
    Members,
    child_paths,
    is_reserved,
    object_of,
    object_or_refuse,
    text_of,
    texts_of,
)
from msg_node.kernel.results import answer_each
from msg_node.kernel.service import Answer, ServiceRequest
from protofly import codec
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import ALLOCATION_NUMBER

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,63}")
_REMEMBERED_BODIES = 256
_REMEMBERED_BYTES = 512


class _Wanted(NamedTuple):
    """The body of one `create`."""

    scheme: str
    number: int
    allocation_key: str


class AllocationService:
    """Gives addresses to sessions and takes them back.

    Args:
        state: The durable state.
        fixed_scheme: The scheme that this end-point always gives; "" lets the request choose.
        default_scheme: The scheme when the request names none.
    """

    def __init__(self, state: AddressTables, *, fixed_scheme: str = "", default_scheme: str = "hyperty") -> None:
        self._state = state
        self._fixed_scheme = fixed_scheme
        self._default_scheme = default_scheme
        self._wanted = lru_cache(_REMEMBERED_BODIES)(self._read_create)

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `create`, `delete` and `read`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, TOO_LARGE, QUOTA, POOL_EMPTY, POLICY.
        """
        if request.caller.is_link:
            raise PeerError(Code.POLICY, "addresses of this domain are for its own runtimes")
        match request.message.type:
            case "create":
                return self._allocate(request)
            case "delete":
                return self._release(request)
            case "read":
                return self._read(request)
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows create, delete and read")

    def _allocate(self, request: ServiceRequest) -> Answer:
        body, caller = request.message.body, request.caller
        wanted = self._wanted(body) if len(body) <= _REMEMBERED_BYTES else self._read_create(body)
        if caller.is_guest:
            self._state.guests.check_quota(caller.number, wanted.number)
        block = Block(
            wanted.scheme, request.domain, wanted.number, wanted.allocation_key, request.seed, caller.is_guest
        )
        return Answer(value={"allocated": self._state.owners.allocate(caller.number, block)})

    def _read_create(self, body: bytes) -> _Wanted:
        """Read the body of a `create`. Results for short bodies are cached: runtimes send the same ones again."""
        members = codec.request_members(body)
        value = object_or_refuse(members, "value")
        return _Wanted(
            self._scheme(members, value),
            _number(value.get("number", members.get("number", 1))),
            _key_or_text(text_of(value, "allocationKey") or text_of(members, "allocationKey")),
        )

    def _scheme(self, members: Members, value: Members) -> str:
        if self._fixed_scheme:
            return self._fixed_scheme
        scheme = members.get("scheme")
        if scheme is None:
            scheme = value.get("scheme")
        if scheme is None:
            return self._default_scheme
        if not isinstance(scheme, str) or not _SCHEME.fullmatch(scheme) or is_reserved(scheme):
            raise PeerError(Code.BAD_BODY, "addresses of this scheme are not given out")
        return scheme

    def _release(self, request: ServiceRequest) -> Answer:
        """Read `delete` as section 7.3 says: list and key, block before address, own blocks before those of others."""
        resource, texts = _named(request.members)
        owners, own = self._state.owners, self._state.sessions.of_runtime(request.caller.number)
        others = self._releasable(request)
        former, released = set(own), []
        if resource:
            key = _key_or_text(resource)
            released = owners.release_block(own, key)
            if not released:
                former.update(sid for sid in others if owners.block(sid, key))
                released = owners.release_block(former, key)
            texts += [] if released else [resource]
        results: dict[str, Code | None] = {}
        for text in texts:
            key = _key_or_text(text)
            holders = own | (others & {owners.owner(key)})
            former |= holders
            keys = owners.release(holders, key)
            released += keys or []
            results[text] = Code.NOT_OWNER if keys is None or key in request.elsewhere else None
        self._silence(former, released)
        return answer_each(request.members, results)

    def _read(self, request: ServiceRequest) -> Answer:
        """Answer what a session owns; operators may name a runtime, an address of one, or a domain with guests here."""
        sid: int | None = request.caller.number
        resource = text_of(request.members, "resource")
        if resource and request.caller.is_operator:
            guests = self._state.guests.of(resource)
            if guests:
                leased = [_shown(row) for one in sorted(guests) for row in self._state.owners.owned(one)]
                return Answer(value={"resources": leased, "limit": self._state.guests.per_domain})
            key = _key_or_text(resource)
            sid = self._state.owners.owner(key) or self._state.sessions.below(key)
        owned = [] if sid is None else self._state.owners.owned(sid)
        return Answer(value={"resources": [_shown(row) for row in owned]})

    def _releasable(self, request: ServiceRequest) -> frozenset[int]:
        """Sessions of other runtimes whose addresses the caller may release: for operators all of them.

        Where releasing is not strict, any runtime of ours may release for those that proved nothing.
        Source: message specification, section 7.3, rule 4.
        """
        if request.caller.is_operator:
            return frozenset(session.sid for session in self._state.sessions)
        if self._state.rules.strict_release or request.caller.is_guest:
            return frozenset()
        return frozenset(session.sid for session in self._state.sessions if not session.proof.credential)

    def _silence(self, sids: Collection[int], released: list[str]) -> None:
        """End subscriptions of former owners to what they released."""
        for sid in sids:
            for key in released if self._state.listeners.count(sid) else ():
                self._state.listeners.remove_at(sid, key)


def named_for_release(members: Members) -> list[str]:
    """Read the addresses to release from a `delete`, and the key of a block if named. Raises PeerError: BAD_BODY."""
    resource, texts = _named(members)
    return [*texts, resource] if resource else texts


def _named(members: Members) -> tuple[str, list[str]]:
    """The resource, which is an address or the key of a block, and the addresses that are listed. Raises PeerError."""
    value = object_of(members, "value")
    listed = texts_of(members, "childrenResources", "resources")
    listed += texts_of(value, "childrenResources", "allocated")
    resource = text_of(members, "resource", "allocationKey") or text_of(value, "resource", "allocationKey")
    if not listed and not resource:
        raise PeerError(Code.BAD_BODY, "neither a key nor addresses to release")
    return resource, child_paths(resource, listed) if resource else [text for text in listed if ":" in text]


def _shown(row: OwnedRow) -> dict[str, object]:
    shown: dict[str, object] = {"url": row.url, "origin": row.origin.value}
    if row.allocation_key:
        shown["allocationKey"] = row.allocation_key
    return {**shown, "guest": True} if row.is_guest else shown


def _number(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(ALLOCATION_NUMBER)):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= ALLOCATION_NUMBER:
        raise PeerError(Code.BAD_BODY, f"number is 1 to {ALLOCATION_NUMBER}")
    return value


def _key_or_text(text: str) -> str:
    """Allocation keys are mostly runtime addresses: both spellings of one are the same key.

    Any other text is a key too.
    """
    try:
        return canonical_key(text)
    except PeerError:
        return text
