"""Who may listen to what, as a table: each row has a caller, an address and the answer."""

from __future__ import annotations

import pytest

from msg_node.addresses.core.subscription_rights import Right, SubscriptionRights
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.resources import TAPS_KEY
from msg_node.kernel.rules import Rules
from msg_node.kernel.service import Caller
from tests.support.state_rig import DOMAIN, NODE, SM, StateRig

FOREIGN = "beta.example"
ROOM = f"comm://{DOMAIN}/room"
AGENT = f"thing://{DOMAIN}/agent"
POOL = f"comm://{DOMAIN}/pool-1"
CLAIMED = f"comm://{DOMAIN}/claimed"
STUBS = f"comm://{DOMAIN}/p2phandler"
LISTEN, CLAIM, REFUSED, NO_CONSENT = Right.LISTEN, Right.CLAIM, Right.REFUSED, Right.NO_CONSENT


class Callers:
    """Ana owns a room, an agent of things and a name that P2P stubs have; bo, a guest, an operator and a link ask."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rig = StateRig(
            rules=rules,
            credentials=[Credential(digest_of("g"), f"runtime://{FOREIGN}/*")],
            allows_guests=True,
            pools={"pool": [POOL]},
        )
        self.ana, _ = self.rig.open("ana", 1)
        bo, _ = self.rig.open("bo", 2)
        self.rig.session_verb("open", f"runtime://{FOREIGN}/g", 3, bearer="g")
        guest = self.rig.state.sessions.by_connection(3)
        assert guest is not None
        assert self.rig.reply(self.ana, SM, "subscribe", {"resources": [ROOM, AGENT, STUBS]})["code"] == 200
        self.by_name = {
            "ana": Caller(self.ana),
            "bo": Caller(bo),
            "operator": Caller(bo, is_operator=True),
            "guest": Caller(guest, is_guest=True),
            "link": Caller(self.rig.state.links.number(FOREIGN), FOREIGN),
        }
        self.rig.state.owners.pending[CLAIMED] = self.ana
        self.rights = SubscriptionRights(self.rig.state)

    def right(self, who: str, key: str) -> Right:
        return self.rights.right(self.by_name[who], key)


@pytest.fixture
def callers() -> Callers:
    return Callers()


@pytest.mark.parametrize(
    ("who", "key", "right"),
    [
        # everything, and the node itself
        ("operator", TAPS_KEY, REFUSED),
        ("operator", f"{NODE}/status", LISTEN),
        ("bo", f"{NODE}/status", REFUSED),
        ("operator", NODE, REFUSED),
        ("operator", f"{NODE}/x", REFUSED),
        # objects of ours
        ("ana", ROOM, LISTEN),
        ("bo", ROOM, REFUSED),
        ("bo", f"{ROOM}/changes", LISTEN),
        ("bo", f"{ROOM}/subscription", REFUSED),
        ("ana", f"{ROOM}/subscription", LISTEN),
        ("ana", f"{ROOM}/*", LISTEN),
        ("bo", f"{ROOM}/*", REFUSED),
        ("ana", f"{CLAIMED}/*", LISTEN),
        ("bo", f"{CLAIMED}/*", REFUSED),
        ("bo", f"{ROOM}/n", LISTEN),
        ("bo", f"{ROOM}/n/*", REFUSED),
        ("link", f"{ROOM}/n", LISTEN),
        ("link", f"{ROOM}/changes", LISTEN),
        ("link", ROOM, REFUSED),
        # what nobody owns
        ("bo", f"comm://{DOMAIN}/free", CLAIM),
        ("bo", f"comm://{DOMAIN}/free/subscription", LISTEN),
        ("bo", f"comm://{DOMAIN}/free/*", REFUSED),
        ("bo", f"domain://{DOMAIN}/free", REFUSED),
        ("bo", "comm:/free", CLAIM),
        ("bo", "plain", LISTEN),
        ("bo", "plain/*", REFUSED),
        ("bo", "plain/subscription", REFUSED),
        ("bo", POOL, REFUSED),
        # runtimes
        ("ana", f"runtime://{DOMAIN}/ana/sm", LISTEN),
        ("bo", f"runtime://{DOMAIN}/ana/sm", REFUSED),
        ("bo", f"runtime://{DOMAIN}/nobody", REFUSED),
        # P2P stubs
        ("bo", f"{STUBS}/7", CLAIM),
        ("ana", f"runtime://{DOMAIN}/p2phandler/7", CLAIM),
        ("guest", f"runtime://{DOMAIN}/p2phandler/7", REFUSED),
        # things
        ("bo", f"{AGENT}/events/e", LISTEN),
        ("bo", f"{AGENT}/properties/p", LISTEN),
        ("bo", f"{AGENT}/*", LISTEN),
        ("guest", f"{AGENT}/events/e", REFUSED),
        ("link", f"{AGENT}/events/e", REFUSED),
        ("bo", f"thing://{FOREIGN}/agent/events/e", REFUSED),
        ("bo", f"{AGENT}/x", LISTEN),
        ("link", f"{AGENT}/x", REFUSED),
        # abroad
        ("bo", f"comm://{FOREIGN}/room/n", LISTEN),
        ("bo", f"comm://{FOREIGN}/room", REFUSED),
        ("bo", f"hyperty://{FOREIGN}/h/n", REFUSED),
        ("bo", f"comm://{FOREIGN}/room/n/*", REFUSED),
        ("bo", "comm://x@/room/n", REFUSED),
        ("link", f"hyperty://{FOREIGN}/h", LISTEN),
        ("link", f"hyperty://{FOREIGN}/*", REFUSED),
        ("link", "hyperty://gamma.example/h", REFUSED),
    ],
)
def test_who_may_listen(callers: Callers, who: str, key: str, right: Right) -> None:
    assert callers.right(who, key) is right


@pytest.mark.parametrize(("who", "right"), [("operator", LISTEN), ("bo", REFUSED), ("link", REFUSED)])
def test_everything_is_for_operators_where_the_settings_allow_it(who: str, right: Right) -> None:
    assert Callers(Rules(taps=True)).right(who, TAPS_KEY) is right


@pytest.mark.parametrize("key", [f"{ROOM}/changes", f"{ROOM}/n", f"comm://{FOREIGN}/room/n"])
def test_without_consent_nobody_observes_where_it_is_asked_for(key: str) -> None:
    assert Callers(Rules(require_consent=True)).right("bo", key) is NO_CONSENT


def test_things_are_for_a_role_where_one_is_named_and_for_their_agent() -> None:
    careful = Callers(Rules(thing_roles=frozenset({"lab"})))
    assert careful.right("bo", f"{AGENT}/events/e") is REFUSED
    assert careful.right("ana", f"{AGENT}/events/e") is LISTEN


def test_a_session_with_the_role_that_is_named_listens_to_things() -> None:
    rules = Rules(thing_roles=frozenset({"lab"}))
    rig = StateRig(rules=rules, credentials=[Credential(digest_of("l"), f"runtime://{DOMAIN}/*", frozenset({"lab"}))])
    ana, _ = rig.open("ana", 1, {"credentials": {"kind": "bearer", "token": "l"}})
    assert SubscriptionRights(rig.state).right(Caller(ana), f"{AGENT}/events/e") is LISTEN


def test_what_is_claimed_in_the_same_request_is_as_good_as_owned(callers: Callers) -> None:
    free = f"comm://{DOMAIN}/free"
    assert callers.rights.right(callers.by_name["bo"], f"{free}/*", {free}) is LISTEN
    assert callers.rights.right(callers.by_name["bo"], f"{free}x/*", {free}) is REFUSED


def test_a_control_address_is_for_the_first_that_listens(callers: Callers) -> None:
    control = f"comm://{DOMAIN}/free/subscription"
    callers.rig.reply(callers.ana, SM, "subscribe", {"resources": [control]})
    assert callers.right("bo", control) is REFUSED
    assert callers.right("ana", control) is LISTEN


def test_where_nodes_share_the_domain_nobody_takes_the_subscriptions_of_what_it_does_not_own() -> None:
    callers = Callers(Rules(shares_domain=True))
    assert callers.right("bo", f"comm://{DOMAIN}/free/subscription") is REFUSED
    assert callers.right("ana", f"{ROOM}/subscription") is LISTEN
