"""When a running stub is live for its link, and how long a proof counts."""

from __future__ import annotations

from typing import Final

import pytest

from federation.core.auth import Claims
from federation.core.stub_contact import ContactChange, StubContact
from federation.core.stub_lifecycle import StubState
from protofly.errors import Code, StubFaultError

LINE: Final = 3
NODE: Final = "runtime://b.example/mn-1"


def claims(*domains: str) -> Claims:
    return Claims(
        iss="b.example",
        node=NODE,
        aud="a.example",
        ep="wss://mn.b.example/link",
        nonce="n",
        cnonce="c",
        cb="none",
        iat=0,
        exp=60,
        jti="1",
        doms=["b.example", *domains],
    )


@pytest.fixture
def contact() -> StubContact:
    """A stub that has to prove whom it reaches."""
    return StubContact("b.example", needs_proof=True)


@pytest.fixture
def live(contact: StubContact) -> StubContact:
    contact.proved(LINE, claims())
    assert contact.reported(StubState.LIVE) is ContactChange.UP
    return contact


def test_a_stub_that_says_live_without_the_proof_it_needs_has_failed(contact: StubContact) -> None:
    with pytest.raises(StubFaultError) as caught:
        contact.reported(StubState.LIVE)
    assert (caught.value.code, caught.value.domain) == (Code.STUB_FAILED, "b.example")
    assert not contact.is_live


def test_a_stub_that_needs_no_proof_is_live_when_it_says_so() -> None:
    contact = StubContact("b.example", needs_proof=False)
    assert contact.reported(StubState.LIVE) is ContactChange.UP
    assert contact.reported(StubState.LIVE) is None
    assert (contact.node, contact.domains) == ("", frozenset())


def test_a_proof_is_news_for_the_link_only_while_the_stub_is_live(live: StubContact) -> None:
    assert live.proved(LINE, claims("alias.example")) is ContactChange.PROVED
    assert live.domains == {"b.example", "alias.example"}
    assert StubContact("b.example", needs_proof=True).proved(LINE, claims()) is None


@pytest.mark.parametrize("state", [StubState.DISCONNECTED, StubState.IN_PROGRESS, StubState.FAILED])
def test_a_stub_that_is_live_no_more_has_to_have_its_far_end_proved_again(live: StubContact, state: StubState) -> None:
    assert live.reported(state) is ContactChange.DOWN
    assert (live.is_live, live.claims) == (False, None)
    with pytest.raises(StubFaultError):
        live.reported(StubState.LIVE)


def test_a_proof_does_not_outlive_its_line(live: StubContact) -> None:
    assert live.channel_closed(LINE + 1) is None
    assert (live.is_live, live.node) == (True, NODE)
    assert live.channel_closed(LINE) is ContactChange.DOWN
    assert (live.is_live, live.claims) == (False, None)
    assert live.channel_closed(LINE) is None


def test_a_stub_without_a_proof_is_live_whatever_lines_end() -> None:
    contact = StubContact("b.example", needs_proof=False)
    contact.reported(StubState.LIVE)
    assert contact.channel_closed(0) is None
    assert contact.is_live


def test_what_is_renewed_counts_for_the_domains_of_now_and_only_if_nothing_else_was_proved(live: StubContact) -> None:
    first = live.claims
    assert first is not None
    second = live.renewed(first, frozenset({"b.example", "alias.example"}))
    assert second is live.claims
    assert live.domains == {"b.example", "alias.example"}
    assert live.renewed(first, frozenset({"evil.example"})) is None
    assert live.domains == {"b.example", "alias.example"}
