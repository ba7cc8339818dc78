"""Owners of addresses, and the allocation service in all its forms."""

from __future__ import annotations

import hashlib
import itertools
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.addresses.core import allocation
from msg_node.addresses.core.allocation import Block, Owners, ancestors, is_below_any
from msg_node.kernel.changes import Journal
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.identifiers import identifiers
from msg_node.kernel.rules import Rules
from protofly.address import canonical_key, is_below
from protofly.errors import Code, PeerError
from tests.support.state_rig import ALLOCATION, DOMAIN, SM, StateRig

HYPERTY_ALLOCATION = f"domain://msg-node.{DOMAIN}/hyperty-address-allocation"
OBJECT_ALLOCATION = f"domain://msg-node.{DOMAIN}/object-address-allocation"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


def allocate(rig: StateRig, sid: int, number: int = 1, key: str = "", scheme: str = "hyperty") -> list[str]:
    value = {"number": number, **({"allocationKey": key} if key else {})}
    reply = rig.reply(sid, ALLOCATION, "create", {"scheme": scheme, "value": value})
    assert reply["code"] == 200, reply
    found = reply["value"]
    assert isinstance(found, dict)
    allocated = found["allocated"]
    assert isinstance(allocated, list)
    return allocated


def allocated_in(reply: dict[str, object]) -> list[str]:
    value = reply["value"]
    assert isinstance(value, dict)
    return list(value["allocated"])


def release(rig: StateRig, sid: int, body: dict[str, object]) -> dict[str, object]:
    return rig.reply(sid, ALLOCATION, "delete", body)


# Names.


def test_identifiers_are_uuids_that_follow_from_the_seed() -> None:
    first = list(itertools.islice(identifiers(b"a" * 32), 100))
    assert first == list(itertools.islice(identifiers(b"a" * 32), 100))
    assert len(set(first)) == 100
    assert all(UUID4.fullmatch(one) for one in first)
    assert first[0] != next(identifiers(b"b" * 32))


def test_identifiers_are_those_that_the_library_makes_of_the_same_bytes() -> None:
    seed = bytes(range(32))
    for number, name in enumerate(itertools.islice(identifiers(seed), 500)):
        digest = hashlib.blake2b(seed + number.to_bytes(8, "little"), digest_size=16).digest()
        assert name == str(uuid.UUID(bytes=digest if number else seed[:16], version=4))


@pytest.mark.parametrize("scheme", ["hyperty", "comm", "a+b", "urn.x"])
@pytest.mark.parametrize("domain", ["a.example", "A.Example", "a.example.", "b\u00fccher.example", "a.example:8443"])
def test_what_is_allocated_is_owned_under_its_canonical_key(scheme: str, domain: str) -> None:
    owners = Owners(Journal())
    for url in owners.allocate(7, Block(scheme, domain, 3, "", b"s" * 32)):
        assert owners.owner(canonical_key(url)) == 7


@pytest.mark.parametrize(
    ("key", "above"),
    [
        ("comm://d/o/children/n", ["comm://d/o/children", "comm://d/o"]),
        ("comm://d/o", []),
        ("comm://d", []),
        ("runtime:/alice/sm", ["runtime:/alice"]),
        ("plain", []),
        ("plain/a/b", ["plain/a"]),
        ("/a/b", ["/a"]),
        ("comm://d/o/", ["comm://d/o"]),
        ("comm://d/o#1", ["comm://d/o"]),
        ("comm://d/o?x=1/2#y", ["comm://d/o?x=1/2", "comm://d/o?x=1", "comm://d/o"]),
        ("comm://d#x/o", []),
        ("comm://d/#x", []),
        ("comm://d/?x=1/2", ["comm://d/?x=1"]),
        ("comm://d//o/1", ["comm://d//o"]),
        ("comm://d/o" + "/x" * 5000, [f"comm://d/o{'/x' * depth}" for depth in range(7, -1, -1)]),
    ],
)
def test_ancestors_are_cut_where_parts_begin_and_bounded(key: str, above: list[str]) -> None:
    assert list(ancestors(key)) == above


