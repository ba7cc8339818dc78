"""Keeps what becomes of session tokens durable, and follows what becomes of them at other nodes of the domain.

A mark is announced to the other nodes as it is stored. A node that may have missed an announcement reads all marks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.identity.core.login_service import LoginService
from protofly.errors import HostError

logger = logging.getLogger("msg_node")

CHANNEL: Final = "trapezoid_token_mark"
ANNOUNCED_BYTES: Final = 7_000
"""Longest mark that fits into an announcement; after a longer one everything is read anew."""
RETRY_SECONDS: Final = 1.0


class TokenMarks(Protocol):
    """Durable marks. Blocks; every method raises HostError."""

    def load(self) -> list[TokenMark]:
        """All marks."""

    def keep(self, mark: TokenMark, *, now: float) -> bool:
        """Remember a mark; False when another node has raised it as far already."""

    def close(self) -> None:
        """Let them go."""


class MarkKeeper:
    """The marks of a domain, as one of its nodes makes and follows them.

    Args:
        marks: Where they are durable.
        logins: The logins that they are about.
    """

    def __init__(self, marks: TokenMarks, logins: LoginService) -> None:
        self._marks = marks
        self._logins = logins
        self._may_miss_some = trio.Event()

    async def keep(self, mark: TokenMark) -> None:
        """Make a mark durable.

        Raises:
            HostError: It is not durable. RenewedBeforeError: another node has renewed that token before.
        """
        if await trio.to_thread.run_sync(partial(self._marks.keep, mark, now=time.time())):
            return
        if not mark.is_revoked and not mark.is_of_user:
            refused = self._logins.renewed_elsewhere(mark, time.time())
            await trio.to_thread.run_sync(partial(self._marks.keep, refused.mark, now=time.time()))
            raise refused

    def heard(self, payloads: Collection[str] | None) -> None:
        """Marks were announced; None: some may have been missed."""
        marks = None if payloads is None else announced(payloads)
        if marks is None:
            self._may_miss_some.set()
        else:
            self._logins.raised_elsewhere(marks, time.time())

    async def run(self) -> None:
        """Read all marks whenever some may have been missed, until cancelled."""
        while True:
            await self._may_miss_some.wait()
            self._may_miss_some = trio.Event()
            try:
                marks = await trio.to_thread.run_sync(self._marks.load)
            except HostError as exc:
                logger.error("what became of tokens cannot be read; trying again: %s", exc)
                self._may_miss_some.set()
                await trio.sleep(RETRY_SECONDS)
            else:
                self._logins.raised_elsewhere(marks, time.time())

    def close(self) -> None:
        """Let the marks go."""
        self._marks.close()


def announcement(mark: TokenMark) -> str:
    """A mark as others read it; "" for one that is too long."""
    text = msgspec.json.encode(mark)
    return text.decode() if len(text) <= ANNOUNCED_BYTES else ""


def announced(payloads: Collection[str]) -> list[TokenMark] | None:
    """The marks of announcements; None when one of them is in none that this version can read."""
    try:
        return [msgspec.json.decode(one, type=TokenMark) for one in payloads]
    except msgspec.MsgspecError:
        return None
