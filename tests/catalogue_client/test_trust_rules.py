"""The rules of trust at their boundaries: one second, one version, one byte too many or too few."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from catalogue_client.core import trust as rules
from catalogue_client.core.freshness import REFRESH_SHARE, documents_are_fresh, freshness
from catalogue_client.core.location import Location
from catalogue_client.core.state import DomainTrust, HeldUpdate, StubMark, TrustAnchor, TrustState, raised
from catalogue_client.core.verify import (
    ManifestRules,
    PermissionsHeldError,
    PermissionsPolicy,
    accept_manifest,
    approve,
    check_module,
    growth,
    is_newest_mark,
    judge_running,
    make_stub,
)
from protofly import limits
from protofly.documents import LIVE_TYPE, DocumentBundle, Permissions, Revoked, TrustLevel, decode_envelope, decode_live
from protofly.errors import Code, PeerError
from tests.support.repository import DAY, MODULE, START, PublishedDomain, moment

SKEW = limits.CLOCK_SKEW_SECONDS


class Published(PublishedDomain):
    """A domain whose documents are judged without a client, a store or a network."""

    def begin(self) -> TrustState:
        return rules.begin(self.root_raw, domain=self.domain, version=self.root.version, anchor=TrustAnchor.web())

    def accept_live(self, state: TrustState | None = None, *, now: float = START) -> TrustState:
        return rules.accept_live(state or self.begin(), self.root, self.files[self.well_known], now=now)[1]

    @property
    def well_known(self) -> str:
        return self.location.well_known_url

    @property
    def trust(self) -> DomainTrust:
        return DomainTrust(
            domain=self.domain,
            level=TrustLevel.WEB,
            root=self.root,
            live=self.live,
            live_envelope=self.files[self.well_known],
            location=self.location,
            fetched_at=START,
            fresh_until=START + DAY,
            refresh_at=START + DAY,
            expires_at=self.live.expires.timestamp(),
        )

    def accept_manifest(
        self, state: TrustState | None = None, *, now: float = START, policy: PermissionsPolicy | None = None
    ) -> TrustState:
        by = ManifestRules(our_domain="a.example", policy=policy or PermissionsPolicy(), now=now)
        reference = self.live.stubs["default"]
        return accept_manifest(state or self.accept_live(), self.trust, reference, self.manifest_raw, by)[1]


@pytest.fixture
def b() -> Published:
    return Published()


def code_of(call: Any) -> Code:
    with pytest.raises(PeerError) as caught:
        call()
    assert caught.value.domain == "b.example"
    return caught.value.code


# Sizes and versions.


@pytest.mark.parametrize("more", [0, 1])
def test_a_document_may_have_exactly_its_most_bytes(b: Published, more: int) -> None:
    raw = b.files[b.well_known]

    def opened() -> object:
        return rules.open_envelope(raw, LIVE_TYPE, domain="b.example", max_bytes=len(raw) - more)

    if more:
        assert code_of(opened) is Code.DOCUMENT_TOO_LARGE
    else:
        assert opened() == decode_envelope(raw)


@pytest.mark.parametrize(("ahead", "code"), [(-1, Code.ROLLBACK), (limits.ROOT_STEPS + 1, Code.ROOT_CHAIN)])
def test_a_root_is_neither_older_nor_out_of_reach(b: Published, ahead: int, code: Code) -> None:
    state = msgspec.structs.replace(b.begin(), root_version=10)
    assert code_of(lambda: rules.check_chain_length(state, 10 + ahead)) is code
    for reachable in (0, 1, limits.ROOT_STEPS):
        rules.check_chain_length(state, 10 + reachable)


@pytest.mark.parametrize("version", [0, -1, 2**53 + 1, 10**30, "1", None])
def test_a_claimed_root_version_out_of_range_is_malformed(b: Published, version: object) -> None:
    def claimed(value: object) -> bytes:
        return b.publish_live(payload=msgspec.json.encode({"root": {"version": value}}))

    assert code_of(lambda: rules.peek_root_version(claimed(version), domain="b.example")) is Code.DOCUMENT_MALFORMED
    assert [rules.peek_root_version(claimed(one), domain="b.example") for one in (1, 2**53)] == [1, 2**53]


def test_deep_nesting_in_place_of_a_claim_is_malformed(b: Published) -> None:
    raw = b.publish_live(payload=b'{"root":' + b"[" * 5000)
    assert code_of(lambda: rules.peek_root_version(raw, domain="b.example")) is Code.DOCUMENT_MALFORMED


def test_a_first_root_of_another_version_is_refused(b: Published) -> None:
    for version in (0, 2):
        call = lambda version=version: rules.begin(  # noqa: E731
            b.root_raw, domain="b.example", version=version, anchor=TrustAnchor.web()
        )
        assert code_of(call) is Code.ROOT_CHAIN


@pytest.mark.parametrize(
    ("serial", "digest", "code"),
    [
        (4, "x", Code.ROLLBACK),
        (5, "y", Code.ROLLBACK),
        (5 + limits.SERIAL_JUMP + 1, "x", Code.FAST_FORWARD),
    ],
)
def test_a_serial_number_goes_on_by_no_more_than_a_jump(serial: int, digest: str, code: Code) -> None:
    def check(one: int, sha256: str, mark: tuple[int, str] = (5, "x")) -> None:
        rules.check_serial(one, sha256, mark, what="it", domain="b.example")

    assert code_of(lambda: check(serial, digest)) is code
    check(5, "x")
    check(6, "y")
    check(5 + limits.SERIAL_JUMP, "y")
    check(10**12, "y", (0, ""))  # nothing was seen yet


# Times.


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"issued": moment(START + SKEW)}, None),
        ({"issued": moment(START + SKEW + 0.001)}, Code.ISSUED_IN_FUTURE),
        ({"expires": moment(START + 0.001)}, None),
        ({"expires": moment(START)}, Code.DOCUMENT_EXPIRED),
        ({"expires": moment(START + limits.LIVE_VALIDITY_SECONDS)}, None),
        ({"expires": moment(START + limits.LIVE_VALIDITY_SECONDS + 0.001)}, Code.VALIDITY_TOO_LONG),
    ],
)
def test_times_of_a_live_document_hold_to_the_moment(b: Published, changes: dict[str, Any], code: Code | None) -> None:
    issued = changes.get("issued", moment(START))
    b.publish_live(**{"issued": issued, "expires": moment(issued.timestamp() + DAY), **changes})
    if code is None:
        assert b.accept_live().live_serial == b.live_serial
    else:
        assert code_of(b.accept_live) is code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"issued": moment(START + SKEW)}, None),
        ({"issued": moment(START + SKEW + 0.001)}, Code.ISSUED_IN_FUTURE),
        ({"expires": moment(START + 0.001)}, None),
        ({"expires": moment(START)}, Code.DOCUMENT_EXPIRED),
    ],
)
def test_times_of_a_root_hold_to_the_moment(b: Published, changes: dict[str, Any], code: Code | None) -> None:
    b.publish_root(**changes)
    if code is None:
        rules.check_root_current(b.root, START)
    else:
        assert code_of(lambda: rules.check_root_current(b.root, START)) is code
        b.publish_live()
        assert code_of(b.accept_live) is code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"released": moment(START + SKEW)}, None),
        ({"released": moment(START + SKEW + 0.001)}, Code.ISSUED_IN_FUTURE),
        ({"expires": moment(START + 0.001)}, None),
        ({"expires": moment(START)}, Code.DOCUMENT_EXPIRED),
        ({"for_domains": ["c.example"]}, Code.WRONG_DOMAIN),
        ({"for_domains": ["c.example", "a.example"]}, None),
        ({"for_domains": ["*"]}, None),
    ],
)
def test_a_manifest_holds_to_the_moment_and_for_whom_it_names(
    b: Published, changes: dict[str, Any], code: Code | None
) -> None:
    b.publish_stub(**changes)
    if code is None:
        assert b.accept_manifest().stubs["bNodeStub"].serial == 1
    else:
        assert code_of(b.accept_manifest) is code


def test_our_clock_is_wrong_when_it_is_behind_what_was_accepted(b: Published) -> None:
    state = b.accept_live()
    assert state.newest_issued == START
    rules.check_clock(state, START - SKEW)
    assert code_of(lambda: rules.check_clock(state, START - SKEW - 0.001)) is Code.CLOCK_WRONG
    rules.check_clock(None, limits.EARLIEST_CLOCK_SECONDS)
    with pytest.raises(PeerError) as caught:
        rules.check_clock(None, limits.EARLIEST_CLOCK_SECONDS - 1)
    assert (caught.value.code, caught.value.domain) == (Code.CLOCK_WRONG, "")
    with pytest.raises(PeerError, match=", by 100 s;"):
        rules.check_clock(state, START - SKEW - 100)
    b.publish_live(issued=moment(START - 100))
    assert b.accept_live(state).newest_issued == START  # never goes back


# Marks.


def test_a_cached_live_document_raises_the_mark_only_if_it_is_newer_and_signed(b: Published) -> None:
    b.publish_live(serial=7)
    state = b.accept_live()

    def serial_after(raw: bytes) -> int:
        bundle = DocumentBundle(domain="b.example", live=raw, fetched_at=0, fresh_until=0)
        after = rules.raise_marks(state, b.root, bundle)
        assert (after == state) is (after.live_serial == state.live_serial)
        return after.live_serial

    assert serial_after(b.publish_live(serial=6)) == 7
    assert serial_after(b.publish_live(serial=7, expires=moment(START + DAY))) == 7  # and keeps the hash that was seen
    assert serial_after(b.publish_live(serial=9, signed_by=(b.keys["P1"],))) == 7
    assert serial_after(b"no document") == 7
    assert serial_after(b.publish_live(serial=8)) == 8


def test_marks_of_rotated_keys_are_forgotten_and_their_permissions_are_not(b: Published) -> None:
    state = b.accept_manifest()
    b.rotate_root(live_keys=("L1", "L2"), pkg_keys=("P1", "P2"))
    kept = rules.advance(state, b.root_raw)
    assert (kept.live_serial, kept.stubs) == (state.live_serial, state.stubs)
    b.rotate_root(live_keys=("L2",), pkg_keys=("P1", "P2"))
    lost = rules.advance(kept, b.root_raw)
    assert (lost.live_serial, lost.live_sha256, lost.stubs) == (0, "", state.stubs)
    b.rotate_root(live_keys=("L2",), pkg_keys=("P2",))
    mark = rules.advance(lost, b.root_raw).stubs["bNodeStub"]
    assert (mark.serial, mark.manifest_sha256) == (0, "")
    assert mark.permissions == state.stubs["bNodeStub"].permissions


def test_each_key_set_is_remembered_once_and_the_newest_stands_last(b: Published) -> None:
    state = b.begin()
    first = b.fingerprint
    b.rotate_root(root_keys=("K2",))
    second = b.fingerprint
    state = rules.advance(state, b.root_raw)
    assert state.fingerprints == [first, second]
    b.rotate_root(root_keys=("K1",))
    state = rules.advance(state, b.root_raw)
    assert state.fingerprints == [second, first]
    assert rules.strengthen(state, TrustAnchor.web()) == state
    pinned = rules.strengthen(state, TrustAnchor(level=TrustLevel.PINNED, fingerprint=second))
    assert pinned.level is TrustLevel.PINNED
    assert rules.strengthen(pinned, TrustAnchor.web()).level is TrustLevel.PINNED
    wrong = TrustAnchor(level=TrustLevel.PINNED, fingerprint="x" * 43)
    assert code_of(lambda: rules.strengthen(state, wrong)) is Code.FINGERPRINT_MISMATCH


# Permissions, modules, revocation.


def test_an_approval_ends_the_wait_of_its_stub_and_of_no_other(b: Published) -> None:
    b.publish_stub(permissions=Permissions(connect=["mn"], storage_bytes=1))
    with pytest.raises(PermissionsHeldError) as caught:
        b.accept_manifest()
    held = caught.value.state
    assert held.held["bNodeStub"].excess == ["storage_bytes 1"]
    assert held.stubs == {}
    other = msgspec.structs.replace(held, held={**held.held, "other": held.held["bNodeStub"]})
    approved = approve(other, "bNodeStub")
    assert set(approved.held) == {"other"}
    accepted = b.accept_manifest(approved)
    assert accepted.stubs["bNodeStub"].serial == 1
    assert accepted.stubs["bNodeStub"].approved == [held.held["bNodeStub"].manifest_sha256]
    with pytest.raises(KeyError):
        approve(approved, "bNodeStub")


def test_an_accepted_update_waits_no_more_and_those_of_other_stubs_do(b: Published) -> None:
    waiting = HeldUpdate(manifest_sha256="0" * 64, serial=2, excess=["auth"])
    state = msgspec.structs.replace(b.accept_live(), held={"bNodeStub": waiting, "other": waiting})
    assert b.accept_manifest(state).held == {"other": waiting}


def test_what_is_beyond_policy_and_predecessor_is_said_once(b: Published) -> None:
    state = b.accept_manifest()
    b.publish_stub(serial=2, permissions=Permissions(connect=["mn"], storage_bytes=1, random=True))
    with pytest.raises(PermissionsHeldError) as caught:
        b.accept_manifest(b.accept_live(state))
    assert caught.value.state.held["bNodeStub"].excess.count("storage_bytes 1") == 1


def test_a_stub_of_a_new_name_gets_no_more_than_its_domain_was_granted(b: Published) -> None:
    b.publish_stub(permissions=Permissions(connect=["mn"], auth=False))
    state = b.accept_manifest()
    b.publish_stub(name="another", permissions=Permissions(connect=["mn"], auth=True))
    with pytest.raises(PermissionsHeldError) as caught:
        b.accept_manifest(b.accept_live(state))
    held = caught.value.state
    assert (held.held["another"].excess, set(held.stubs)) == (["auth"], {"bNodeStub"})
    assert set(b.accept_manifest(approve(held, "another")).stubs) == {"another", "bNodeStub"}


def test_a_stub_of_a_new_name_with_an_endpoint_of_its_own_is_accepted(b: Published) -> None:
    b.publish_stub(permissions=Permissions(connect=["mn"]))
    state = b.accept_manifest()
    b.publish_stub(name="another", permissions=Permissions(connect=["other"]))
    assert set(b.accept_manifest(b.accept_live(state)).stubs) == {"another", "bNodeStub"}


def test_documents_may_be_used_until_they_are_fresh_no_longer(b: Published) -> None:
    assert b.trust.is_fresh(b.trust.fresh_until - 0.001)
    assert not b.trust.is_fresh(b.trust.fresh_until)


def test_what_is_held_is_not_the_newest_mark_although_its_hash_is(b: Published) -> None:
    state = b.accept_manifest()
    stub = make_stub(b.trust, b.manifest, b.manifest_raw, MODULE)
    assert is_newest_mark(state, stub)
    assert not is_newest_mark(b.accept_live(), stub)
    assert not is_newest_mark(with_held_update(state), stub)
    older = StubMark(serial=1, manifest_sha256="0" * 64, permissions=Permissions())
    assert not is_newest_mark(msgspec.structs.replace(state, stubs={stub.name: older}), stub)


def with_held_update(state: TrustState) -> TrustState:
    update = HeldUpdate(manifest_sha256="0" * 64, serial=2, excess=["auth"])
    return msgspec.structs.replace(state, held={"bNodeStub": update})


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (MODULE + b"\0", Code.DIGEST_MISMATCH),
        (MODULE[:-1], Code.DIGEST_MISMATCH),
        (MODULE[:-1] + b"\1", Code.DIGEST_MISMATCH),
        (b"", Code.DIGEST_MISMATCH),
    ],
)
def test_a_module_is_the_one_that_the_manifest_names(b: Published, module: bytes, code: Code) -> None:
    assert code_of(lambda: check_module(module, b.manifest)) is code
    assert (
        code_of(lambda: make_stub(b.trust, b.manifest, b.manifest_raw, module)) is code
    )  # even if it was looked at before
    check_module(MODULE, b.manifest)
    assert make_stub(b.trust, b.manifest, b.manifest_raw, MODULE).module == MODULE


@pytest.mark.parametrize(("ours", "theirs"), [(5.0, 9.0), (9.0, 5.0)])
def test_marks_of_another_node_never_bring_the_newest_time_of_issue_back(ours: float, theirs: float) -> None:
    one, other = (
        TrustState(domain="b.example", level=TrustLevel.WEB, root_version=1, live_serial=serial, newest_issued=issued)
        for serial, issued in ((1, ours), (2, theirs))
    )
    found = raised(one, other)
    assert found is not None
    assert (found.live_serial, found.newest_issued) == (2, 9.0)


def test_a_named_module_that_is_no_webassembly_or_too_large_is_refused(b: Published) -> None:
    b.publish_stub(code=b"\0asm\x02\0\0\0" + MODULE[8:])
    assert code_of(lambda: check_module(b.code, b.manifest)) is Code.MODULE_MALFORMED
    b.publish_stub(code=MODULE)
    for size, code in ((limits.MODULE_BYTES, Code.DIGEST_MISMATCH), (limits.MODULE_BYTES + 1, Code.MODULE_LIMITS)):
        named = msgspec.structs.replace(b.manifest.module, size=size)
        large = msgspec.structs.replace(b.manifest, module=named)
        assert code_of(lambda large=large: check_module(MODULE, large)) is code


@pytest.mark.parametrize(("minimum", "code"), [(5, None), (6, Code.REVOKED)])
def test_a_serial_at_the_minimum_goes_on_and_below_it_does_not(b: Published, minimum: int, code: Code | None) -> None:
    b.publish_stub(serial=5)
    stub = make_stub(b.trust, b.manifest, b.manifest_raw, MODULE)
    b.publish_live(revoked=Revoked(min_serial={"bNodeStub": minimum, "other": 100}))
    assert judge_running(stub, b.trust, now=START, grace_seconds=0.0) is code
    if code is None:
        assert b.accept_manifest().stubs["bNodeStub"].serial == 5
    else:
        assert code_of(b.accept_manifest) is code


def test_the_cache_keeps_a_manifest_that_is_used_again_as_the_newest(b: Published) -> None:
    stub = make_stub(b.trust, b.manifest, b.manifest_raw, MODULE)
    known = ((stub.manifest_sha256, b.manifest_raw), ("0" * 64, b"other"))
    trust = dataclasses.replace(b.trust, manifests=known)
    assert list(trust.bundle([stub]).manifests) == ["0" * 64, stub.manifest_sha256]
    assert list(trust.bundle().manifests) == [stub.manifest_sha256, "0" * 64]


# Freshness.


@pytest.mark.parametrize(
    ("max_age_seconds", "draw", "life_seconds"),
    [
        (0.0, 0.5, limits.DISCOVERY_MIN_SECONDS),
        (limits.DISCOVERY_MIN_SECONDS + 1, 0.5, limits.DISCOVERY_MIN_SECONDS + 1),
        (1e9, 0.5, limits.DISCOVERY_MAX_SECONDS),
        (None, 0.0, 0.9 * limits.DISCOVERY_DEFAULT_SECONDS),
        (None, 0.5, limits.DISCOVERY_DEFAULT_SECONDS),
        (None, 1.0, 1.1 * limits.DISCOVERY_DEFAULT_SECONDS),
    ],
)
def test_a_document_is_fresh_for_as_long_as_its_server_says_within_bounds(
    b: Published, max_age_seconds: float | None, draw: float, life_seconds: float
) -> None:
    live = msgspec.structs.replace(b.live, expires=moment(START + 30 * DAY))
    until, refresh_at = freshness(max_age_seconds, live, now=START, draw=draw)
    assert until == pytest.approx(START + life_seconds)
    assert refresh_at == pytest.approx(START + REFRESH_SHARE * life_seconds)
    soon = msgspec.structs.replace(b.live, expires=moment(START + 100))
    assert freshness(max_age_seconds, soon, now=START, draw=draw) == (START + 100, START + 80)


@pytest.mark.parametrize(
    ("fetched_at", "fresh_until", "is_fresh"),
    [
        (START, START + 1, True),
        (START, START, False),
        (START + SKEW, START + 2 * SKEW, True),
        (START + SKEW + 1, START + 2 * SKEW, False),
        (START - 1, START - 1 + limits.DISCOVERY_MAX_SECONDS, True),
        (START - 1, START + limits.DISCOVERY_MAX_SECONDS, False),
    ],
)
def test_times_that_no_fetch_can_have_made_are_not_believed(
    fetched_at: float, fresh_until: float, is_fresh: bool
) -> None:
    bundle = DocumentBundle(domain="b.example", live=b"", fetched_at=fetched_at, fresh_until=fresh_until)
    assert documents_are_fresh(bundle, START) is is_fresh


def test_the_line_goes_to_the_port_of_the_url_unless_another_is_said() -> None:
    for url, port in (("https://h.example/x", 443), ("http://h.example/x", 80), ("https://h.example:8444/x", 8444)):
        found = Location(domain="b.example", well_known_url=url, connect_host="c.example")
        assert found.connect_to == ("c.example", port)
        assert Location(domain="b.example", well_known_url=url, connect_port=1).connect_to == ("h.example", 1)
    nowhere = Location(domain="b.example", well_known_url="", connect_port=1)
    assert nowhere.connect_to == ("b.example", 1)


def test_a_live_document_is_remembered_by_its_payload(b: Published) -> None:
    state = b.accept_live()
    assert decode_live(decode_envelope(b.files[b.well_known]).payload, domain="b.example") == b.live
    assert rules.is_current_root(state, b.live.root)
    for wrong in (
        msgspec.structs.replace(b.live.root, version=2),
        msgspec.structs.replace(b.live.root, sha256="0" * 64),
    ):
        assert not rules.is_current_root(state, wrong)


MODEST = PermissionsPolicy(endpoints=frozenset({"mn"}), clock="monotonic", random=False, auth=False, storage_bytes=10)


@pytest.mark.parametrize(
    ("wanted", "excess"),
    [
        (Permissions(), []),
        (Permissions(connect=["mn"], clock="monotonic", storage_bytes=10), []),
        (Permissions(connect=["x", "mn", "y"]), ["connect x", "connect y"]),
        (Permissions(clock="wall"), ["clock wall"]),
        (Permissions(random=True), ["random"]),
        (Permissions(auth=True), ["auth"]),
        (Permissions(storage_bytes=11), ["storage_bytes 11"]),
    ],
)
def test_what_exceeds_a_policy_or_a_predecessor_is_said_in_words(wanted: Permissions, excess: list[str]) -> None:
    assert MODEST.excess(wanted) == excess
    before = Permissions(connect=["mn"], clock="monotonic", storage_bytes=10)
    assert growth(wanted, before) == excess
    everything = Permissions(connect=["x", "mn", "y"], clock="wall", random=True, auth=True, storage_bytes=11)
    assert growth(wanted, everything) == []
    assert PermissionsPolicy(storage_bytes=11).excess(wanted) == []


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        ([], ["tel:+49*"], ["tel:+49*"]),
        (["tel:+49*"], ["tel:+4930*", "tel:+4940*"], []),
        (["tel:+4930*"], ["tel:+49*"], ["tel:+49*"]),
        (["tel:+4930*", "sip://legacy.example"], ["tel:+49301*", "sip://legacy.example", "sip://x.example"], None),
    ],
)
def test_an_update_grows_by_ranges_that_no_former_range_holds(
    before: list[str], after: list[str], grown: list[str] | None
) -> None:
    grown = ["sip://x.example"] if grown is None else grown
    assert growth(Permissions(ranges=after), Permissions(ranges=before)) == [f"range {one}" for one in grown]
