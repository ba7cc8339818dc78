"""Checks passwords of local users, in threads, and ends log-ins of users that were changed by a command.

A check costs memory and time on purpose, so only so many run side by side. A name that nobody has, and a user that is
disabled, cost as much as others and are refused alike.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import trio

from msg_node.identity.core.password_login import Attempts, PasswordQuestion, PasswordVerdict
from msg_node.identity.password_hash import HashCost, is_right
from msg_node.identity.user_store import LocalUser, UserStore
from protofly.errors import HostError
from protofly.limits import SESSION_TOKEN_MAX_SECONDS

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 1.0
_TOKENS_SECONDS: Final = 2 * SESSION_TOKEN_MAX_SECONDS
"""After that time every token of a log-in that has ended has expired, and none can be renewed."""
_WRONG: Final = PasswordVerdict(is_right=False)

EndUser = Callable[[str, float], None]
"""Ends the log-ins of a user that began up to a moment."""


class PasswordCheck:
    """The passwords of one node.

    Args:
        users: Who has which.
        cost: Of new hashes.
        most: Checks side by side.
        end_user: Ends log-ins. Raises PeerError when too many are remembered.
    """

    def __init__(self, users: UserStore, cost: HashCost, *, most: int, end_user: EndUser) -> None:
        self._users = users
        self._cost = cost
        self._limiter = trio.CapacityLimiter(most)
        self._end_user = end_user
        self._attempts = Attempts()
        self._nobody = cost.hash("nobody has this password")
        self._ended: dict[str, float] = {}

    async def ask(self, question: PasswordQuestion) -> PasswordVerdict:
        """Check a password.

        Raises:
            HostError: STORAGE.
        """
        by_user, by_runtime = f"user {question.user}", f"runtime {question.runtime}"
        wait = self._attempts.admit((by_user, by_runtime), time.time())
        if wait:
            return PasswordVerdict(is_right=False, retry_seconds=wait)
        user = await trio.to_thread.run_sync(self._check, question, limiter=self._limiter)
        if user is None:
            return _WRONG
        self._attempts.succeeded(by_user)
        self._attempts.not_failed(by_runtime)
        return PasswordVerdict(is_right=True, roles=user.roles)

    async def run(self) -> None:
        """Look every second whether users were changed, until cancelled."""
        version = -1
        while True:
            try:
                found = await trio.to_thread.run_sync(self._users.version)
                if found != version:
                    self._end_changed(await trio.to_thread.run_sync(self._load))
                    version = found
            except HostError as exc:
                logger.error("users cannot be looked after; trying again: %s", exc)
            await trio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Close the file of users."""
        self._users.close()

    def _end_changed(self, users: list[LocalUser]) -> None:
        oldest = time.time() - _TOKENS_SECONDS
        for user in users:
            if user.ended_at > oldest and user.ended_at > self._ended.get(user.name, 0.0):
                self._end_user(user.name, user.ended_at)
                self._ended[user.name] = user.ended_at

    # In a thread.

    def _load(self) -> list[LocalUser]:
        self._users.forget_removed(time.time() - _TOKENS_SECONDS)
        return self._users.load()

    def _check(self, question: PasswordQuestion) -> LocalUser | None:
        found = self._users.find(question.user)
        user = found if found is not None and found.hash and not found.is_disabled else None
        if not is_right(question.password, self._nobody if user is None else user.hash) or user is None:
            return None
        if not self._cost.is_of(user.hash):
            self._users.rehash(user, self._cost.hash(question.password))
        return user
