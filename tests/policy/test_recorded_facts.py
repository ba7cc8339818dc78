"""What a gate was shown can be shown to it again, from nothing but the columns of a record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from policy.core import recorded_facts
from policy.core.attributes import ATTRIBUTES
from policy.core.engine import Facts
from policy.core.model import RECIPIENT_PRESENCES, RECIPIENT_STATUSES, KnownRecipient
from policy.core.recorded_facts import (
    ADDRESS_FACTS,
    FACT_CHARS,
    IDENTITY_FACTS,
    MESSAGE_FACTS,
    AlikeFacts,
    FactsRecorder,
    record_facts,
    unrecorded,
)
from policy.core.session_class import SESSION_CLASSES, asked_about
from protofly.codec import build
from protofly.message import Message
from protofly.records import GateFacts, hash_address
from tests.support.policies import a_message, some_facts

KEY = b"k" * 32
EVERYTHING = frozenset(ATTRIBUTES)

domains = st.sampled_from(["a.example", "b.example", "alias.example"])
schemes = st.sampled_from(["hyperty", "comm", "hyperty-runtime", "HYPERTY", "user"])
addresses = st.builds("{}://{}/{}".format, schemes, domains, st.sampled_from(["x", "discovery", "sm", "Ana"]))
body_members = st.dictionaries(
    st.sampled_from(["class", "resource", "value"]),
    st.none()
    | st.integers()
    | st.sampled_from(["event", "action", "rpc", "", "/private/x", "ana", "x" * 300])
    | st.text(),
)
messages = st.builds(
    build,
    id=st.none() | st.integers() | st.text(min_size=1, max_size=300),
    type=st.sampled_from(["create", "update", "response", "event", "re_open", "nonsense"]),
    from_=addresses,
    to=addresses,
    body=st.none() | body_members,
)
facts_of_a_gate = st.builds(
    Facts,
    hook=st.sampled_from(["out", "in"]),
    message=messages,
    from_domain=domains,
    to_domain=domains,
    link_domain=st.just("b.example"),
    size_bytes=st.integers(1, 1 << 20),
    via_length=st.integers(0, 9),
    now=st.floats(1.7e9, 1.9e9),
    identity_verified=st.booleans(),
    identity_user=st.sampled_from(["", "ana@idp.example"]),
    identity_issuer=st.sampled_from(["", "idp.example"]),
    identity_groups=st.none() | st.frozensets(st.sampled_from(["staff", "night shift"])),
    session_roles=st.builds(
        asked_about, st.frozensets(st.sampled_from(["admin", "guest"])), st.sampled_from(["", *SESSION_CLASSES])
    ),
    auth=st.none() | st.booleans(),
    link_class=st.sampled_from(["node", "plain"]),
    recipients=st.none()
    | st.builds(
        KnownRecipient,
        st.sampled_from([None, *RECIPIENT_STATUSES]),
        st.sampled_from([None, *RECIPIENT_PRESENCES]),
    ),
)


@dataclass(frozen=True)
class Written:
    """The columns that a record of these facts has, through JSON and back."""

    role: Literal["out", "in"]
    facts: GateFacts | None
    packed: bytes | None
    again: Facts


def write(facts: Facts, reads: frozenset[str], *, is_hashed: bool = False) -> Written:
    message = facts.message
    role: Literal["out", "in"] = "out" if facts.hook == "out" else "in"
    source, target = ("a.example", "b.example") if role == "out" else ("b.example", "a.example")
    sender, recipient = (hash_address(one, KEY) if is_hashed else one for one in (message.from_, message.to))
    recorded = record_facts(facts, source, target, reads, is_hashed=is_hashed)
    packed = None if recorded is None else msgspec.json.encode(recorded)
    size_in, size_wire = (facts.size_bytes, None) if role == "out" else (1, facts.size_bytes)
    ts_us = int(facts.now * 1e6)
    alike = AlikeFacts.read(role, source, target, message.type, packed)
    again = alike.of(sender, recipient, size_in, size_wire, ts_us)
    return Written(role, recorded, packed, again)


def is_partial(written: Written) -> bool:
    return written.facts is not None and written.facts.partial


@given(facts=facts_of_a_gate, reads=st.frozensets(st.sampled_from(sorted(EVERYTHING))))
def test_every_fact_that_is_not_called_unrecorded_or_partial_reads_the_same_again(
    facts: Facts, reads: frozenset[str]
) -> None:
    written = write(facts, reads)
    if not is_partial(written):
        for name in EVERYTHING - unrecorded(reads):
            assert ATTRIBUTES[name].read(written.again) == ATTRIBUTES[name].read(facts), name


@given(facts=facts_of_a_gate, reads=st.frozensets(st.sampled_from(sorted(EVERYTHING))))
def test_where_addresses_are_hashed_every_fact_that_is_not_called_unrecorded_or_partial_reads_the_same_again(
    facts: Facts, reads: frozenset[str]
) -> None:
    written = write(facts, reads, is_hashed=True)
    if not is_partial(written):
        for name in EVERYTHING - unrecorded(reads, is_hashed=True):
            assert ATTRIBUTES[name].read(written.again) == ATTRIBUTES[name].read(facts), name


@given(facts=facts_of_a_gate, reads=st.frozensets(st.sampled_from(sorted(EVERYTHING))))
def test_where_addresses_are_hashed_what_policies_read_is_the_same_again_or_the_record_says_that_it_is_partial(
    facts: Facts, reads: frozenset[str]
) -> None:
    written = write(facts, reads, is_hashed=True)
    if not is_partial(written):
        for name in reads:
            assert ATTRIBUTES[name].read(written.again) == ATTRIBUTES[name].read(facts), name


@given(facts=facts_of_a_gate)
def test_where_addresses_are_hashed_facts_name_nobody(facts: Facts) -> None:
    packed = write(facts, EVERYTHING, is_hashed=True).packed or b"{}"
    members = json.loads(packed)
    assert not members.keys() & (IDENTITY_FACTS | ADDRESS_FACTS | {"resource", "msgId"})
    assert members.get("class", "rpc") in ("event", "action", "rpc", None)


@pytest.mark.parametrize("is_verified", [False, True])
@pytest.mark.parametrize("name", sorted(IDENTITY_FACTS))
def test_a_hidden_identity_is_missing_only_where_there_was_one(name: str, *, is_verified: bool) -> None:
    message = build(id=1, type="create", from_="hyperty://b.example/x", to="comm://a.example/y")
    facts = Facts("in", message, "b.example", "a.example", "b.example", 100, 2, 1.7e9, is_verified, "ana", "idp")
    recorded = record_facts(facts, "b.example", "a.example", frozenset({name}), is_hashed=True)
    assert recorded == GateFacts(via_length=2, identity_verified=is_verified, partial=is_verified)


def test_an_ordinary_message_has_no_facts_at_all() -> None:
    message = build(id=1, type="create", from_="hyperty://a.example/x", to="comm://b.example/y", body={"value": 1})
    facts = Facts("out", message, "a.example", "b.example", "b.example", 100, 0, 1.7e9)
    assert record_facts(facts, "a.example", "b.example", frozenset({"actionType", "resource", "class"})) is None


def test_what_policies_do_not_read_of_a_message_is_not_written() -> None:
    message = build(
        id="secret-id",
        type="create",
        from_="hyperty://a.example/x",
        to="comm://b.example/y",
        body={"resource": "/diary"},
    )
    facts = Facts("out", message, "a.example", "b.example", "b.example", 100, 0, 1.7e9)
    assert record_facts(facts, "a.example", "b.example", EVERYTHING - MESSAGE_FACTS) is None
    left_out = {"resource", "msgId", "session.class", "identity.groups", "dstStatus", "dstPresence"}
    assert unrecorded(frozenset({"class", "size"})) == left_out


@pytest.mark.parametrize("member", ["class", "resource"])
def test_a_text_of_a_stranger_that_is_too_long_is_left_out_and_the_record_is_partial(member: str) -> None:
    message = build(
        id=1,
        type="create",
        from_="hyperty://b.example/x",
        to="comm://a.example/y",
        body={member: "x" * (FACT_CHARS + 1)},
    )
    facts = Facts("in", message, "b.example", "a.example", "b.example", 100, 2, 1.7e9)
    recorded = record_facts(facts, "b.example", "a.example", frozenset({member}))
    assert recorded == GateFacts(via_length=2, partial=True)


@pytest.mark.parametrize("member", ["class", "resource"])
def test_a_text_of_a_stranger_that_is_as_long_as_it_may_be_is_kept(member: str) -> None:
    text = "x" * FACT_CHARS
    message = build(id=1, type="create", from_="hyperty://b.example/x", to="comm://a.example/y", body={member: text})
    facts = Facts("in", message, "b.example", "a.example", "b.example", 100, 2, 1.7e9)
    recorded = record_facts(facts, "b.example", "a.example", frozenset({member}))
    assert recorded is not None
    assert not recorded.partial
    assert text in (recorded.class_, recorded.resource)


@pytest.mark.parametrize("scheme", ["hyperty", "user"])
def test_a_hashed_address_comes_back_with_its_scheme_and_the_domain_of_its_side(scheme: str) -> None:
    message = build(id=1, type="create", from_=f"{scheme}://a.example/x", to="comm://b.example/y")
    facts = Facts("out", message, "a.example", "b.example", "b.example", 100, 0, 1.7e9)
    again = write(facts, EVERYTHING, is_hashed=True).again.message
    digits = hash_address(message.from_, KEY).partition(":")[2]
    assert again.from_ == f"{scheme}://a.example/{digits}"
    assert again.to.startswith("comm://b.example/")
    alike = AlikeFacts.read("out", "a.example", "b.example", "create", None)
    for key in ("local", "x:y", "x:" + "0" * 23, "x:" + "0" * 25, "x:" + "g" * 24, "0" * 24):
        assert alike.of(key, key, 1, None, 0).message.from_ == key


@pytest.mark.parametrize("attribute", ["resource", "msgId"])
def test_what_is_left_out_beside_hashed_addresses_is_said_to_be_missing(attribute: str) -> None:
    message = build(id=1, type="read", from_="hyperty://b.example/x", to="comm://a.example/y", body={"resource": "/r"})
    facts = Facts("in", message, "b.example", "a.example", "b.example", 100, 0, 1.7e9)
    recorded = record_facts(facts, "b.example", "a.example", frozenset({attribute}), is_hashed=True)
    assert recorded is not None
    assert (recorded.partial, recorded.resource, recorded.msg_id) == (True, msgspec.UNSET, msgspec.UNSET)


@pytest.mark.parametrize("is_hashed", [False, True])
@pytest.mark.parametrize("reads", [frozenset({one}) for one in sorted({*MESSAGE_FACTS, *IDENTITY_FACTS})], ids=min)
def test_a_recorder_of_one_link_makes_of_each_message_what_is_made_of_it_alone(
    reads: frozenset[str], is_hashed: bool
) -> None:
    recorder = FactsRecorder("a.example", "b.example", is_hashed=is_hashed)
    for number in range(3):
        for body in ({"resource": f"/r{number}"}, {"class": f"class-{number}"}, {}):
            for user in ("", f"user://b.example/u{number}"):
                message = build(
                    id=f"m-{number}", type="create", from_="hyperty://b.example/x", to="comm://a.example/y", body=body
                )
                facts = Facts(
                    *("in", message, "b.example", "a.example", "b.example", 100, 0, 1.7e9),
                    identity_verified=bool(user),
                    identity_user=user,
                )
                alone = record_facts(facts, "b.example", "a.example", reads, is_hashed=is_hashed)
                assert recorder.record(facts, reads) == alone


def test_facts_that_nobody_wrote_are_refused() -> None:
    for packed in (b"[]", b'{"viaLength":"many"}', b"{", b'{"session.roles":7}'):
        with pytest.raises(ValueError, match="recorded facts"):
            AlikeFacts.read("out", "a.example", "b.example", "create", packed)


def test_a_message_of_a_local_name_stays_without_scheme() -> None:
    facts = Facts("out", Message(None, "create", "local", "x", b"", b""), "", "b.example", "b.example", 1, 0, 1.7e9)
    again = write(facts, EVERYTHING, is_hashed=True).again
    assert ATTRIBUTES["srcScheme"].read(again) is None


@pytest.mark.parametrize(("reads", "groups"), [({"identity.groups"}, ("night", "staff")), ({"identity.user"}, UNSET)])
def test_groups_of_a_sender_are_recorded_only_where_a_policy_reads_them(
    reads: set[str], groups: tuple[str, ...] | UnsetType
) -> None:
    facts = some_facts(identity_verified=True, identity_user="ana", identity_groups=frozenset({"staff", "night"}))
    recorded = record_facts(facts, "a.example", "b.example", frozenset(reads))
    assert recorded is not None
    assert recorded.identity_groups == groups


@pytest.mark.parametrize("presence", [None, *RECIPIENT_PRESENCES])
@pytest.mark.parametrize("status", [None, *RECIPIENT_STATUSES])
def test_what_was_known_of_the_recipient_reads_the_same_again(status: str | None, presence: str | None) -> None:
    facts = some_facts(recipients=KnownRecipient(status, presence))
    again = write(facts, frozenset({"dstStatus", "dstPresence"})).again
    read = [ATTRIBUTES[name].read(again) for name in ("dstStatus", "dstPresence")]
    assert read == [ATTRIBUTES[name].read(facts) for name in ("dstStatus", "dstPresence")]


@pytest.mark.parametrize(
    ("word", "shown", "partial"), [("event", "event", False), ("action", "action", False), ("diary", UNSET, True)]
)
def test_beside_hashed_addresses_only_known_classes_are_written(
    word: str, shown: str | UnsetType, *, partial: bool
) -> None:
    facts = some_facts(a_message(**{"class": word}), via_length=1)
    recorded = record_facts(facts, "a.example", "b.example", frozenset({"class"}), is_hashed=True)
    assert recorded == GateFacts(via_length=1, class_=shown, partial=partial)


@pytest.mark.parametrize("read", ["size", "identity.user"])
def test_a_hidden_identity_is_missing_only_to_policies_that_read_it(read: str) -> None:
    facts = some_facts(identity_verified=True, identity_user="ana")
    recorded = record_facts(facts, "a.example", "b.example", frozenset({read}), is_hashed=True)
    assert recorded == GateFacts(identity_verified=True, partial=read != "size")


def test_a_recorder_remembers_few_kinds_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_facts, "_CACHED_FACTS", 2)
    recorder = FactsRecorder("a.example", "b.example", is_hashed=False)
    reads = frozenset({"size"})
    sizes = []
    for via_length in (0, 1, 1, 2, 3):
        recorder.record(some_facts(via_length=via_length), reads)
        sizes.append(len(recorder._made))
    assert sizes == [1, 2, 2, 1, 2]
