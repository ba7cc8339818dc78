"""Members of every wrong kind from a runtime, a guest and a link, at random: nobody finds a defect, others are served.

What is said late of such messages, as when their time is over or their link is given up, is looked at as well.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import trio

from federation.core.carrier import Accepted, Refused
from federation.links.domain_link import DomainLink
from protofly import codec
from protofly.address import is_address
from protofly.errors import Code, PeerError
from protofly.limits import WAITING_SECONDS
from tests.attacks.test_foreign_runtimes import BO, guest, hosted
from tests.support.hostile_values import UNREADABLE, hostile_message
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    FOREIGN_SM,
    NODE,
    SESSION,
    SM,
    Runtime,
    RuntimeRig,
    runtime_address,
)
from tests.support.sides import Bus, Clock, Pair

EVE = runtime_address("eve")
HERE = [
    *(EVE, runtime_address("bo"), SM, ALLOCATION, f"domain://registry.{DOMAIN}", f"comm://{DOMAIN}/room/changes"),
    *(f"comm://{FOREIGN}/room", FOREIGN_SM, SESSION, NODE, f"{NODE}/sm", f"user://{DOMAIN}/bo", "global://registry/"),
    *(f"domain://qos.{DOMAIN}", f"domain://idm.{DOMAIN}", f"comm://{DOMAIN}/room/subscription", BO),
]
ABROAD = [f"hyperty://{FOREIGN}/h", FOREIGN_SM, f"runtime://{FOREIGN}/z"]
ROUNDS, AT_ONCE = 10, 10


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def assert_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []


async def say(runtime: Runtime, random: Random, senders: list[str]) -> None:
    """Say nonsense; a node that has had enough of it closes."""
    with suppress(trio.BrokenResourceError):
        await runtime.say_raw(*(hostile_message(random, HERE, senders) for _ in range(AT_ONCE)))


def bring(rig: RuntimeRig, random: Random) -> None:
    """A link brings nonsense."""
    for _ in range(AT_ONCE):
        with suppress(PeerError):
            decoded = codec.decode(hostile_message(random, HERE, ABROAD))
            assert len(rig.bus.from_links.take(FOREIGN, decoded)) == len(decoded)


@pytest.mark.parametrize("seed", range(3))
async def test_a_node_that_hears_nonsense_serves_others_and_logs_no_defect(
    tmp_path: Path, logged: pytest.LogCaptureFixture, seed: int
) -> None:
    random = Random(seed)
    async with hosted(tmp_path) as rig:
        bo, visitor = await rig.opened("bo"), await guest(rig)
        for number in range(ROUNDS):
            eve = await rig.opened(f"eve-{number}")
            await say(eve, random, [eve.address, await eve.allocated(), random.choice(HERE)])
            await say(visitor, random, [BO, f"hyperty://{FOREIGN}/h", random.choice(HERE)])
            bring(rig, random)
            assert (await bo.ask("ping", SESSION))["type"] == "pong"
        rig.bus.sweeper._sweep_sessions()
        rig.bus.sweeper._sweep_actions()
        late = await rig.opened("late")
        assert (await late.ask("create", ALLOCATION, {"scheme": "comm"}))["body"]["code"] == 200
        assert rig.listener is not None
        assert rig.listener.counters["internal errors"] == 0
    assert_no_traceback(logged)


NAMES = [
    *UNREADABLE,
    *("mn:/session", "plain", "user://b.example/x", "user-guid://abc", "hyperty://b.example:80/x", "hyperty:///x"),
    *("comm://b.example/room/changes", "comm://b.example/room/subscription", "domain://msg-node.b.example/sm"),
    *("hyperty://a.example/ana", "hyperty://b.example/bo", "HYPERTY://A.EXAMPLE./ana", "thing://b.example/lamp"),
    *("runtime://a.example/z", "runtime://b.example/mn-1", "domain://registry.a.example", "comm://a.example/room"),
]


class History:
    """What happens to the link of b.example to a.example, at random; its clock is its own."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._now = 1000.0
        clock = Clock(self._now, lambda: self._now)
        self.pair = Pair(a=Bus("a.example", clock=clock), b=Bus("b.example", clock=clock))
        codes = [None, None, Code.NO_ROUTE, Code.POLICY, Code.NOT_CONNECTED]
        self.pair.b.refuse = lambda _message: self._random.choice(codes)
        self._carrier = self.pair.back()
        self._number = 1

    @property
    def link(self) -> DomainLink:
        return self.pair.to_a

    def go_on(self) -> None:
        """One thing more happens."""
        step = self._random.choice([self._hear, self._hear, self._hear, self._send, self._send, self._carry, self._end])
        step()

    def _hear(self) -> None:
        raws = [hostile_message(self._random, NAMES, NAMES) for _ in range(self._random.randrange(1, 6))]
        numbered = list(enumerate(raws, self._number))
        self._number += len(raws)
        with suppress(PeerError):  # the connection of a forger ends
            self.link.inbound(numbered, "5" * 32)

    def _send(self) -> None:
        senders = ["hyperty://b.example/bo", "comm://b.example/room/changes", "runtime://b.example/z"]
        with suppress(codec.BrokenMessageError):
            for message in codec.decode(hostile_message(self._random, NAMES, senders)):
                if is_address(message.from_) and is_address(message.to):  # else our bus does not send it
                    self.link.send(message)

    def _carry(self) -> None:
        if self.link.is_live:
            self.link.flush()
            self._carrier.cut()
        else:
            self._carrier.open()

    def _end(self) -> None:
        self._now += self._random.choice([0.1, WAITING_SECONDS, 100.0])
        queue, code = self.link.queue, self._random.choice(list(Code))
        kind = self._random.randrange(4)
        if kind == 0:
            self.link.tick(self._now)
        elif kind == 1:
            self.link.give_up(code, "x")
        elif kind == 2:
            for number in range(max(1, queue.next_number - 4), queue.next_number + 1):
                self.link.handle(Refused(number, code, "x"))
        else:
            self.link.handle(Accepted(self._random.randrange(queue.next_number + 2)))

    def close(self) -> None:
        """Everything that waits is too late, and the link is taken away."""
        while self.link.tick(self._now + 1000.0):
            pass
        self.link.retire(Code.OVERLOAD, "")


@pytest.mark.parametrize("seed", range(40))
def test_no_history_of_a_link_with_nonsense_raises_or_leaves_what_waits(
    logged: pytest.LogCaptureFixture, seed: int
) -> None:
    history = History(seed)
    for _ in range(60):
        history.go_on()
    history.close()
    assert history.link.queue.waiting == 0
    for answer in history.pair.b.answers:
        assert is_address(json.loads(answer.raw)["to"])
    assert_no_traceback(logged)
