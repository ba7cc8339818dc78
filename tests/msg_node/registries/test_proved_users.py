"""Whom runtimes may register where users are to be proved."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from msg_node.kernel.changes import Journal
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from msg_node.registries.core.proved_users import Conclude, Proved, ProvedUsers, is_same_user
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.registry_entry import Changed
from protofly import codec
from protofly.errors import Code, PeerError

OURS = frozenset({"a.example", "alias.example"})


@pytest.mark.parametrize(
    ("user", "proved", "is_same"),
    [
        ("user://a.example/ana", "user://a.example/ana", True),
        ("user://A.EXAMPLE/ana", "user://a.example/ana", True),
        ("user://a.example/mallory", "user://a.example/ana", False),
        ("user://idp.example/ana", "user://a.example/ana", False),
        ("user://a.example/ana", "ana@a.example", True),
        ("user://idp.example/ana@a.example", "ana@a.example", True),
        ("user://evil.example/ana", "ana@a.example", False),
        ("user://a.example/ana", "ana@evil.example", False),
        ("user://a.example/ana", "ana", True),
        ("user://alias.example/ana", "ana", True),
        ("user://evil.example/ana", "ana", False),
        ("user://a.example/anabel", "ana", False),
        ("no address", "user://a.example/ana", False),
        ("no address", "ana", False),
        ("", "ana", False),
    ],
)
def test_an_address_is_that_of_a_proved_user_or_it_is_not(user: str, proved: str, is_same: bool) -> None:
    assert is_same_user(user, proved, OURS) is is_same


ANA, BO, ELSEWHERE = "user://a.example/ana", "user://a.example/bo", "user://idp.example/ana"
OF_ANA, OF_BO = "hyperty://a.example/of-ana", "hyperty://a.example/of-bo"
DONE = Answer(200)


class Rig:
    """A registry in which Ana and Bo each have an entry with a GUID, and what stands before it."""

    def __init__(self, user: str = ANA, domains: Collection[str] = OURS) -> None:
        registry = DomainRegistry(Journal())
        for url, name in ((OF_ANA, ANA), (OF_BO, BO)):
            entry = Changed(user=name, guid=f"user-guid://{name[-3:]}", descriptor="d", runtime="runtime://a.example/r")
            registry.register(url, entry, sid=1, now=0.0)
        self.is_wanted = self.is_there = True
        self.asked: list[tuple[str, str, Conclude]] = []
        self.users = ProvedUsers(
            registry,
            OURS,
            is_wanted=lambda: self.is_wanted,
            prove=lambda _: Proved(user, frozenset(domains)),
            is_there=lambda number: self.is_there and number == 1,
        )

    def ask_nodes(self, guid: str, domain: str, conclude: Conclude) -> Inquiry:
        self.asked.append((guid, domain, conclude))
        return cast("Inquiry", "asked")

    def outcome(self, type_: str, body: dict[str, Any], caller: Caller = Caller(1)) -> object:  # noqa: B008
        message = codec.build(id=1, type=type_, from_=OF_ANA, to="domain://registry.a.example", body=body)
        service = self.users.over(lambda _: DONE)
        return outcome_of(lambda: service(ServiceRequest(message, caller, "a.example", 0.0, b"")))


def outcome_of(call: Any) -> object:
    try:
        return call()
    except PeerError as exc:
        return exc.code


def guid_of(user: str) -> str:
    return f"user-guid://{user[-3:]}"


@pytest.mark.parametrize(
    ("type_", "body", "is_taken"),
    [
        ("create", {"value": {"user": ANA}}, True),
        ("create", {"value": {"user": BO}}, False),
        ("create", {"value": {"name": "x"}}, True),
        ("create", {"value": {"guid": guid_of(ANA)}}, True),
        ("create", {"value": {"guid": guid_of(BO)}}, False),
        ("create", {"value": {"guid": "user-guid://new"}}, True),
        ("create", {"value": {"user": ANA, "guid": guid_of(BO)}}, False),
        ("create", {"value": {"user": BO, "guid": guid_of(ANA)}}, False),
        ("create", {"value": {"url": OF_BO, "name": "x"}}, True),  # whose that is, the registry looks at
        ("update", {"resource": OF_ANA}, True),
        ("update", {"resource": OF_BO}, False),
        ("update", {"resource": OF_BO, "value": {"user": ANA}}, False),  # its GUID stays that of Bo
        ("update", {"resource": OF_BO, "value": {"user": ANA, "guid": guid_of(ANA)}}, True),
        ("update", {"resource": OF_ANA, "value": {"user": BO}}, False),
        ("update", {"resource": "hyperty://a.example/new", "value": {"user": BO}}, False),
        ("update", {"resource": "hyperty://a.example/new", "value": {"user": ANA}}, True),
        ("update", {"value": {"url": OF_BO, "name": "x"}}, False),
        ("update", {"value": {"url": OF_ANA, "name": "x"}}, True),
        ("update", {"value": {"user": BO}}, False),
        ("read", {"resource": OF_BO}, True),
        ("delete", {"value": {"user": BO}}, True),
    ],
)
def test_a_session_registers_its_own_user_and_no_guid_of_another(
    type_: str, body: dict[str, Any], *, is_taken: bool
) -> None:
    assert Rig().outcome(type_, body) == (DONE if is_taken else Code.NOT_OWNER)


def test_who_has_proved_nobody_registers_what_names_nobody() -> None:
    rig = Rig(user="")
    for named in ({"user": ANA}, {"guid": "user-guid://new"}, {"user": BO, "guid": "user-guid://new"}):
        assert rig.outcome("create", {"value": named}) is Code.NOT_OWNER
    assert rig.outcome("create", {"value": {"name": "x"}}) == DONE


@pytest.mark.parametrize("caller", [Caller(-1, "b.example"), Caller(1, is_guest=True), Caller(1, is_operator=True)])
def test_links_guests_and_operators_are_not_asked_here(caller: Caller) -> None:
    assert Rig().outcome("create", {"value": {"user": BO}}, caller) == DONE


def test_nobody_is_asked_where_users_need_not_be_proved() -> None:
    rig = Rig()
    rig.is_wanted = False
    assert rig.outcome("create", {"value": {"user": BO}}) == DONE


@pytest.mark.parametrize(
    ("user", "domains", "is_taken"),
    [
        (ANA, {"a.example"}, True),
        (ANA, OURS, True),
        (ANA, {"alias.example"}, False),
        (ANA, set(), False),
        (ELSEWHERE, set(), True),
        ("user://idp.example/a.example", set(), True),  # a name, and no domain of ours
        ("user://idp.example/ana@a.example", {"a.example"}, True),
        ("user://idp.example/ana@a.example", set(), False),
        ("user://idp.example/ana@A.EXAMPLE.", set(), False),
    ],
)
def test_a_provider_proves_users_of_those_domains_of_ours_for_which_it_speaks(
    user: str, domains: Collection[str], *, is_taken: bool
) -> None:
    rig = Rig(user, domains)
    assert rig.outcome("create", {"value": {"user": user}}) == (DONE if is_taken else Code.NOT_OWNER)


def test_the_other_nodes_are_asked_for_a_guid_that_is_new_here_and_for_nothing_else() -> None:
    rig = Rig()
    rig.users.ask_nodes = rig.ask_nodes
    for named in ({"user": ANA}, {"guid": guid_of(ANA)}, {"name": "x"}):
        assert rig.outcome("create", {"value": named}) == DONE
    assert rig.asked == []
    assert rig.outcome("create", {"value": {"user": ANA, "guid": "user-guid://new"}}) == "asked"
    [(guid, domain, conclude)] = rig.asked
    assert (guid, domain) == ("user-guid://new", "a.example")
    answers = [outcome_of(lambda users=users: conclude(users)) for users in ([], [ANA], [BO], [ANA, BO], [""])]
    assert answers == [DONE, DONE, *[Code.NOT_OWNER] * 3]
    rig.is_there = False
    assert outcome_of(lambda: conclude([])) is Code.NOT_CONNECTED
