"""Checks passwords of local users, in processes of their own, and ends log-ins of users that were changed by a command.

A check costs memory and time on purpose, so only so many run side by side. A name that nobody has, and a user that is
disabled, cost as much as others and are refused alike.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

import trio
from msgspec.structs import replace

from msg_node.identity.core.password_attempts import Bound, PasswordAttempts, Pause
from msg_node.identity.core.password_login import PasswordQuestion, PasswordVerdict
from msg_node.identity.hashing import Hashing
from msg_node.identity.password_hash import HashCost
from msg_node.identity.user_store import LocalUser, Users
from protofly.errors import HostError, PeerError
from protofly.limits import SESSION_TOKEN_MAX_SECONDS

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 1.0
_TOKENS_SECONDS: Final = 2 * SESSION_TOKEN_MAX_SECONDS
"""After that time every token of a log-in that has ended has expired, and none can be renewed."""
_WRONG: Final = PasswordVerdict(is_right=False)
_GONE: Final = PasswordVerdict(is_right=False, pause=Pause(1.0, Bound.HERE))

EndUser = Callable[[str, float], None]
"""Ends the log-ins of a user that began up to a moment. Raises PeerError when too many are remembered."""
NetworkOf = Callable[[int], str | None]
"""Where the session of that number is connected from, None when it is not."""


class PasswordCheck:
    """The passwords of one node.

    Args:
        users: Who has which password.
        end_user: Ends log-ins.
        network_of: Where somebody is who wants to log in.
        now: Seconds since the Unix epoch.
    """

    def __init__(
        self, users: Users, *, end_user: EndUser, network_of: NetworkOf, now: Callable[[], float] = time.time
    ) -> None:
        self.users = users
        self._now = now
        self._end_user = end_user
        self._network_of = network_of
        self._limiter = trio.CapacityLimiter(1)
        self.hashing = Hashing()
        self.cost: HashCost | None = None
        """Of new hashes; None: local users cannot log in."""
        self._attempts = PasswordAttempts()
        self._ended: dict[str, float] = {}

    def follow(self, cost: HashCost | None, checks: int = 1) -> None:
        """Hash at this cost from now on, and check so many passwords side by side; None: check none, for now."""
        self.cost = cost
        self._limiter.total_tokens = checks

    async def ask(self, question: PasswordQuestion) -> PasswordVerdict:
        """Check a password.

        Raises:
            HostError: Users cannot be read, this one was changed while it got a new password, or the node stops.
        """
        network, cost, user = self._network_of(question.session), self.cost, question.user
        if network is None or cost is None:  # a session without a connection counts for no network
            return _GONE
        pause = self._attempts.admit(user, network, self._now())
        if pause is not None:
            if pause.bound is Bound.USER:
                logger.warning("passwords of user %s are guessed from many networks", user or "(no name of a user)")
            return PasswordVerdict(is_right=False, pause=pause)
        began, found = await trio.to_thread.run_sync(self._check, question, cost, limiter=self._limiter)
        if found is None:
            return _WRONG
        self._attempts.succeeded(user, network, self._now())
        if question.new_password:
            self.end_changed([found])
        return PasswordVerdict(is_right=True, roles=found.roles, began=began)

    async def run(self) -> None:
        """Look every second whether users were changed, while there are any, until cancelled."""
        version = -1
        while True:
            try:
                found = -1 if self.cost is None else await trio.to_thread.run_sync(self.users.version)
                if found != version and found != -1:
                    self.end_changed(await trio.to_thread.run_sync(self._load))
                version = found
            except HostError as exc:
                logger.error("users cannot be looked after; trying again: %s", exc)
            await trio.to_thread.run_sync(self.hashing.end_idle)
            await trio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Let the users go; a check under way fails."""
        self.hashing.close()
        self.users.close()

    def end_changed(self, users: Iterable[LocalUser]) -> None:
        """End the log-ins of users that began before they were changed."""
        oldest = self._now() - _TOKENS_SECONDS
        for user in users:
            if user.ended_at > oldest and user.ended_at > self._ended.get(user.name, 0.0):
                self._end_user(user.name, user.ended_at)
                self._ended[user.name] = user.ended_at

    # In a thread.

    def _load(self) -> list[LocalUser]:
        self.users.forget_removed(self._now() - _TOKENS_SECONDS)
        return self.users.load()

    def _check(self, question: PasswordQuestion, cost: HashCost) -> tuple[float, LocalUser | None]:
        """Return when the user was looked up, and the user if the password is right."""
        return self._now(), self._checked(question, cost)

    def _checked(self, question: PasswordQuestion, cost: HashCost) -> LocalUser | None:
        found = self.users.find(question.user)
        user = found if found is not None and found.hash and not found.is_disabled else None
        compared = cost.hash_of_nobody() if user is None else user.hash
        if not self.hashing.is_right(question.password, compared) or user is None:
            return None
        if question.new_password:
            changed = replace(user, hash=self.hashing.hash(cost, question.new_password), ended_at=self._now())
            self.users.replace(user, changed)
            return changed
        if not cost.is_of(user.hash):
            with contextlib.suppress(PeerError):  # then it was changed meanwhile, and is right as it is
                self.users.replace(user, replace(user, hash=self.hashing.hash(cost, question.password)))
        return user
