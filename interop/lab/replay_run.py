"""Replays from nothing: a laboratory is made, plays, and is thrown away; or one that is kept plays."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import trio

from interop.lab.kept import KeptLab, OnPrepared, make_lab
from interop.lab.replay import Replay, ReplayReport, domains_needed
from protofly.conversation import Conversation
from protofly.errors import SettingsError


def replay_in_fresh(conversation: Conversation, speed: float, on_prepared: OnPrepared) -> ReplayReport:
    """Play a recording against a laboratory that is made for it.

    Raises:
        SettingsError: The recording cannot be played, or the laboratory not be made.
        TransportError: A node did not become ready, or takes no runtime.
    """
    count = domains_needed(conversation)
    with tempfile.TemporaryDirectory(prefix="trapezoid-replay-") as scratch:
        folder = Path(scratch) / "lab"
        lab = trio.run(make_lab, folder, count, on_prepared)
        try:
            return trio.run(_up_and_play, conversation, lab, speed, on_prepared)
        finally:
            lab.down()


def replay_in_kept(conversation: Conversation, speed: float, lab: KeptLab) -> ReplayReport:
    """Play a recording against a laboratory that runs.

    Raises:
        SettingsError: The recording cannot be played there, or a node of it does not run.
        TransportError: A node takes no runtime.
    """
    stopped = [one.domain for one in trio.run(lab.states) if one.state != "running"]
    if stopped:
        raise SettingsError(f"{', '.join(stopped)} does not run; start it by `trapezoid lab up {lab.path}`")
    return trio.run(partial(Replay(conversation, lab, speed=speed).run))


async def _up_and_play(conversation: Conversation, lab: KeptLab, speed: float, on_prepared: OnPrepared) -> ReplayReport:
    await lab.up(on_prepared)
    await lab.exchange()  # the first message between two domains starts a stub: no part of the conversation
    return await Replay(conversation, lab, speed=speed).run()
