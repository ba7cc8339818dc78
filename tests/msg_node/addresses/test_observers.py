"""How observers come and go by what passes the node: reporters' answers, and observers that are taken off."""

from __future__ import annotations

import pytest

from msg_node.addresses.core import observers as module
from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.observers import Observers
from msg_node.kernel.rules import Rules
from protofly.errors import Code, PeerError
from tests.msg_node.bus.test_router import FAR_ROOM, ROOM, Rig
from tests.support.runtime_rig import DOMAIN, a_message, parsed, runtime_address

FREE = f"comm://{DOMAIN}/free"
BO, EVE = f"hyperty://{DOMAIN}/h-bo", f"hyperty://{DOMAIN}/h-eve"
BEN, BEA = "hyperty://beta.example/ben", "hyperty://beta.example/bea"


class Stage:
    """Ana reports a room; bo and eve, the domain beta and a guest of gamma are there."""

    def __init__(self, *, require_consent: bool = False) -> None:
        self.rig = Rig(Rules(require_consent=require_consent))
        self.state = self.rig.state
        self.ana, self.bo, self.eve = (self.rig.session(name) for name in ("ana", "bo", "eve"))
        self.guest = self.rig.session("g", domain="gamma.example")
        self.link = self.state.links.number("beta.example")
        for sid, url in ((self.ana, ROOM), (self.bo, BO), (self.eve, EVE)):
            self.state.owners.claim(sid, url)
        self.observers = Observers(self.state)

    def asks(self, who: str, number: int, *, room: str = ROOM, type_: str = "subscribe", id_: object = 1) -> None:
        self.observers.passes(parsed(a_message(type_, who, f"{room}/subscription", id_=id_)), number)

    def answers(self, who: str, code: object = 200, *, room: str = ROOM, id_: object = 1) -> None:
        body = {"code": code}
        self.observers.passes(parsed(a_message("response", f"{room}/subscription", who, body, id_=id_)), self.ana)

    def takes_off(self, number: int, observer: str, room: str) -> Code | None:
        """Somebody says that an observer is taken off; the refusal, if it is one."""
        message = parsed(a_message("unsubscribe", "hyperty://x.example/h", observer, {"resource": room}, id_=9))
        try:
            self.observers.passes(message, number)
        except PeerError as exc:
            return exc.code
        return None

    def accepted(self, room: str = ROOM) -> list[str]:
        return list(self.state.observer_rights.consents.observers(room))

    def expelled(self) -> list[tuple[str, str]]:
        return [(row.object_key, row.observer) for row in self.state.observer_rights.expulsions]


@pytest.fixture
def careful() -> Stage:
    return Stage(require_consent=True)