@pytest.mark.parametrize("below", ["comm://d/o/children/n", "comm://d/o/n", "comm://d/o/a/b/c"])
def test_owner_of_an_address_gives_back_what_stands_below_it(below: str) -> None:
    owners = Owners(Journal())
    assert owners.claim(1, below)
    assert owners.claim(1, "comm://d/o")
    assert owners.release([1], "comm://d/o") == ["comm://d/o", below]
    assert owners.count(1) == 0


@given(
    key=st.lists(st.sampled_from("ab"), min_size=1, max_size=6).map("/".join),
    bases=st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), max_size=3),
)
def test_below_any_of_some_addresses_is_below_one_of_them(key: str, bases: list[str]) -> None:
    full = [f"comm://d/{base}" for base in bases]
    assert is_below_any(f"comm://d/{key}", frozenset(full)) == any(is_below(f"comm://d/{key}", base) for base in full)


def test_names_are_the_first_that_follow_from_the_seed() -> None:
    block = Block("comm", DOMAIN, 3, "", bytes(32))
    names = [url.rpartition("/")[2] for url in Owners(Journal()).allocate(1, block)]
    assert names == list(itertools.islice(identifiers(bytes(32)), 3))


def test_used_name_is_not_given_out_again() -> None:
    owners = Owners(Journal())
    block = Block("hyperty", DOMAIN, 1, "", b"s" * 32)
    (first,) = owners.allocate(1, block)
    assert owners.release([1], first) == [first]
    (second,) = owners.allocate(2, block)  # the same randomness
    assert second != first


def test_the_quota_is_reached_with_the_last_address_and_not_before() -> None:
    owners = Owners(Journal(), per_session=3)
    assert all(owners.claim(1, f"comm://d/{number}") for number in range(3))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        owners.claim(1, "comm://d/3")
    assert owners.count(1) == 3


def test_an_address_is_written_as_the_domain_was_and_who_watches_owners_hears_of_each_change() -> None:
    owners, changes = Owners(Journal()), list[int]()
    owners.notified.append(lambda: changes.append(1))
    for domain in ("a.example", "A.Example"):
        (url,) = owners.allocate(1, Block("hyperty", domain, 1, "", b"s" * 32))
        assert url.startswith(f"hyperty://{domain}/")
    assert len(changes) == 2
    owners.claim(1, "comm://d/o")
    assert len(changes) == 3


def test_names_that_were_released_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "TOMBSTONES", 2)
    owners = Owners(Journal())
    names = owners.allocate(1, Block("hyperty", DOMAIN, 3, "", b"s" * 32))
    for name in names:
        owners.release([1], name)
    assert len(owners._used) == 2
    assert not owners._owned
    assert owners.allocate(1, Block("hyperty", DOMAIN, 1, "", b"s" * 32)) == names[:1]  # the oldest is forgotten


@pytest.mark.parametrize("awaits_claims", [True, False])
def test_a_claim_of_what_is_owned_or_claimed_already_is_heard_once(awaits_claims: bool) -> None:
    journal = Journal()
    owners = Owners(journal)
    owners.awaits_claims = awaits_claims
    assert owners.claim(1, "comm://d/o")
    journal.take()
    assert [owners.claim(sid, "COMM://d/o") for sid in (1, 2)] == [True, False]
    assert (journal.take(), owners.count(1), owners.count(2)) == ([], 1, 0)
    assert owners.owner("comm://d/o") == (None if awaits_claims else 1)


def test_addresses_for_which_something_waits_are_returned_once_they_have_an_owner() -> None:
    owners = Owners(Journal(), pools={"pool": ["pool://d/1"]})
    owners.arrivals.watched = ({"comm://d/a"}, {"comm://d/b", "pool://d/1"})
    assert owners.arrivals.take() == []
    for name in "abc":
        owners.claim(1, f"comm://d/{name}")
    owners.allocate(1, Block("pool", "d", 1, "", b"s" * 32))
    assert owners.arrivals.take() == ["comm://d/a", "comm://d/b", "pool://d/1"]
    assert owners.arrivals.take() == []


# Allocation.


