"""Where users are: by their GUID records, and by the entries of our own registry."""

from __future__ import annotations

import pytest

from msg_node.kernel.registrations import Index, Status
from msg_node.kernel.rules import Rules
from msg_node.registries.core.registry_entry import Changed
from msg_node.registries.core.user_places import LocalUsers, UserPlaces, places_of
from protofly.guid_record import GuidRecord, UserId
from protofly.limits import USER_NAMES
from tests.support.state_rig import DOMAIN, StateRig

ANA = f"user://{DOMAIN}/ana"
NAME = (Index.USER, ANA)
NOBODY = "user://anonymous"


def record(*user_ids: UserId) -> GuidRecord:
    return GuidRecord(
        guid="g1",
        user_ids=user_ids,
        legacy_ids=(),
        last_update_us=1,
        timeout_us=7_500_000,
        is_active=True,
        is_revoked=False,
        is_complete=True,
        schema_version=2,
        defaults={},
        public_key="",
        salt="",
        digest="",
    )


@pytest.mark.parametrize(
    ("user_id", "here", "domains"),
    [
        (UserId(ANA), [ANA], []),
        (UserId(ANA, DOMAIN), [ANA], []),
        (UserId("facebook.com/ana", DOMAIN.upper()), ["facebook.com/ana"], []),
        (UserId("user://beta.example/ana"), [], ["beta.example"]),
        (UserId(ANA, "beta.example"), [], ["beta.example"]),
        (UserId(NOBODY, DOMAIN), [], [DOMAIN]),
        (UserId("facebook.com/ana"), [], []),
        (UserId("tel:+4930"), [], []),
        (UserId(ANA, "no domain"), [], []),
        (UserId("user://localhost/ana"), [], []),
    ],
)
def test_a_record_names_places_here_and_elsewhere(user_id: UserId, here: list[str], domains: list[str]) -> None:
    places = places_of(record(user_id), [DOMAIN])
    assert places.here[0] == (Index.GUID, "user-guid://g1")
    assert [text for _, text in places.here[1:]] == here
    assert (list(places.domains), places.ends_at) == (domains, 7.5)


def test_so_many_places_count_each_domain_once() -> None:
    ours = [UserId(f"{ANA}{number}") for number in range(USER_NAMES + 1)]
    theirs = [UserId(f"user://d{number // 2}.example/x") for number in range(2 * USER_NAMES + 2)]
    places = places_of(record(*ours, *theirs), [DOMAIN])
    assert isinstance(places, UserPlaces)
    assert (len(places.here), len(places.domains)) == (USER_NAMES, USER_NAMES)
    assert places.domains[:2] == ("d0.example", "d1.example")


class Registered:
    """Hyperties of users in a state with some sessions."""

    def __init__(self) -> None:
        self.rig = StateRig()
        self.sids = {name: self.rig.open(name, number)[0] for number, name in enumerate(("one", "two"), 1)}
        state = self.rig.state
        self.users = LocalUsers(state.registry, state.owners, state.sessions)

    def add(self, name: str, at: str, *, user: str = ANA, now: float = 0.0, owned: bool = False) -> str:
        url = f"hyperty://{DOMAIN}/{name}"
        if owned:
            self.rig.state.owners.claim(self.sids[at], url)
        entry = Changed(user=user, guid="user-guid://g1", descriptor="d", runtime=f"runtime://{DOMAIN}/{at}")
        self.rig.state.registry.register(url, entry, sid=self.sids[at], now=now)
        return url


def test_all_live_hyperties_of_a_user_but_those_of_who_asks_are_found_once() -> None:
    made = Registered()
    for name, at in (("a", "one"), ("b", "one"), ("c", "two")):
        made.add(name, at)
    made.add("d", "two", user=f"{ANA}2")
    names = [NAME, (Index.GUID, "user-guid://g1")]
    entries = made.users.hyperties_of([NAME, NAME])
    assert [entry.url.rpartition("/")[2] for entry in entries] == ["a", "b", "c"]
    assert made.users.live_numbers(entries, 0) == (made.sids["one"], made.sids["two"])
    assert made.users.live_numbers(entries, made.sids["one"]) == (made.sids["two"],)
    assert [made.users.is_live_for(names, number) for number in (0, made.sids["one"])] == [True, True]
    made.rig.state.registry.disconnect_session(made.sids["two"], now=1.0)
    assert made.users.live_numbers(made.users.hyperties_of([NAME]), made.sids["one"]) == ()
    assert not made.users.is_live_for([NAME], made.sids["one"])


def test_data_objects_of_a_user_s_guid_are_no_hyperties() -> None:
    made = Registered()
    entry = Changed(name="n", schema="s", reporter="hyperty://x", runtime=f"runtime://{DOMAIN}/one", user=ANA)
    made.rig.state.registry.register(f"comm://{DOMAIN}/room", entry, sid=made.sids["one"], now=0.0)
    assert made.users.hyperties_of([NAME]) == []


def test_an_action_goes_to_the_hyperty_that_was_here_last_and_to_a_live_one_first() -> None:
    made = Registered()
    assert made.users.hyperty_for([NAME], 0) == ""
    made.add("a", "one", now=5.0)
    assert made.users.hyperty_for([NAME], 0) == f"runtime://{DOMAIN}/one"
    owned = made.add("b", "two", now=9.0, owned=True)
    assert made.users.hyperty_for([NAME], 0) == owned
    made.add("c", "one", now=7.0)
    assert made.users.hyperty_for([NAME], made.sids["two"]) == f"runtime://{DOMAIN}/one"
    made.rig.state.registry.disconnect_session(made.sids["two"], now=1.0)
    assert made.users.hyperty_for([NAME], 0) == f"runtime://{DOMAIN}/one"
    made.rig.state.registry.disconnect_session(made.sids["one"], now=1.0)
    assert made.users.hyperty_for([NAME], 0) == owned


def test_a_profile_says_what_is_registered() -> None:
    made = Registered()
    assert made.users.profile(ANA) == {}
    made.add("a", "one")
    made.add("b", "two")
    live = {"userURL": ANA, "guid": "user-guid://g1", "status": "live"}
    assert made.users.profile(ANA) == made.users.profile("user-guid://g1") == live
    made.rig.state.registry.disconnect_session(made.sids["one"], now=1.0)
    assert made.users.profile(ANA) == live
    made.rig.state.registry.disconnect_session(made.sids["two"], now=1.0)
    assert made.users.profile(ANA) == {**live, "status": "disconnected"}


def test_who_is_disconnected_or_has_no_session_any_more_is_not_reached() -> None:
    made = Registered()
    url = made.add("a", "one")
    made.rig.state.registry.update(url, Changed(status=Status.DISCONNECTED), sid=made.sids["one"], now=1.0)
    assert made.users.live_numbers(made.users.hyperties_of([NAME]), 0) == ()
    made.rig.state.registry.disconnect_session(made.sids["one"], now=2.0)
    assert made.users.hyperty_for([NAME], 0) == url
    kept = StateRig(rules=Rules(keeps_registered=True))
    users = LocalUsers(kept.state.registry, kept.state.owners, kept.state.sessions)
    kept.state.registry.register(url, Changed(user=ANA, descriptor="d", runtime="runtime://x/y"), sid=5, now=0.0)
    kept.state.registry.disconnect_session(5, now=1.0)
    assert [entry.is_connected for entry in users.hyperties_of([NAME])] == [True]
    assert users.live_numbers(users.hyperties_of([NAME]), 9) == ()
    assert users.profile(ANA) == {"userURL": ANA, "status": "live"}