class TestConsent:
    @pytest.mark.parametrize(
        ("code", "is_consent"),
        [(200, True), (299, True), (199, False), (100, False), (300, False), (403, False), ("x", False)],
    )
    def test_a_reporter_consents_by_a_2xx_answer(self, careful: Stage, code: object, is_consent: bool) -> None:
        careful.asks(BO, careful.bo)
        careful.answers(BO, code)
        assert careful.accepted() == ([BO] if is_consent else [])
        assert bool(careful.observers._asked_by) is (code in (100, 199, "x"))

    @pytest.mark.parametrize(("code", "is_open"), [(100, True), (199, True), (300, False), (403, False), (0, True)])
    def test_after_a_promise_the_answer_still_counts_and_after_a_refusal_no_more(
        self, careful: Stage, code: object, is_open: bool
    ) -> None:
        careful.asks(BO, careful.bo)
        careful.answers(BO, code)
        careful.answers(BO, 200)
        assert careful.accepted() == ([BO] if is_open else [])

    @pytest.mark.parametrize("type_", ["unsubscribe", "update", "read"])
    def test_the_answer_to_anything_but_a_subscription_is_no_consent(self, careful: Stage, type_: str) -> None:
        careful.asks(BO, careful.bo, type_=type_)
        careful.answers(BO)
        assert careful.accepted() == []
        careful.asks(BO, careful.bo)
        careful.asks(BO, careful.bo, type_=type_)
        careful.answers(BO)
        assert careful.accepted() == []

    def test_an_answer_without_a_question_of_that_number_sender_and_room_is_no_consent(self, careful: Stage) -> None:
        careful.asks(BO, careful.bo, id_=1)
        for who, room, id_ in ((EVE, ROOM, 1), (BO, FREE, 1), (BO, ROOM, 2), (BO, ROOM, None)):
            careful.answers(who, room=room, id_=id_)
        assert careful.accepted() == careful.accepted(FREE) == []
        careful.answers(BO)
        assert careful.accepted() == [BO]

    def test_the_word_of_a_reporter_is_not_kept_where_it_does_not_matter(self) -> None:
        stage = Stage()
        stage.asks(BO, stage.bo)
        stage.answers(BO)
        assert stage.accepted() == []

    def test_consent_lets_in_again_who_was_taken_off_and_nobody_else(self) -> None:
        stage = Stage()
        for observer in (BO, EVE):
            stage.observers.take_off(ROOM, observer, by="x")
        stage.asks(BO, stage.bo)
        stage.answers(BO)
        assert stage.expelled() == [(ROOM, EVE)]

    def test_consent_for_one_of_a_domain_lets_in_all_of_that_domain(self) -> None:
        stage = Stage()
        for observer in (BO, BEN, BEA, "hyperty://gamma.example/gil"):
            stage.observers.take_off(ROOM, observer, by="x")
        stage.asks(BEN, stage.link)
        stage.answers(BEN)
        assert stage.expelled() == [(ROOM, BO), (ROOM, "hyperty://gamma.example/gil")]

    def test_a_question_without_a_number_is_not_remembered(
        self, careful: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "CONSENT_REQUESTS_PER_SENDER", 1)
        careful.asks(BO, careful.bo)
        careful.asks(BO, careful.bo, id_=None)
        careful.answers(BO, id_=None)
        assert careful.accepted() == []
        careful.answers(BO)
        assert careful.accepted() == [BO]

    def test_so_many_questions_of_a_sender_are_remembered_and_of_so_many_senders(
        self, careful: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "CONSENT_REQUESTS_PER_SENDER", 2)
        monkeypatch.setattr(module, "CONSENT_SENDERS", 2)
        for id_ in (1, 2, 3):
            careful.asks(BO, careful.bo, id_=id_)
        careful.answers(BO, id_=1)
        assert careful.accepted() == []
        careful.answers(BO, id_=2)
        assert careful.accepted() == [BO]
        for number, who in ((careful.eve, EVE), (careful.link, BEN)):
            careful.asks(who, number)
        careful.answers(EVE)
        assert careful.accepted() == [BO, EVE]
        careful.asks(EVE, careful.eve, id_=5)
        careful.asks(BO, careful.bo, id_=6)
        careful.answers(BEN)
        assert careful.accepted() == [BO, EVE]


