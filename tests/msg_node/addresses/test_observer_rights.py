"""Who may observe which object, by what reporters have said: sessions, links, and children in the oldest spelling."""

from __future__ import annotations

import pytest

from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.observer_rights import ObserverRights
from msg_node.kernel.rules import Rules
from tests.msg_node.bus.test_router import FAR_ROOM, ROOM, Rig
from tests.support.runtime_rig import DOMAIN, runtime_address

HYPERTY = f"hyperty://{DOMAIN}/h"


class Hall:
    """A room of ana; bo and eve observe or want to, and so does a domain."""

    def __init__(self, *, require_consent: bool) -> None:
        self.rig = Rig(Rules(require_consent=require_consent))
        self.ana, self.bo, self.eve = (self.rig.session(name) for name in ("ana", "bo", "eve"))
        self.link = self.rig.state.links.number("beta.example")
        self.rig.state.owners.claim(self.ana, ROOM)
        self.rig.state.owners.claim(self.ana, HYPERTY)

    @property
    def rights(self) -> ObserverRights:
        return self.rig.state.observer_rights

    def expel(self, observer: str, runtime: str = "", room: str = ROOM) -> None:
        self.rights.expulsions.expel(ExpulsionRow(room, observer, runtime, "ana"))


@pytest.mark.parametrize(
    ("key", "is_asked_for"),
    [
        (f"{ROOM}/changes", True),
        (f"{ROOM}/children/m", True),
        (f"{ROOM}/m", True),
        (f"{ROOM}/m/n", True),
        (f"{FAR_ROOM}/m", True),
        (f"{HYPERTY}/changes", True),
        (ROOM, False),
        (FAR_ROOM, False),
        (f"{ROOM}/subscription", False),
        (f"{ROOM}/status", False),
        (f"{HYPERTY}/x", False),
        (f"{runtime_address('ana')}/changes", False),
        (f"{runtime_address('ana')}/children/m", False),
        ("plain/changes", False),
    ],
)
def test_consent_is_asked_for_where_changes_and_children_of_objects_are_heard(key: str, is_asked_for: bool) -> None:
    hall = Hall(require_consent=True)
    for number in (hall.eve, hall.link):
        assert hall.rights.has_consent(number, key) is not is_asked_for
        assert Hall(require_consent=False).rights.has_consent(number, key)


def test_a_child_of_the_name_that_a_session_owns_is_an_object_of_its_own() -> None:
    hall = Hall(require_consent=True)
    hall.rig.state.owners.claim(hall.bo, f"{ROOM}/m")
    assert hall.rights.has_consent(hall.eve, f"{ROOM}/m")
    assert not hall.rights.has_consent(hall.eve, f"{ROOM}/m/changes")
    assert hall.rights.has_consent(hall.bo, f"{ROOM}/m/changes")


@pytest.mark.parametrize("object_key", [f"{FAR_ROOM}/a/b", f"{FAR_ROOM}/a", FAR_ROOM])
def test_a_child_that_nobody_owns_here_is_of_the_nearest_object_with_observers(object_key: str) -> None:
    hall = Hall(require_consent=True)
    child = f"{FAR_ROOM}/a/b/c"
    assert not hall.rights.has_consent(hall.bo, child)
    hall.rights.consents.grant(object_key, runtime_address("bo"))
    assert [hall.rights.has_consent(number, child) for number in (hall.bo, hall.eve)] == [True, False]
    if object_key != f"{FAR_ROOM}/a/b":
        hall.rights.consents.grant(f"{FAR_ROOM}/a/b", runtime_address("eve"))
        assert [hall.rights.has_consent(number, child) for number in (hall.bo, hall.eve)] == [False, True]


@pytest.mark.parametrize("require_consent", [True, False])
def test_who_was_taken_off_hears_nothing_and_others_hear_as_before(require_consent: bool) -> None:
    hall = Hall(require_consent=require_consent)
    for name in ("bo", "eve"):
        hall.rights.consents.grant(ROOM, runtime_address(name))
    hall.expel(f"hyperty://{DOMAIN}/h-bo", runtime_address("bo"))
    may = [hall.rights.has_consent(number, f"{ROOM}/changes") for number in (hall.bo, hall.eve, hall.ana)]
    assert may == [False, True, True]
    assert hall.rights.has_consent(hall.bo, f"{ROOM}-2/changes") is not require_consent


def test_who_owns_the_address_that_was_taken_off_is_off_whatever_its_runtime() -> None:
    hall = Hall(require_consent=False)
    hyperty = f"hyperty://{DOMAIN}/h-bo"
    hall.rig.state.owners.claim(hall.bo, hyperty)
    hall.expel(hyperty)
    off = [hall.rights.is_expelled(number, ROOM) for number in (hall.bo, hall.eve, hall.link)]
    assert off == [True, False, False]


def test_a_runtime_that_was_taken_off_is_off_with_every_session_of_its_own() -> None:
    hall = Hall(require_consent=False)
    bo = runtime_address("bo")
    hall.expel(bo)
    hall.rig.state.owners.unbind(bo, hall.bo)  # as when another session has displaced it
    assert [hall.rights.is_expelled(number, ROOM) for number in (hall.bo, hall.eve)] == [True, False]


def test_a_domain_has_the_consent_of_its_observers_and_a_session_that_of_its_own_addresses() -> None:
    hall = Hall(require_consent=True)
    third = hall.rig.state.links.number("gamma.example")
    hall.rights.consents.grant(ROOM, "hyperty://beta.example/ben")
    asking = (hall.link, third, hall.bo)
    assert [hall.rights.has_consent(number, f"{ROOM}/changes") for number in asking] == [True, False, False]


@pytest.mark.parametrize(
    ("key", "object_key"),
    [
        (f"{ROOM}/changes", ROOM),
        (f"{ROOM}/children/m", ROOM),
        (ROOM, ROOM),
        (f"{ROOM}/m", ROOM),
        (f"{ROOM}/m/n", ROOM),
        (f"{ROOM}/own", f"{ROOM}/own"),
        (f"{ROOM}/own/n", f"{ROOM}/own"),
        (FAR_ROOM, FAR_ROOM),
        (f"{FAR_ROOM}/m", f"{FAR_ROOM}/m"),
        (f"{HYPERTY}/x", f"{HYPERTY}/x"),
        ("plain", "plain"),
    ],
)
def test_an_address_stands_for_the_nearest_object_of_which_it_is_a_part(key: str, object_key: str) -> None:
    hall = Hall(require_consent=False)
    hall.rig.state.owners.claim(hall.bo, f"{ROOM}/own")
    assert hall.rights.object_at(key) == object_key


def test_with_an_object_its_consents_expulsions_and_the_subscriptions_of_domains_end() -> None:
    hall = Hall(require_consent=True)
    hall.rights.consents.grant(ROOM, "hyperty://beta.example/ben")
    hall.expel("hyperty://gamma.example/gil")
    for number in (hall.link, hall.bo):
        hall.rig.listen(number, f"{ROOM}/changes")
    hall.rig.listen(hall.link, f"{ROOM}-2/changes")
    hall.rights.object_deleted(ROOM, (hall.link, hall.bo))
    assert (list(hall.rights.consents.observers(ROOM)), len(hall.rights.expulsions)) == ([], 0)
    assert hall.rig.state.listeners.targets(f"{ROOM}/changes") == (hall.bo,)
    assert hall.rig.state.listeners.targets(f"{ROOM}-2/changes") == (hall.link,)
