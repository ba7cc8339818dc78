"""Message records: an ordinary one, and for property tests those of every kind, such as no node writes."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from protofly.records import GateFacts, MessageRecord

A_MESSAGE: Final = MessageRecord(
    ts_us=1_795_219_200_000_000,
    role="out",
    msg_id="ab" * 16,
    attempt=1,
    src_domain="a.example",
    dst_domain="b.example",
    src_key="hyperty://a.example/ana",
    dst_key="comm://b.example/room",
    msg_type="create",
    size_in=200,
    digest="cd" * 16,
    outcome="delivered",
)
"""A message that a.example has delivered to b.example, with nothing that may be left out."""

_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_few = st.sampled_from(["hyperty://a.example/ana", "hyperty://b.example/bo", "a.example", "", 'é\n\t"\\'])
_ids = st.one_of(st.binary(min_size=16, max_size=16).map(bytes.hex), st.sampled_from(["AB" * 16, "ab" * 15, "", "a b"]))
_numbers = st.one_of(
    st.integers(0, 255), st.integers(-3, 70_000), st.integers(-(1 << 63), (1 << 63) - 1), st.just(1_795_219_200_000_000)
)
_facts = st.builds(
    GateFacts, via_length=st.integers(0, 3), auth=st.sampled_from([None, True, False]), identity_user=_few, class_=_few
)


def message_records() -> st.SearchStrategy[list[MessageRecord]]:
    """Some records that could be of one frame; each member has few different values in one list, or many."""
    return st.lists(
        st.builds(
            MessageRecord,
            ts_us=_numbers,
            role=st.sampled_from(["out", "in", "odd"]),
            msg_id=_ids,
            attempt=st.integers(1, 300),
            src_domain=_few,
            dst_domain=_texts,
            src_key=st.one_of(_few, _texts),
            dst_key=_few,
            msg_type=_few,
            size_in=_numbers,
            digest=st.binary(min_size=16, max_size=16).map(bytes.hex),
            outcome=st.sampled_from(["delivered", "denied", "odd"]),
            peer_node=st.none() | _few,
            d_policy_us=st.none() | st.integers(0, 9),
            d_stub_us=st.none() | _numbers,
            d_total_us=st.none() | st.integers(0, 90_000),
            policy_rev=st.none() | _few,
            facts=st.none() | _facts,
            decision=st.sampled_from([None, "permit", "deny"]),
            fuel=st.none() | _numbers,
            trap=st.none() | _texts,
        ),
        min_size=1,
        max_size=12,
    )
