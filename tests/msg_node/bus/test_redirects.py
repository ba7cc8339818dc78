"""Messages that a policy of ours redirects or answers: of sessions, and of guests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from federation.links.decision_records import DecisionRecords
from msg_node.wiring.session_steps import LocalGate
from policy.core.gate import Gate, PeerRule
from policy.core.text import PolicyText, load_policies
from protofly.records import DecisionRecord, MessageRecord
from tests.support.admin_rig import GUEST
from tests.support.runtime_rig import FOREIGN, Json, RuntimeRig, a_message, runtime_rig

ABROAD = f"hyperty://{FOREIGN}/carol"
AWAY = 'answer = { code = 480, description = "Back on Monday" }'


def redirect(to: str) -> str:
    return f'redirect = "{to}"'


def use(rig: RuntimeRig, **obligations: tuple[str, str]) -> None:
    """Put rules in force: an obligation for messages to an address, by the name of the rule."""
    text = 'id = "s"\n'
    for name, (to, obligation) in obligations.items():
        condition = f'{{ hook = {{ in = ["local", "in"] }}, msgTo = {{ equals = "{to}" }} }}'
        text += f'[[rules]]\nid = "{name}"\neffect = "permit"\n'
        text += f"condition = {condition}\nobligations = {{ {obligation} }}\n"
    rig.gate.replace(load_policies([PolicyText("p.toml", text, "toml")]))


@asynccontextmanager
async def judged(folder: Path) -> AsyncIterator[RuntimeRig]:
    gate = Gate(peers={"*": PeerRule()})
    async with runtime_rig(folder, gate=gate, credentials=[GUEST], allows_guests=True) as rig:
        rig.judge_local = LocalGate(DecisionRecords(gate, rig.records.append)).judge
        yield rig


def decisions(rig: RuntimeRig) -> list[tuple[str | None, tuple[str, ...] | None]]:
    return [(one.rule_id, one.obligations) for one in rig.records.taken if isinstance(one, DecisionRecord)]


async def test_a_redirected_request_arrives_elsewhere_and_its_reply_reaches_the_asker(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        ana, bob, desk = [await rig.opened(name) for name in ("ana", "bob", "desk")]
        from_, to, elsewhere = [await one.allocated() for one in (ana, bob, desk)]
        use(rig, away=(to, redirect(elsewhere)))
        body = {"value": "Hello", "deep": {"x": [1]}}
        await ana.say(a_message("create", from_, to, body, id_=7))
        arrived = await desk.next()
        assert (arrived["to"], arrived["from"], arrived["id"]) == (elsewhere, from_, 7)
        assert arrived["body"] == {**body, "auth": False}
        assert await bob.heard() == []
        await desk.say(a_message("response", elsewhere, from_, {"code": 200}, id_=7))
        answer = await ana.next()
        assert (answer["id"], answer["body"]["code"]) == (7, 200)
        assert decisions(rig) == [("s/away", (f"redirect={elsewhere}",))]


async def test_a_reply_of_someone_who_is_redirected_still_goes_to_whom_it_is_for(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        from_, to = await ana.allocated(), await bob.allocated()
        use(rig, away=(from_, redirect(ABROAD)))
        await ana.say(a_message("create", from_, to, {}, id_=8))
        assert (await bob.next())["id"] == 8
        await bob.say(a_message("response", to, from_, {"code": 200}, id_=8))
        assert (await ana.next())["body"]["code"] == 200


async def test_an_automatic_answer_comes_in_the_name_of_the_recipient_who_hears_nothing(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        from_, to = await ana.allocated(), await bob.allocated()
        use(rig, away=(to, AWAY))
        answer = await ana.ask("create", to, {}, from_=from_)
        assert (answer["from"], answer["body"]["code"], answer["body"]["description"]) == (to, 480, "Back on Monday")
        await ana.say(a_message("event", from_, to, {}))
        assert await ana.heard() == []
        assert await bob.heard() == []


async def test_rules_that_redirect_to_each_other_end_in_a_refusal(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        runtimes = [await rig.opened(f"rt-{number}") for number in range(8)]
        from_, *chain = [await one.allocated() for one in runtimes]
        use(rig, there=(chain[0], redirect(chain[1])), back=(chain[1], redirect(chain[0])))
        answer = await runtimes[0].ask("create", chain[0], {}, from_=from_)
        assert (answer["from"], answer["body"]["code"], answer["body"]["reason"]) == (chain[0], 508, "loop")
        use(rig, **{f"r{at}": (chain[at], redirect(chain[at + 1])) for at in range(6)})
        answer = await runtimes[0].ask("create", chain[0], {}, from_=from_)
        assert answer["body"]["reason"] == "loop"
        use(rig, **{f"r{at}": (chain[at], redirect(chain[at + 1])) for at in range(3)})
        await runtimes[0].say(a_message("create", from_, chain[0], {}, id_=9))
        assert (await runtimes[4].next())["id"] == 9


async def test_what_is_redirected_to_another_domain_goes_by_its_link_which_judges_it(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        from_, to = await ana.allocated(), await bob.allocated()
        use(rig, away=(to, redirect(ABROAD)))
        await ana.say(a_message("create", from_, to, {}, id_=5))
        await ana.heard()
        assert [(one["to"], one["from"], one["id"]) for one in rig.domains.take()] == [(ABROAD, from_, 5)]


async def from_guest(rig: RuntimeRig, to: str) -> Json:
    guest = await rig.runtime(bearer="guest")
    guest.address = f"runtime://{FOREIGN}/g"
    await guest.say(a_message("open", guest.address, "mn:/session", {}, id_=1))
    assert (await guest.next())["body"]["code"] == 200
    answer: Json = await guest.ask("create", to, {}, from_=guest.address)
    return answer


async def test_guests_are_answered_and_redirected_inside_our_domain_and_never_out_of_it(tmp_path: Path) -> None:
    async with judged(tmp_path) as rig:
        bob, desk = await rig.opened("bob"), await rig.opened("desk")
        to, elsewhere = await bob.allocated(), await desk.allocated()
        use(rig, away=(to, AWAY))
        assert (await from_guest(rig, to))["body"]["code"] == 480
        use(rig, away=(to, redirect("hyperty://third.example/x")))
        assert (await from_guest(rig, to))["body"]["reason"] == "transit"
        use(rig, away=(to, redirect(elsewhere)), there=(elsewhere, AWAY))
        assert (await from_guest(rig, to))["body"]["code"] == 480
        use(rig, away=(to, redirect(elsewhere)), back=(elsewhere, redirect(to)))
        assert (await from_guest(rig, to))["body"]["reason"] == "loop"
        assert await bob.heard() == []
        assert rig.domains.take() == []
        outcomes = [one.outcome for one in rig.records.taken if isinstance(one, MessageRecord)]
        assert outcomes == ["denied", "undeliverable", "denied", "denied"]


async def test_a_guest_whose_domain_is_not_talked_to_gets_the_id_of_the_record(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, gate=Gate(), credentials=[GUEST], allows_guests=True) as rig:
        guest = await rig.runtime(bearer="guest")
        refused = await guest.ask("open", "mn:/session", from_=f"runtime://{FOREIGN}/rt")
        [decision] = [one for one in rig.records.taken if isinstance(one, DecisionRecord)]
        assert (refused["body"]["reason"], refused["body"]["value"]) == ("domain-blocked", {"msgId": decision.msg_id})