class TestTakingOff:
    @pytest.mark.parametrize(
        ("who", "observer", "room", "refusal", "is_off"),
        [
            ("ana", BO, ROOM, None, True),
            ("ana", BO, f"{ROOM}/changes", None, True),
            ("eve", BO, ROOM, Code.NOT_OWNER, False),
            ("eve", BO, FREE, None, False),
            ("eve", BO, "comm:/room", None, False),
            ("eve", BO, FAR_ROOM, Code.NOT_OWNER, False),
            ("eve", EVE, ROOM, None, False),  # says so to itself
            ("eve", "domain://msg-node.beta.example/sm", FAR_ROOM, None, False),
            ("eve", BEN, ROOM, Code.NOT_OWNER, False),
            ("eve", BO, "://", None, False),
            ("link", BO, FAR_ROOM, None, True),
            ("link", f"hyperty://{DOMAIN}/gone", FAR_ROOM, None, True),
            ("link", BO, ROOM, Code.NOT_OWNER, False),
            ("link", BO, FREE, Code.NOT_OWNER, False),
            ("link", BO, "comm:/room", Code.NOT_OWNER, False),
            ("link", BO, "comm://gamma.example/room", Code.NOT_OWNER, False),
            ("link", BEN, ROOM, None, False),  # of nobody here
            ("guest", BO, ROOM, Code.NOT_OWNER, False),
            ("guest", BO, FREE, Code.NOT_OWNER, False),
            ("guest", BO, "comm://gamma.example/room", Code.NOT_OWNER, False),
        ],
    )
    def test_an_observer_is_taken_off_by_the_reporter_or_the_domain_of_the_object(
        self, who: str, observer: str, room: str, refusal: Code | None, is_off: bool
    ) -> None:
        stage = Stage()
        assert stage.takes_off(getattr(stage, who), observer, room) is refusal
        assert stage.expelled() == ([(room.removesuffix("/changes"), observer)] if is_off else [])

    def test_a_domain_takes_nobody_off_an_object_under_its_name_that_a_session_here_owns(self) -> None:
        stage = Stage()
        stage.state.owners.claim(stage.guest, FAR_ROOM)
        assert stage.takes_off(stage.link, BO, FAR_ROOM) is Code.NOT_OWNER

    def test_who_takes_off_is_written_as_its_runtime_or_its_domain(self) -> None:
        stage = Stage()
        stage.takes_off(stage.ana, BO, ROOM)
        stage.takes_off(stage.link, BO, FAR_ROOM)
        rows = list(stage.state.observer_rights.expulsions)
        assert rows == [
            ExpulsionRow(ROOM, BO, runtime_address("bo"), runtime_address("ana")),
            ExpulsionRow(FAR_ROOM, BO, runtime_address("bo"), "beta.example"),
        ]

    def test_the_reporter_stays_on_its_object_and_a_stranger_to_all_of_ours_does_not_count_as_reporter(self) -> None:
        stage = Stage()
        stage.observers.take_off(ROOM, runtime_address("ana"), by="x")
        stage.observers.take_off(FREE, "hyperty://alpha.example/nobody", by="x")
        assert stage.expelled() == [(FREE, "hyperty://alpha.example/nobody")]

    def test_who_is_taken_off_hears_nothing_of_the_object_any_more(self) -> None:
        stage = Stage(require_consent=True)
        for number in (stage.bo, stage.eve):
            for key in (f"{ROOM}/changes", f"{ROOM}/children/m", f"{FREE}/changes"):
                stage.rig.listen(number, key)
        stage.asks(BO, stage.bo)
        stage.answers(BO)
        stage.takes_off(stage.ana, BO, ROOM)
        heard = [stage.state.listeners.targets(f"{one}/changes") for one in (ROOM, FREE)]
        assert heard == [(stage.eve,), (stage.bo, stage.eve)]
        assert stage.state.listeners.targets(f"{ROOM}/children/m") == (stage.eve,)
        assert stage.accepted() == []

    @pytest.mark.parametrize(
        ("require_consent", "others", "still_hears"),
        [(True, [], False), (True, [BEA], True), (True, [BO], False), (False, [], True)],
    )
    def test_a_domain_hears_nothing_once_none_of_its_observers_is_accepted_where_consent_is_asked_for(
        self, require_consent: bool, others: list[str], still_hears: bool
    ) -> None:
        stage = Stage(require_consent=require_consent)
        third = stage.state.links.number("gamma.example")
        for observer in (BEN, *others):
            stage.state.observer_rights.consents.grant(ROOM, observer)
        for number in (stage.link, third):
            stage.rig.listen(number, f"{ROOM}/changes")
        stage.rig.listen(stage.link, f"{FREE}/changes")
        assert stage.takes_off(stage.ana, BEN, ROOM) is None
        assert stage.state.listeners.targets(f"{ROOM}/changes") == ((stage.link, third) if still_hears else (third,))
        assert stage.state.listeners.targets(f"{FREE}/changes") == (stage.link,)
        assert stage.expelled() == [(ROOM, BEN)]

    def test_taking_off_somebody_of_a_domain_that_never_had_a_link_changes_only_that(self, careful: Stage) -> None:
        careful.rig.listen(careful.bo, f"{ROOM}/changes")
        assert careful.takes_off(careful.ana, "hyperty://delta.example/dan", ROOM) is None
        assert careful.state.listeners.targets(f"{ROOM}/changes") == (careful.bo,)
        assert careful.expelled() == [(ROOM, "hyperty://delta.example/dan")]
