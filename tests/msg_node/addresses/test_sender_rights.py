"""Which sender a session may use, and who may change an object, as tables: the rules one by one."""

from __future__ import annotations

import pytest

from federation.core.interworking import Admission, Interworking
from msg_node.addresses.core.sender_rights import SenderRights
from msg_node.kernel.directories import Source
from msg_node.kernel.rules import Rules
from protofly.legacy_range import parse_range
from tests.msg_node.bus.test_router import FAR_ROOM, ROOM, Rig

FREE = "comm://alpha.example/free"
PHONES = Interworking([Admission(domain="phones.example", ranges=(parse_range("tel:+49*"),))])


def rights(rig: Rig) -> SenderRights:
    return rig.state.senders


class TestFrom:
    @pytest.mark.parametrize("is_response", [True, False])
    @pytest.mark.parametrize("was_addressed", [True, False])
    @pytest.mark.parametrize("listens", [True, False])
    def test_only_an_answer_may_come_from_what_was_asked_or_is_listened_to(
        self, is_response: bool, was_addressed: bool, listens: bool
    ) -> None:
        rig = Rig()
        ana, bo = rig.session("ana"), rig.session("bo")
        rig.state.owners.claim(ana, ROOM)
        if listens:
            rig.listen(bo, ROOM)
        found = rights(rig).source_of(bo, ROOM, is_response=is_response, was_addressed=was_addressed)
        is_fine = is_response and (was_addressed or listens)
        assert found is (Source.SUBSCRIBED if is_fine else Source.NOT_OWNER)

    @pytest.mark.parametrize(
        ("from_key", "runtime", "guest"),
        [
            ("plain", Source.LOCAL_NAME, Source.LOCAL_NAME),
            ("comm:/room", Source.LEARNABLE, Source.LEARNABLE),
            (FREE, Source.LEARNABLE, Source.LEARNABLE),
            (FAR_ROOM, Source.SPOOFED, Source.LEARNABLE),
            ("comm://gamma.example/room", Source.SPOOFED, Source.SPOOFED),
            ("domain://registry.beta.example", Source.SPOOFED, Source.SPOOFED),
            ("tel:+4930123", Source.SPOOFED, Source.SPOOFED),
            ("tel:+3310", Source.LEARNABLE, Source.LEARNABLE),
        ],
    )
    def test_of_what_nobody_owns_a_runtime_uses_that_of_its_domain_and_of_none(
        self, from_key: str, runtime: Source, guest: Source
    ) -> None:
        rig = Rig(interworking=PHONES)
        ana, visitor = rig.session("ana"), rig.session("v", domain="beta.example")
        assert [rights(rig).source_of(sid, from_key) for sid in (ana, visitor)] == [runtime, guest]

    @pytest.mark.parametrize("from_key", [FREE, "comm:/room"])
    def test_where_nodes_share_the_domain_nobody_uses_what_it_does_not_own(self, from_key: str) -> None:
        rig = Rig(Rules(shares_domain=True))
        assert rights(rig).source_of(rig.session("ana"), from_key) is Source.NOT_OWNER

    @pytest.mark.parametrize(
        ("learns", "by_reporter", "by_other", "without"),
        [
            (True, Source.LEARNABLE, Source.NOT_OWNER, Source.LEARNABLE),
            (False, Source.OWN, Source.NOT_OWNER, Source.NOT_OWNER),
        ],
    )
    def test_what_takes_the_subscriptions_of_an_object_speaks_as_the_object_and_others_do_not(
        self, learns: bool, by_reporter: Source, by_other: Source, without: Source
    ) -> None:
        rig = Rig(Rules(learns=learns))
        ana, bo = rig.session("ana"), rig.session("bo")
        assert rights(rig).source_of(bo, FREE) is without
        rig.listen(ana, f"{FREE}/subscription")
        assert [rights(rig).source_of(sid, FREE) for sid in (ana, bo)] == [by_reporter, by_other]


class TestChanges:
    @pytest.mark.parametrize("reporter_only", [True, False])
    @pytest.mark.parametrize("shares_domain", [True, False])
    def test_an_owned_object_is_changed_by_its_owner_and_the_node_unless_the_rule_is_off(
        self, reporter_only: bool, shares_domain: bool
    ) -> None:
        rig = Rig(Rules(reporter_only=reporter_only, shares_domain=shares_domain))
        ana, bo, link = rig.session("ana"), rig.session("bo"), rig.state.links.number("beta.example")
        rig.state.owners.claim(ana, ROOM)
        may = [rights(rig).may_change(one, ROOM, "hyperty://beta.example/h") for one in (ana, 0, bo, link)]
        assert may == [True, True, not reporter_only, not reporter_only]

    @pytest.mark.parametrize("shares_domain", [True, False])
    def test_what_takes_the_subscriptions_changes_an_object_unless_other_nodes_may_know_its_owner(
        self, shares_domain: bool
    ) -> None:
        rig = Rig(Rules(shares_domain=shares_domain))
        ana, bo = rig.session("ana"), rig.session("bo")
        rig.listen(ana, f"{FREE}/subscription")
        assert [rights(rig).may_change(sid, FREE, FREE) for sid in (ana, bo)] == [not shares_domain, False]

    @pytest.mark.parametrize(
        ("object_key", "by_runtime", "by_guest", "by_link"),
        [
            (FREE, False, False, False),
            ("comm:/room", False, False, False),
            (FAR_ROOM, False, True, True),
            ("comm://gamma.example/room", False, False, False),
        ],
    )
    def test_what_nobody_reports_here_is_changed_by_its_own_domain_alone(
        self, object_key: str, by_runtime: bool, by_guest: bool, by_link: bool
    ) -> None:
        rig = Rig()
        ana, visitor = rig.session("ana"), rig.session("v", domain="beta.example")
        link = rig.state.links.number("beta.example")
        may = [rights(rig).may_change(one, object_key, "hyperty://beta.example/h") for one in (ana, visitor, link)]
        assert may == [by_runtime, by_guest, by_link]

    @pytest.mark.parametrize("is_owned", [True, False])
    def test_an_object_abroad_that_somebody_here_owns_is_changed_by_nobody_there(self, is_owned: bool) -> None:
        rig = Rig()
        visitor, link = rig.session("v", domain="beta.example"), rig.state.links.number("beta.example")
        if is_owned:
            rig.state.owners.claim(visitor, FAR_ROOM)
        assert rights(rig).may_change(visitor, FAR_ROOM, FAR_ROOM)
        assert rights(rig).may_change(link, FAR_ROOM, FAR_ROOM) is not is_owned

    def test_an_object_abroad_that_somebody_here_reports_is_changed_by_no_other_guest(
        self,
    ) -> None:
        rig = Rig()
        visitor, other = rig.session("v", domain="beta.example"), rig.session("w", domain="beta.example")
        rig.listen(other, f"{FAR_ROOM}/subscription")
        assert not rights(rig).may_change(visitor, FAR_ROOM, FAR_ROOM)
        assert rights(rig).may_change(other, FAR_ROOM, FAR_ROOM)
