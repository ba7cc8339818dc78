"""Subscriptions to objects of other domains: one upstream each, granted by the other side, given back with the last."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.links.link_context import Refusal
from msg_node.addresses.core import remote_subscriptions
from msg_node.addresses.core.remote_subscriptions import RemoteSubscriptions, SubscriptionStep
from msg_node.kernel.resources import texts_of
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import FRAME_BYTES, REQUEST_TTL_SECONDS, RESOURCES_ENTRIES
from protofly.message import Message
from tests.support.runtime_rig import (
    FOREIGN,
    FOREIGN_SM,
    NODE,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    parsed,
    runtime_address,
    runtime_rig,
)

ROOM = f"comm://{FOREIGN}/room"
CHANGES = f"{ROOM}/changes"
ANA = runtime_address("ana")


@pytest.fixture
def remote() -> RemoteSubscriptions:
    return RemoteSubscriptions(NODE, 50)


def wish(remote: RemoteSubscriptions, *urls: str, sid: int = 1, now: float = 0.0) -> SubscriptionStep:
    request = parsed(a_message("subscribe", ANA, FOREIGN_SM, {"resources": list(urls), "source": ANA}, id_=1))
    return remote.subscribe(request, codec.body_members(request.body), sid, FOREIGN, now)


def reply(request: Message, code: object = 200, **more: object) -> Message:
    body = {"code": code, **more}
    assert request.id is not None
    return parsed(a_message("response", request.to, request.from_, body, id_=int(request.id)))


def test_the_other_node_is_asked_in_our_name_and_the_wish_waits(remote: RemoteSubscriptions) -> None:
    step = wish(remote, CHANGES)
    (request,) = step.upstream
    assert (request.type, request.from_, request.to) == ("subscribe", f"{NODE}/sm", FOREIGN_SM)
    assert codec.body_members(request.body) == {"resources": [CHANGES], "source": NODE}
    assert step.granted == []
    assert not remote.holds(FOREIGN)


@pytest.mark.parametrize(("source", "heard_by"), [({}, ANA), ({"source": f"{ANA}/sm"}, f"{ANA}/sm")])
def test_who_names_no_source_listens_itself(
    remote: RemoteSubscriptions, source: dict[str, object], heard_by: str
) -> None:
    request = parsed(a_message("subscribe", ANA, FOREIGN_SM, {"resources": [CHANGES], **source}, id_=1))
    step = remote.subscribe(request, codec.body_members(request.body), 1, FOREIGN, 0.0)
    (granted,) = remote.answered(reply(step.upstream[0]), FOREIGN).granted
    assert granted.source == heard_by


def test_a_second_listener_needs_no_second_upstream(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES).upstream
    (granted,) = remote.answered(reply(request), FOREIGN).granted
    assert (granted.sid, granted.urls) == (1, (CHANGES,))
    step = wish(remote, CHANGES, sid=2)
    assert step.upstream == []
    assert [one.sid for one in step.granted] == [2]
    assert remote.holds(FOREIGN)


def test_only_new_addresses_are_asked_for(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    (request,) = wish(remote, CHANGES, f"{ROOM}/status").upstream
    assert codec.body_members(request.body)["resources"] == [f"{ROOM}/status"]
    (granted,) = remote.answered(reply(request), FOREIGN).granted
    assert granted.urls == (CHANGES, f"{ROOM}/status")


@pytest.mark.parametrize(
    ("code", "reported"), [(403, 403), ("404", 404), ("nonsense", 502), (12345, 502), (None, 502), (-200, 502)]
)
def test_a_refusal_is_reported_to_whom_it_concerns(remote: RemoteSubscriptions, code: object, reported: int) -> None:
    (request,) = wish(remote, CHANGES).upstream
    ((refused, status, reason),) = remote.answered(reply(request, code, reason="policy"), FOREIGN).refused
    assert (refused.sid, status, reason) == (1, reported, "policy")
    assert not remote.holds(FOREIGN)


@pytest.mark.parametrize(("code", "is_granted"), [(200, True), (299, True), (300, False), (301, False)])
def test_a_wish_is_granted_by_a_2xx_answer(remote: RemoteSubscriptions, code: int, is_granted: bool) -> None:
    (request,) = wish(remote, CHANGES).upstream
    step = remote.answered(reply(request, code), FOREIGN)
    assert (len(step.granted), len(step.refused)) == (is_granted, not is_granted)
    assert remote.holds(FOREIGN) is is_granted


def test_a_renewal_without_an_answer_is_nobody_s_wish(remote: RemoteSubscriptions) -> None:
    remote.restore([CHANGES])
    remote.renew(FOREIGN, 0.0)
    wish(remote, f"{ROOM}/status")
    assert [one.urls for one, _, _ in remote.expired(REQUEST_TTL_SECONDS + 2)] == [(f"{ROOM}/status",)]


def test_only_what_the_reporter_has_let_a_runtime_observe_is_asked_for(remote: RemoteSubscriptions) -> None:
    urls = [CHANGES, f"{ROOM}2/changes"]
    request = parsed(a_message("subscribe", ANA, FOREIGN_SM, {"resources": urls}, id_=1))
    members = codec.body_members(request.body)
    (upstream,) = remote.subscribe(request, members, 1, FOREIGN, 0.0, has_consent=CHANGES.__eq__).upstream
    assert codec.body_members(upstream.body)["resources"] == [CHANGES]
    (granted,) = remote.answered(reply(upstream), FOREIGN).granted
    assert (granted.urls, granted.refused) == ((CHANGES,), (f"{ROOM}2/changes",))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        remote.subscribe(request, members, 1, FOREIGN, 0.0, has_consent=lambda _key: False)


def test_what_was_refused_at_a_renewal_is_asked_for_until_a_renewal_is_granted(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    for code, asks_again in ((403, True), (200, False)):
        (renewal,) = remote.renew(FOREIGN, 1.0)
        assert remote.answered(reply(renewal, code), FOREIGN) == SubscriptionStep()
        step = wish(remote, CHANGES, sid=2)
        assert (len(step.upstream), len(step.granted)) == ((1, 0) if asks_again else (0, 1))


def test_an_answer_is_one_to_a_request_of_ours_and_to_us(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES).upstream
    answer = reply(request)
    assert request.id is not None
    assert remote.is_answer(answer)
    for type_, to, id_ in (
        ("response", ANA, int(request.id)),
        ("update", request.from_, int(request.id)),
        ("response", request.from_, int(request.id) + 1),
    ):
        assert not remote.is_answer(parsed(a_message(type_, request.to, to, {"code": 200}, id_=id_)))


def test_a_provisional_answer_changes_nothing(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES).upstream
    assert remote.answered(reply(request, 100), FOREIGN) == SubscriptionStep()
    assert len(remote.answered(reply(request, 200), FOREIGN).granted) == 1


def test_an_answer_of_a_third_domain_counts_for_nothing(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES).upstream
    forged = reply(request)
    assert remote.is_answer(forged)
    assert remote.answered(forged, "gamma.example") == SubscriptionStep()
    assert not remote.holds(FOREIGN)
    assert len(remote.answered(reply(request), FOREIGN).granted) == 1


def test_an_answer_counts_once(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES).upstream
    remote.answered(reply(request), FOREIGN)
    assert not remote.is_answer(reply(request))
    assert remote.answered(reply(request), FOREIGN) == SubscriptionStep()


def test_a_session_asks_for_no_more_at_once_than_it_may_listen_to(
    remote: RemoteSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_subscriptions, "SUBSCRIPTIONS_PER_SESSION", 3)
    (first,) = wish(remote, CHANGES, f"{ROOM}/status").upstream
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        wish(remote, f"{ROOM}1/changes", f"{ROOM}2/changes")
    assert wish(remote, f"{ROOM}1/changes", f"{ROOM}2/changes", sid=2).upstream
    (third,) = wish(remote, f"{ROOM}3/changes").upstream
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        wish(remote, f"{ROOM}4/changes")
    for request in (first, third):
        remote.answered(reply(request), FOREIGN)
    assert wish(remote, f"{ROOM}1/changes", f"{ROOM}2/changes").upstream
    remote.expired(REQUEST_TTL_SECONDS + 2)
    assert not remote._asked_by


def test_what_is_not_to_be_had_counts_among_what_a_session_asks_for(
    remote: RemoteSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_subscriptions, "SUBSCRIPTIONS_PER_SESSION", 4)
    (request,) = wish(remote, CHANGES, ROOM, f"{ROOM}/subscription").upstream
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        wish(remote, f"{ROOM}1/changes", f"{ROOM}2/changes")
    assert wish(remote, f"{ROOM}1/changes").upstream
    remote.answered(reply(request), FOREIGN)
    assert wish(remote, *(f"{ROOM}{number}/changes" for number in (2, 3, 4))).upstream
    remote.expired(REQUEST_TTL_SECONDS + 2)
    assert not remote._asked_by


def test_what_is_forgotten_is_asked_for_with_the_next_wish(remote: RemoteSubscriptions) -> None:
    remote.restore([CHANGES, f"{ROOM}/status"])
    remote.forget(CHANGES)
    remote.forget("comm://gamma.example/never/changes")
    assert [remote.has_key(key) for key in (CHANGES, f"{ROOM}/status")] == [False, True]
    (request,) = wish(remote, CHANGES, f"{ROOM}/status").upstream
    assert codec.body_members(request.body)["resources"] == [CHANGES]
    assert remote.nobody_listens([CHANGES], 0.0) == []


@pytest.mark.parametrize(("spare", "requests"), [(0, 2), (-1, 4)])
def test_addresses_are_named_together_up_to_the_length_of_a_request(
    remote: RemoteSubscriptions, monkeypatch: pytest.MonkeyPatch, spare: int, requests: int
) -> None:
    held = [f"{ROOM}{number}/changes" for number in range(4)]
    monkeypatch.setattr(remote_subscriptions, "_REQUEST_CHARS", 2 * len(held[0]) + spare)
    remote.restore(held)
    named = [texts_of(codec.body_members(one.body), "resources") for one in remote.renew(FOREIGN, 0.0)]
    assert [url for urls in named for url in urls] == held
    assert len(named) == requests


def test_of_a_wish_that_waits_no_more_is_kept_than_its_answer_needs(remote: RemoteSubscriptions) -> None:
    tracemalloc.start()
    for number in range(50):
        body = {"resource": f"{ROOM}{number}", "detail": True, "value": "x" * 100_000}
        request = parsed(a_message("subscribe", ANA, FOREIGN_SM, body, id_=number))
        remote.subscribe(request, codec.body_members(request.body), 1, FOREIGN, 0.0)
    del request, body
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 1_000_000
    assert len(remote.expired(REQUEST_TTL_SECONDS + 2)) == 50


def test_a_silent_domain_is_a_timeout(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES, now=100.0).upstream
    assert remote.expired(100.0 + REQUEST_TTL_SECONDS) == []
    ((late, status, reason),) = remote.expired(100.0 + REQUEST_TTL_SECONDS + 1)
    assert (late.sid, status, reason) == (1, 504, "timeout")
    assert not remote.is_answer(reply(request))


def test_the_last_listener_s_end_is_reported_and_nothing_is_renewed_then(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    (request,) = remote.nobody_listens([CHANGES], 1.0)
    assert (request.type, codec.body_members(request.body)["resources"]) == ("unsubscribe", [CHANGES])
    assert remote.renew(FOREIGN, 2.0) == []
    assert remote.nobody_listens([CHANGES], 3.0) == []


def test_a_new_link_renews_what_is_held_in_one_request(remote: RemoteSubscriptions) -> None:
    remote.restore([CHANGES, f"{ROOM}/status", "comm://gamma.example/x/changes"])
    (request,) = remote.renew(FOREIGN, 0.0)
    assert codec.body_members(request.body)["resources"] == [CHANGES, f"{ROOM}/status"]
    assert remote.answered(reply(request), FOREIGN) == SubscriptionStep()
    assert all(remote.has_key(key) for key in (CHANGES, f"{ROOM}/status", "comm://gamma.example/x/changes"))


@pytest.mark.parametrize(("count", "chars"), [(2 * RESOURCES_ENTRIES + 1, 8), (1_500, 2_000)])
def test_more_than_one_request_may_name_is_renewed_and_given_back_in_several(
    remote: RemoteSubscriptions, count: int, chars: int
) -> None:
    held = [f"comm://{FOREIGN}/{number:0{chars}d}/changes" for number in range(count)]
    remote.restore(held)
    for requests in (remote.renew(FOREIGN, 0.0), remote.nobody_listens(held, 0.0)):
        named = [texts_of(codec.body_members(one.body), "resources") for one in requests]
        assert [url for urls in named for url in urls] == held
        assert max(len(one.raw) for one in requests) < FRAME_BYTES
        assert [remote.answered(reply(one), FOREIGN) for one in requests] == [SubscriptionStep()] * len(requests)
    assert remote.renew(FOREIGN, 0.0) == []


def test_what_the_other_domain_lists_as_refused_is_not_held_and_reported(remote: RemoteSubscriptions) -> None:
    (request,) = wish(remote, CHANGES, f"{ROOM}/status").upstream
    (granted,) = remote.answered(reply(request, value={"refused": [CHANGES]}), FOREIGN).granted
    assert (granted.urls, granted.refused) == ((f"{ROOM}/status",), (CHANGES,))
    assert not remote.has_key(CHANGES)
    (request,) = wish(remote, CHANGES).upstream
    ((_, status, reason),) = remote.answered(reply(request, value={"refused": [CHANGES]}), FOREIGN).refused
    assert (status, reason) == (403, "not-owner")


OLD_FORM = {"resource": ROOM, "childrenResources": ["m"]}
OLD_SPELLING = f"{ROOM}/m"


def wish_in_old_form(remote: RemoteSubscriptions, sid: int) -> SubscriptionStep:
    request = parsed(a_message("subscribe", ANA, FOREIGN_SM, {**OLD_FORM, "source": ANA}, id_=1))
    return remote.subscribe(request, codec.body_members(request.body), sid, FOREIGN, 0.0)


def test_who_is_refused_only_what_is_new_hears_what_this_node_hears_already(remote: RemoteSubscriptions) -> None:
    (request,) = wish_in_old_form(remote, 1).upstream
    (first,) = remote.answered(reply(request, value={"refused": [OLD_SPELLING]}), FOREIGN).granted
    (request,) = wish_in_old_form(remote, 2).upstream
    assert codec.body_members(request.body)["resources"] == [OLD_SPELLING]
    (second,) = remote.answered(reply(request, 403, reason="not-owner"), FOREIGN).granted
    assert (second.sid, second.urls, second.refused) == (2, first.urls, (OLD_SPELLING,))
    assert CHANGES in second.urls


def test_a_failure_abroad_grants_nothing_at_all(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    (request,) = wish(remote, CHANGES, f"{ROOM}/status", sid=2).upstream
    step = remote.answered(reply(request, 503, reason="overload"), FOREIGN)
    assert (step.granted, [(code, reason) for _, code, reason in step.refused]) == ([], [(503, "overload")])
    assert remote.has_key(CHANGES)


def test_an_object_deleted_while_a_wish_is_under_way_is_asked_for_again(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    (request,) = wish(remote, CHANGES, f"{ROOM}/status", sid=2).upstream
    remote.object_deleted(FOREIGN, ROOM)
    step = remote.answered(reply(request), FOREIGN)
    assert step.granted == []
    assert codec.body_members(step.upstream[0].body)["resources"] == [CHANGES]
    assert len(remote.answered(reply(step.upstream[0]), FOREIGN).granted) == 1
    assert remote.expired(1e9) == []


def test_what_a_wish_under_way_names_is_not_given_back(remote: RemoteSubscriptions) -> None:
    remote.answered(reply(wish(remote, CHANGES).upstream[0]), FOREIGN)
    (request,) = wish(remote, CHANGES, f"{ROOM}/status", sid=2).upstream
    assert remote.nobody_listens([CHANGES], 1.0) == []
    remote.answered(reply(request), FOREIGN)
    assert len(remote.nobody_listens([CHANGES], 1.0)) == 1


@pytest.mark.parametrize(("code", "more"), [(403, {}), (300, {}), (200, {"value": {"refused": [CHANGES]}})])
def test_after_a_refused_renewal_the_next_wish_asks_again(
    remote: RemoteSubscriptions, code: int, more: dict[str, object]
) -> None:
    remote.restore([CHANGES])
    (renewal,) = remote.renew(FOREIGN, 0.0)
    remote.answered(reply(renewal, code, **more), FOREIGN)
    (request,) = wish(remote, CHANGES).upstream
    assert len(remote.answered(reply(request), FOREIGN).granted) == 1
    assert wish(remote, CHANGES).upstream == []


@pytest.mark.parametrize("code", [200, 299])
def test_after_a_renewal_the_next_wish_asks_for_nothing_that_was_renewed(
    remote: RemoteSubscriptions, code: int
) -> None:
    remote.restore([CHANGES])
    (renewal,) = remote.renew(FOREIGN, 0.0)
    remote.answered(reply(renewal, code), FOREIGN)
    assert wish(remote, CHANGES).upstream == []


@pytest.mark.parametrize("url", [ROOM, f"{ROOM}/subscription", "hyperty://beta.example/h-bo", f"{ROOM}/*"])
def test_nobody_listens_here_to_what_is_meant_for_others_abroad(remote: RemoteSubscriptions, url: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.NOT_OWNER):
        wish(remote, url)
    (request,) = wish(remote, url, CHANGES).upstream
    assert codec.body_members(request.body)["resources"] == [CHANGES]
    (granted,) = remote.answered(reply(request), FOREIGN).granted
    assert (granted.urls, granted.refused) == ((CHANGES,), (url,))


def test_a_deleted_object_is_not_listened_to_any_more_and_nobody_is_notified(remote: RemoteSubscriptions) -> None:
    remote.restore([CHANGES, f"{ROOM}/children/m", "comm://beta.example/room2/changes"])
    remote.object_deleted(FOREIGN, ROOM)
    (request,) = remote.renew(FOREIGN, 0.0)
    assert codec.body_members(request.body)["resources"] == ["comm://beta.example/room2/changes"]


@pytest.mark.parametrize(
    ("urls", "code"),
    [
        ((), Code.BAD_BODY),
        (("comm://gamma.example/x/changes",), Code.SPOOFED_SOURCE),
        ((CHANGES, "comm://alpha.example/x/changes"), Code.SPOOFED_SOURCE),
        (("comm://beta.example.evil/x",), Code.SPOOFED_SOURCE),
        (("plain",), Code.SPOOFED_SOURCE),
    ],
)
def test_resources_of_other_domains_are_refused_before_anything_is_asked(
    remote: RemoteSubscriptions, urls: tuple[str, ...], code: Code
) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        wish(remote, *urls)
    assert remote.expired(1e9) == []


# With the bus around it.


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def subscribing(runtime: Runtime, rig: RuntimeRig, id_: int = 1) -> list[Json]:
    """Have a runtime ask; what went to the other domain."""
    await runtime.say(
        a_message(
            "subscribe", runtime.address, FOREIGN_SM, {"resources": [CHANGES], "source": runtime.address}, id_=id_
        )
    )
    assert await runtime.heard() == []
    return rig.domains.take()


def from_far(request: Json, code: int = 200) -> Message:
    return parsed(a_message("response", request["to"], request["from"], {"code": code}, id_=request["id"]))


def a_change(value: int) -> Message:
    return parsed(a_message("update", f"hyperty://{FOREIGN}/h", CHANGES, {"value": value}))


async def test_a_runtime_is_answered_after_the_other_domain_and_changes_are_fanned_out(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (request,) = await subscribing(ana, rig)
    rig.bus.from_links.take(FOREIGN, [from_far(request)])
    answer = await ana.next()
    assert (answer["id"], answer["from"], answer["body"]["code"]) == (1, FOREIGN_SM, 200)
    await bo.say(a_message("subscribe", bo.address, FOREIGN_SM, {"resources": [CHANGES], "source": bo.address}, id_=2))
    assert (await bo.next())["body"]["code"] == 200
    assert rig.domains.take() == []
    assert rig.bus.from_links.take(FOREIGN, [a_change(1), a_change(2)]) == [None, None]
    for runtime in (ana, bo):
        assert [one["body"]["value"] for one in await runtime.heard()] == [1, 2]


@pytest.mark.parametrize("refused", [[], [OLD_SPELLING]])
async def test_every_observer_hears_an_object_subscribed_by_resource_and_children(
    rig: RuntimeRig, refused: list[str]
) -> None:
    heard = []
    for number, name in enumerate(("ana", "bo", "cy"), 1):
        runtime = await rig.opened(name)
        body = {**OLD_FORM, "source": runtime.address}
        await runtime.say(a_message("subscribe", runtime.address, FOREIGN_SM, body, id_=number))
        heard += await runtime.heard()
        for request in rig.domains.take():
            is_all_refused = set(request["body"]["resources"]) <= set(refused)
            answer: Json = {"code": 403, "reason": "not-owner"} if is_all_refused else {"code": 200}
            answer["value"] = {"refused": refused}
            reply_ = a_message("response", request["to"], request["from"], answer, id_=request["id"])
            rig.bus.from_links.take(FOREIGN, [parsed(reply_)])
        heard.append(await runtime.next() if not heard or heard[-1]["id"] != number else heard.pop())
        assert (heard[-1]["id"], heard[-1]["body"]["code"]) == (number, 200)
        assert heard[-1]["body"].get("value", {}).get("refused", []) == refused
        rig.bus.from_links.take(FOREIGN, [a_change(number)])
        assert [one["body"]["value"] for one in await runtime.heard()] == [number]


async def test_a_wish_that_fails_leaves_nothing_behind_that_nobody_listens_to(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (request,) = await subscribing(ana, rig)
    rig.bus.from_links.take(FOREIGN, [from_far(request)])
    await ana.next()
    body = {"resources": [CHANGES, f"{ROOM}/status"], "source": bo.address}
    await bo.say(a_message("subscribe", bo.address, FOREIGN_SM, body, id_=2))
    assert await bo.heard() == []
    (request,) = rig.domains.take()
    await ana.ask("unsubscribe", FOREIGN_SM, {"resources": [CHANGES]})
    assert rig.domains.take() == []
    rig.bus.from_links.take(FOREIGN, [from_far(request, 503)])
    assert (await bo.next())["body"]["code"] == 503
    (last,) = rig.domains.take()
    assert (last["type"], last["body"]["resources"]) == ("unsubscribe", [CHANGES])


async def test_upstream_ends_with_the_last_listener(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (request,) = await subscribing(ana, rig)
    rig.bus.from_links.take(FOREIGN, [from_far(request)])
    await ana.next()
    await bo.ask("subscribe", FOREIGN_SM, {"resources": [CHANGES], "source": bo.address})
    await ana.ask("unsubscribe", FOREIGN_SM, {"resources": [CHANGES]})
    assert rig.domains.take() == []
    await bo.say(a_message("close", bo.session_address, "mn:/session", id_=1))
    await bo.close_code()
    (last,) = rig.domains.take()
    assert (last["type"], last["body"]["resources"]) == ("unsubscribe", [CHANGES])
    assert rig.bus.from_links.take(FOREIGN, [a_change(1)]) == [Code.TRANSIT]
    assert await ana.heard() == []


async def test_a_refused_link_is_the_answer(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    rig.domains.refusals[FOREIGN] = Refusal(Code.DOMAIN_BLOCKED)
    answer = await ana.ask("subscribe", FOREIGN_SM, {"resources": [CHANGES], "source": ANA})
    assert (answer["body"]["code"], answer["body"]["reason"]) == (403, "domain-blocked")
    assert not rig.bus.foreign.is_wanted(FOREIGN)


async def test_a_forged_answer_of_another_domain_grants_nothing(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (request,) = await subscribing(ana, rig)
    rig.bus.from_links.take("gamma.example", [from_far(request)])
    assert await ana.heard() == []
    assert not rig.bus.foreign.is_wanted(FOREIGN)


async def test_a_runtime_that_left_meanwhile_leaves_nothing_behind(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    (request,) = await subscribing(ana, rig)
    await ana.say(a_message("close", ana.session_address, "mn:/session", id_=2))
    await ana.close_code()
    rig.bus.from_links.take(FOREIGN, [from_far(request)])
    (undone,) = rig.domains.take()
    assert undone["type"] == "unsubscribe"
    assert await bo.heard() == []


async def test_a_link_that_comes_back_renews_what_runtimes_listen_to(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    (request,) = await subscribing(ana, rig)
    rig.bus.from_links.take(FOREIGN, [from_far(request)])
    rig.bus.foreign.link_is_live(FOREIGN)
    (renewal,) = rig.domains.take()
    assert (renewal["type"], renewal["body"]["resources"]) == ("subscribe", [CHANGES])


async def test_after_a_restart_the_node_still_knows_what_it_listens_to(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as before:
        ana = await before.opened("ana")
        (request,) = await subscribing(ana, before)
        before.bus.from_links.take(FOREIGN, [from_far(request)])
        await ana.next()
    async with runtime_rig(tmp_path) as after:
        assert after.bus.foreign.is_wanted(FOREIGN)
        after.bus.foreign.link_is_live(FOREIGN)
        assert [one["body"]["resources"] for one in after.domains.take()] == [[CHANGES]]


async def test_our_own_subscription_manager_does_not_take_foreign_events_as_ours(rig: RuntimeRig) -> None:
    ana = await rig.opened("ana")
    answer = await ana.subscribed(CHANGES, to=SM)
    assert answer["body"]["code"] == 200
    assert rig.bus.foreign.is_wanted(FOREIGN) is False