def test_allocated_addresses_belong_to_the_session_at_once(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    allocated = allocate(rig, sid, 2)
    assert len(set(allocated)) == 2
    assert all(url.startswith(f"hyperty://{DOMAIN}/") and UUID4.search(url) for url in allocated)
    assert [rig.state.owners.owner(url) for url in allocated] == [sid, sid]


@pytest.mark.parametrize("number", [1, 100, "100"])
def test_numbers_within_bounds_are_served(rig: StateRig, number: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, ALLOCATION, "create", {"value": {"number": number}})
    assert reply["code"] == 200


@pytest.mark.parametrize("number", [0, 101, -1, "0", "101", "x", True, 1.5, None, [], "٣", "99999999999999"])
def test_numbers_out_of_bounds_are_refused(rig: StateRig, number: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, ALLOCATION, "create", {"value": {"number": number}})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")
    assert rig.state.owners.count(sid) == 0


@pytest.mark.parametrize("body", [None, {}, {"value": None}, {"value": {}}])
def test_missing_number_is_one_hyperty(rig: StateRig, body: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, ALLOCATION, "create", body)
    assert isinstance(reply["value"], dict)
    assert [url.partition(":")[0] for url in reply["value"]["allocated"]] == ["hyperty"]


@pytest.mark.parametrize(
    "scheme",
    [
        "domain",
        "global",
        "mn",
        "user",
        "runtime",
        "hyperty-runtime",
        "9x",
        "a b",
        "é",
        "Comm",
        "",
        5,
        ["comm"],
        {"comm": 1},
    ],
)
@pytest.mark.parametrize("is_inside", [False, True])
def test_reserved_and_broken_schemes_are_refused(rig: StateRig, scheme: object, is_inside: bool) -> None:
    sid, _ = rig.open("rt-ana", 1)
    body = {"value": {"scheme": scheme}} if is_inside else {"scheme": scheme, "value": {"scheme": "comm"}}
    reply = rig.reply(sid, ALLOCATION, "create", body)
    assert (reply["code"], reply["reason"]) == (400, "bad-body")
    assert rig.state.owners.count(sid) == 0


@pytest.mark.parametrize("value", ["2", 2, [2], True])
def test_value_that_is_no_object_is_refused(rig: StateRig, value: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, ALLOCATION, "create", {"scheme": "comm", "value": value})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")
    assert rig.state.owners.count(sid) == 0


@pytest.mark.parametrize(
    ("to", "body", "scheme"),
    [
        (HYPERTY_ALLOCATION, {"scheme": "comm", "value": {"number": 1}}, "hyperty"),
        (OBJECT_ALLOCATION, {"value": {"number": 1}}, "comm"),
        (OBJECT_ALLOCATION, {"scheme": "connection", "number": "1"}, "connection"),
        (HYPERTY_ALLOCATION, {"scheme": 7}, "hyperty"),
        (ALLOCATION, {"value": {"scheme": "ctxt"}}, "ctxt"),
        (ALLOCATION, {"scheme": None, "value": {"scheme": "ctxt"}}, "ctxt"),
    ],
)
def test_each_end_point_chooses_its_scheme(rig: StateRig, to: str, body: object, scheme: str) -> None:
    sid, _ = rig.open("rt-ana", 1)
    (reply,) = rig.ask(sid, to, "CREATE", body).replies
    assert reply.from_ == to
    assert f'["{scheme}://{DOMAIN}/' in reply.body.decode()


_ASKED = st.fixed_dictionaries(
    {},
    optional={
        "scheme": st.sampled_from(["hyperty", "comm", "runtime", "", None, 7, ["hyperty"]]),
        "number": st.sampled_from([1, "2", 0, True, 10_000, None]),
        "allocationKey": st.sampled_from(["k", "runtime://alpha.example/x/", "", None, 3]),
        "note": st.sampled_from(["", "x" * 600]),
    },
)


@given(outer=_ASKED, value=st.none() | st.just("text") | _ASKED)
def test_a_request_that_was_made_before_is_read_as_the_first_time(outer: dict[str, object], value: object) -> None:
    body = outer if value is None else {**outer, "value": value}
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    first, again = (rig.reply(sid, ALLOCATION, "create", body) for _ in range(2))
    assert {name: member for name, member in first.items() if name != "value"} == {
        name: member for name, member in again.items() if name != "value"
    }
    if first["code"] == 200:
        one, other = allocated_in(first), allocated_in(again)
        assert len(one) == len(other) == len({*one, *other}) / 2
        rows = {row.url: row for row in rig.state.owners.owned(sid)}
        assert len({(rows[url].allocation_key, url.partition("://")[0]) for url in one + other}) == 1


def test_alias_domain_gives_its_own_addresses(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, "domain://msg-node.alias.example/address-allocation", "create")
    assert isinstance(reply["value"], dict)
    assert reply["value"]["allocated"][0].startswith("hyperty://alias.example/")


def test_quota_refuses_the_whole_block() -> None:
    owners = Owners(Journal(), per_session=3)
    owners.allocate(1, Block("hyperty", DOMAIN, 2, "", b"1" * 32))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        owners.allocate(1, Block("hyperty", DOMAIN, 2, "", b"2" * 32))
    assert owners.count(1) == 2
    assert len(owners.allocate(2, Block("hyperty", DOMAIN, 2, "", b"3" * 32))) == 2


def test_link_gets_no_addresses(rig: StateRig) -> None:
    link = rig.state.links.number("beta.example")
    reply = rig.reply(link, ALLOCATION, "create", from_="runtime://beta.example/rt-bo")
    assert (reply["code"], reply["reason"]) == (403, "policy")


# Release.


def test_block_is_released_by_its_key(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    runtime = f"runtime://{DOMAIN}/rt-ana"
    allocated = allocate(rig, sid, 3, key=runtime)
    kept = allocate(rig, sid, 1)
    assert release(rig, sid, {"resource": f"hyperty-runtime://{DOMAIN}/rt-ana"})["code"] == 200
    assert [rig.state.owners.owner(url) for url in allocated] == [None] * 3
    assert rig.state.owners.owner(kept[0]) == sid
    assert rig.state.owners.owner(runtime) == sid  # the runtime address goes with its session only


def test_lists_are_released_nested_or_inside_value(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    one, two, three = allocate(rig, sid, 3)
    assert release(rig, sid, {"childrenResources": [[one]], "value": {"allocated": [two]}}) == {
        "code": 200,
        "description": "OK",
        "desc": "OK",
    }
    assert release(rig, sid, {"resources": three})["code"] == 200
    assert rig.state.owners.count(sid) == 0


def test_release_takes_sub_resources_and_listeners_with_it(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    (room,) = allocate(rig, sid, 1, scheme="comm")
    rig.reply(
        sid,
        SM,
        "subscribe",
        {"resources": [f"{room}/subscription", f"{room}/children/m", "comm://b.example/x/changes"]},
    )
    assert release(rig, sid, {"resource": room, "childrenResources": ["m"]})["code"] == 200
    assert rig.state.listeners.targets(f"{room}/subscription") == ()
    assert rig.state.listeners.targets("comm://b.example/x/changes") == (sid,)


@pytest.mark.parametrize("body", [{}, {"resource": ""}, {"childrenResources": []}, {"value": {}}])
def test_release_of_nothing_is_a_bad_body(rig: StateRig, body: dict[str, object]) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert release(rig, sid, body)["code"] == 400


@pytest.mark.parametrize("resource", ["hyperty://alpha.example/unknown", "some key", "runtime://alpha.example/rt-ana"])
def test_release_of_the_unknown_is_fine(rig: StateRig, resource: str) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = release(rig, sid, {"resource": resource})
    assert reply["code"] == 200
    assert "value" not in reply


@given(
    urls=st.lists(st.lists(st.sampled_from(["a", "b", "a-", "a0"]), min_size=1, max_size=3), max_size=12),
    released=st.lists(st.sampled_from(["a", "b", "a-"]), min_size=1, max_size=2),
)
def test_release_takes_what_is_at_or_below_an_address_and_nothing_else(
    urls: list[list[str]], released: list[str]
) -> None:
    owners = Owners(Journal())
    base = f"comm://{DOMAIN}/{'/'.join(released)}"
    claimed = dict.fromkeys([*(f"comm://{DOMAIN}/{'/'.join(path)}" for path in urls), base])
    for url in claimed:
        assert owners.claim(1, url)
    gone = [url for url in claimed if is_below(url, base)]
    assert sorted(owners.release({1}, base) or ()) == sorted(gone)
    assert [row.url for row in owners.owned(1)] == [url for url in claimed if url not in gone]


def test_release_takes_what_is_below_and_no_look_alike() -> None:
    owners = Owners(Journal())
    base = f"comm://{DOMAIN}/o"
    below = [f"{base}/a", f"{base}/a/b", f"{base}/z", f"{base}/\uffff"]
    others = [f"{base}-1/a", f"{base}.x/a", f"{base}0/a", f"comm://{DOMAIN}/a/o/x", f"comm://{DOMAIN}/p/a"]
    for sid, urls in ((1, [base, *below, *others]), (2, [f"{base}/theirs"])):
        for url in urls:
            assert owners.claim(sid, url)
    assert owners.release({1}, base) == [base, *below]
    assert [row.url for row in owners.owned(1)] == others
    assert owners.owner(f"{base}/theirs") == 2
    assert owners.release({1}, others[0]) == [others[0]]


def test_what_is_left_below_is_found_after_each_release() -> None:
    owners = Owners(Journal())
    base = f"comm://{DOMAIN}/o"
    below = [f"{base}/{name}" for name in "abcdef"]
    for url in (base, *below):
        assert owners.claim(1, url)
    for gone in (below[2], below[0], below[5]):
        assert owners.release({1}, gone) == [gone]
        assert owners.owner(gone) is None
    assert owners.claim(1, below[5])  # and what comes again is found as well
    assert owners.release({1}, base) == [base, below[1], below[3], below[4], below[5]]
    assert owners.count(1) == 0
    assert owners.claim(1, base)
    assert owners.release({1}, base) == [base]


def test_release_takes_what_is_below_after_a_restart_too(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    (room,) = allocate(rig, sid, 1, scheme="comm")
    below = [f"{room}/children/{name}" for name in ("a", "b", "c")]
    for url in below:
        assert rig.state.owners.claim(sid, url)
    assert rig.state.owners.release({sid}, below[1]) == [below[1]]
    rig.keep(rig.state.take_changes())
    again = rig.restarted()
    assert again.state.owners.release({sid}, room) == [room, below[0], below[2]]
    assert [again.state.owners.owner(url) for url in (room, *below)] == [None] * 4


def test_a_block_is_released_by_its_key_after_a_restart_too(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    block, kept = allocate(rig, sid, 3, key="mine"), allocate(rig, sid, 1, key="other")
    rig.keep(rig.state.take_changes())
    owners = rig.restarted().state.owners
    assert owners.block(sid, "mine") == sorted(block)
    assert owners.release_block([sid], "mine") == sorted(block)
    assert [owners.owner(url) for url in (*block, *kept)] == [None] * 3 + [sid]


def test_nobody_releases_what_belongs_to_another(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    (mine,) = allocate(rig, ana, 1, key="shared key")
    (hers,) = allocate(rig, eve, 1, key="shared key")
    reply = release(rig, eve, {"childrenResources": [mine], "resource": "shared key"})
    assert (reply["code"], reply["value"]) == (200, {"refused": [mine]})
    assert (rig.state.owners.owner(mine), rig.state.owners.owner(hers)) == (ana, None)


@pytest.mark.parametrize("is_strict", [True, False])
def test_strict_release_can_be_switched_off(is_strict: bool) -> None:
    rig = StateRig(rules=Rules(strict_release=is_strict))
    ana, _ = rig.open("rt-ana", 1)
    other, _ = rig.open("rt-other", 2)
    (mine,) = allocate(rig, ana, 1, key="block")
    release(rig, other, {"resource": "block"})
    assert (rig.state.owners.owner(mine) is None) is not is_strict


def test_lenient_release_spares_runtimes_with_a_credential_and_what_others_hold_below() -> None:
    proven = Credential(digest_of("ana"), f"runtime://{DOMAIN}/rt-ana", frozenset())
    rig = StateRig(credentials=[proven], rules=Rules(strict_release=False))
    ana, _ = rig.open("rt-ana", 1, {"credentials": {"kind": "bearer", "token": "ana"}})
    bo, _ = rig.open("rt-bo", 2)
    eve, _ = rig.open("rt-eve", 3)
    (proved,) = allocate(rig, ana, 1, key="block")
    (room,) = allocate(rig, bo, 1, scheme="comm")
    child = f"{room}/children/of-ana"
    assert rig.state.owners.claim(ana, child)
    rig.reply(ana, SM, "subscribe", {"resources": [f"{room}/changes"]})
    reply = release(rig, eve, {"childrenResources": [proved, room], "resource": "block"})
    assert (reply["code"], reply["value"]) == (200, {"refused": [proved]})
    assert [rig.state.owners.owner(key) for key in (proved, room, child)] == [ana, None, ana]
    assert rig.reply(eve, SM, "subscribe", {"resources": [proved]})["reason"] == "not-owner"
    assert rig.state.listeners.targets(f"{room}/changes") == (ana,)


def test_operator_releases_for_others() -> None:
    ops = Credential(digest_of("ops"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))
    rig = StateRig(credentials=[ops])
    ana, _ = rig.open("rt-ana", 1)
    operator, _ = rig.open("ops", 2, {"credentials": {"kind": "bearer", "token": "ops"}})
    (mine,) = allocate(rig, ana)
    assert release(rig, operator, {"resource": mine})["code"] == 200
    assert rig.state.owners.owner(mine) is None


def test_what_an_operator_releases_is_silent_for_its_owner_and_observers_hear_on() -> None:
    ops = Credential(digest_of("ops"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))
    rig = StateRig(credentials=[ops])
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    operator, _ = rig.open("ops", 3, {"credentials": {"kind": "bearer", "token": "ops"}})
    (room,) = allocate(rig, ana, key="block", scheme="comm")
    for sid in (ana, bo):
        rig.reply(sid, SM, "subscribe", {"resources": [f"{room}/changes"]})
    assert release(rig, operator, {"resource": "block"})["code"] == 200
    assert rig.state.owners.owner(room) is None
    assert rig.state.listeners.targets(f"{room}/changes") == (bo,)


def test_only_addresses_are_released_from_a_list_without_an_object_and_with_one_names_are_its_children(
    rig: StateRig,
) -> None:
    sid, _ = rig.open("rt-ana", 1)
    room, other = allocate(rig, sid, 2, scheme="comm")
    for child in (f"{room}/children/m", f"{room}/children/a/b:c"):
        assert rig.state.owners.claim(sid, child)
    reply = release(rig, sid, {"resources": ["m", other], "detail": True})
    assert reply["code"] == 200
    assert [rig.state.owners.owner(key) for key in (room, other, f"{room}/children/m")] == [sid, None, sid]
    assert release(rig, sid, {"resource": f"{room}/", "childrenResources": ["m", "a/b:c"]})["code"] == 200
    assert rig.state.owners.owned(sid) == []


def test_a_name_that_is_no_address_is_not_among_the_results(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    (room,) = allocate(rig, ana, scheme="comm")
    reply = release(rig, eve, {"resources": ["m", room, f"{room}/x"], "detail": True})
    assert reply["value"] == {
        "resources": [
            {"resource": room, "code": 403, "reason": "not-owner"},
            {"resource": f"{room}/x", "code": 200},
        ]
    }


def test_an_operator_reads_what_a_runtime_or_the_guests_of_a_domain_own() -> None:
    ops = Credential(digest_of("ops"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))
    visitor = Credential(digest_of("g"), "runtime://beta.example/*")
    rig = StateRig(credentials=[ops, visitor], allows_guests=True)
    ana, _ = rig.open("rt-ana", 1)
    operator, _ = rig.open("ops", 2, {"credentials": {"kind": "bearer", "token": "ops"}})
    rig.session_verb("open", "runtime://beta.example/g", 3, bearer="g")
    guest = rig.state.sessions.by_connection(3)
    assert guest is not None
    (mine,), (theirs,) = allocate(rig, ana), allocate(rig, guest)
    read = {
        resource: rig.reply(operator, ALLOCATION, "read", {"resource": resource})["value"]
        for resource in (f"runtime://{DOMAIN}/rt-ana", mine, "beta.example", "gamma.example")
    }
    own = {"resources": [{"url": mine, "origin": "allocated"}]}
    assert read == {
        f"runtime://{DOMAIN}/rt-ana": own,
        mine: own,
        "beta.example": {
            "resources": [{"url": theirs, "origin": "allocated", "guest": True}],
            "limit": rig.state.guests.per_domain,
        },
        "gamma.example": {"resources": []},
    }
    assert rig.reply(ana, ALLOCATION, "read", {"resource": "beta.example"})["value"] == own


def test_guests_of_a_domain_are_given_no_more_than_they_may_have_and_ours_are_not_counted() -> None:
    visitor = Credential(digest_of("g"), "runtime://beta.example/*")
    rig = StateRig(credentials=[visitor], allows_guests=True, rules=Rules(guest_addresses=2))
    ana, _ = rig.open("rt-ana", 1)
    rig.session_verb("open", "runtime://beta.example/g", 3, bearer="g")
    guest = rig.state.sessions.by_connection(3)
    assert guest is not None
    assert len(allocate(rig, ana, 3)) == 3
    assert rig.reply(guest, ALLOCATION, "create", {"value": {"number": 3}})["reason"] == "quota"
    assert len(allocate(rig, guest, 2)) == 2


@pytest.mark.parametrize("name", ["resource", "allocationKey"])
@pytest.mark.parametrize("is_inside", [True, False])
def test_a_block_is_named_in_the_body_or_its_value(rig: StateRig, name: str, is_inside: bool) -> None:
    sid, _ = rig.open("rt-ana", 1)
    allocate(rig, sid, 2, key="block")
    body: dict[str, object] = {name: "block"}
    assert release(rig, sid, {"value": body} if is_inside else body)["code"] == 200
    assert rig.state.owners.count(sid) == 0


def test_a_guest_releases_nothing_of_others_even_where_releasing_is_not_strict() -> None:
    visitor = Credential(digest_of("g"), "runtime://beta.example/*")
    rig = StateRig(credentials=[visitor], allows_guests=True, rules=Rules(strict_release=False))
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    rig.session_verb("open", "runtime://beta.example/g", 3, bearer="g")
    guest = rig.state.sessions.by_connection(3)
    assert guest is not None
    (mine,) = allocate(rig, ana)
    assert release(rig, guest, {"resource": mine})["value"] == {"refused": [mine]}
    assert rig.state.owners.owner(mine) == ana
    assert release(rig, bo, {"resource": mine})["code"] == 200


# Claims.


def test_first_claim_wins_and_holds_through_grace(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    url = f"hyperty://{DOMAIN}/self-made-71"
    assert rig.reply(ana, SM, "subscribe", {"resources": [url]})["code"] == 200
    assert rig.state.owners.owner(url) == ana
    rig.services.sessions.connection_lost(1, now=rig.now)
    reply = rig.reply(eve, SM, "subscribe", {"resources": [url]})
    assert (reply["code"], reply["reason"]) == (403, "not-owner")
    assert rig.state.listeners.targets(url) == (ana,)
    rig.now += 121
    rig.keep(rig.swept().changes)
    assert rig.reply(eve, SM, "subscribe", {"resources": [url]})["code"] == 200
    assert rig.state.owners.owner(url) == eve


def test_refused_claims_are_listed_among_several(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    taken, free = f"hyperty://{DOMAIN}/taken", f"hyperty://{DOMAIN}/free"
    rig.reply(ana, SM, "subscribe", {"resources": [taken]})
    reply = rig.reply(eve, SM, "subscribe", {"resources": [taken, free]})
    assert (reply["code"], reply["value"]) == (200, {"refused": [taken]})
    assert rig.state.owners.owner(free) == eve


def test_claims_beyond_the_quota_leave_nothing() -> None:
    rig = StateRig(addresses_per_session=2)
    sid, _ = rig.open("rt-ana", 1)
    reply = rig.reply(sid, SM, "subscribe", {"resources": [f"comm://{DOMAIN}/{n}" for n in range(3)]})
    assert (reply["code"], reply["reason"]) == (429, "quota")
    assert (rig.state.owners.count(sid), rig.state.listeners.count(sid)) == (0, 0)
