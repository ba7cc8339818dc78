"""Which of the session tokens that we have signed count no more although their time is not over.

Theory of operation. Every token belongs to a *login* and has a number in it: 0 at first, one more with each renewal. Of
a login only one thing has to be remembered, a *mark*: the least number that still counts. Renewing token n raises
it to n + 1, so that a token is renewed once; revoking raises it above every number. Most logins are never renewed or
revoked, and need no mark.

An operator can end all logins of a user: then the mark, under the name of the user, is the least moment of a login that
counts.

A token that is renewed a second time was copied. Which of the two holders is the user cannot be known, so the login
ends for both. Source: RFC 9700, section 4.14.2.

A mark is needed until the last token of its login that it excludes has expired by itself. How many there are is
bounded, for each user and in all, and none is ever given up early: when there is no room nothing is renewed any more,
and revoking has as much room again. `now` is in seconds since the Unix epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from msg_node.kernel.deadlines import Deadlines
from protofly.errors import Code, PeerError
from protofly.limits import TOKEN_MARKS, TOKEN_MARKS_PER_USER

REVOKED: Final = 1 << 53
"""The least number of a login that has ended: above every number that a token can have."""

_OF_USER: Final = "@"  # no login begins with it
_PRUNED_AT_ONCE: Final = 100


class TokenMark(msgspec.Struct, frozen=True):
    """The stored state of a login: its user, the least valid number, and until when that matters.

    Of all logins of a user together: the least moment that counts, in whole seconds since the Unix epoch.
    """

    login: str
    user: str
    least: int
    until: float

    @property
    def is_revoked(self) -> bool:
        """True if the login has ended."""
        return self.least >= REVOKED

    @property
    def is_of_user(self) -> bool:
        """True if it is about all logins of its user."""
        return self.login.startswith(_OF_USER)


class IssuedTokens:
    """The marks of all logins.

    Args:
        max_marks: For renewals; revoking may use as many again.
        max_per_user: The same for one user.
    """

    def __init__(self, *, max_marks: int = TOKEN_MARKS, max_per_user: int = TOKEN_MARKS_PER_USER) -> None:
        self._max_marks = max_marks
        self._max_per_user = max_per_user
        self._marks: dict[str, TokenMark] = {}
        self._of_user: Counter[str] = Counter()
        self._due = Deadlines()

    def __len__(self) -> int:
        return len(self._marks)

    def least(self, login: str) -> int:
        """The least number of a login that counts."""
        mark = self._marks.get(login)
        return 0 if mark is None else mark.least

    def least_moment(self, user: str) -> int:
        """The least moment of a login of a user that counts."""
        return self.least(_OF_USER + user)

    def revoked(self) -> list[str]:
        """Logins that have ended and are remembered."""
        return [mark.login for mark in self._marks.values() if mark.is_revoked]

    def renew(self, login: str, user: str, number: int, *, until: float, now: float) -> TokenMark:
        """Token `number` of a login gives way to the next one, which expires at `until`.

        The caller has checked that it counts (`least`).

        Raises:
            PeerError: QUOTA, OVERLOAD; then it still counts.
        """
        self._check_room(login, user, 1, now)
        return self._keep(TokenMark(login, user, number + 1, until))

    def revoke(self, login: str, user: str, *, until: float, now: float) -> TokenMark:
        """A login has ended; its last token can expire at `until` at the latest.

        Raises:
            PeerError: QUOTA, OVERLOAD; then it goes on.
        """
        self._check_room(login, user, 2, now)
        return self._keep(TokenMark(login, user, REVOKED, until))

    def revoke_all(self, user: str, *, moment: float, until: float, now: float) -> TokenMark:
        """All logins of a user up to a moment have ended; their last token can expire at `until` at the latest.

        Raises:
            PeerError: QUOTA, OVERLOAD; then they go on.
        """
        self._check_room(_OF_USER + user, user, 2, now)
        return self._keep(TokenMark(_OF_USER + user, user, int(moment) + 1, until))

    def restore(self, marks: Iterable[TokenMark], *, now: float) -> None:
        """Take over what was remembered."""
        for mark in marks:
            if mark.until > now:
                self._keep(mark)

    def _check_room(self, login: str, user: str, share: int, now: float) -> None:
        self._prune(now)
        if login in self._marks:
            return
        if self._of_user[user] >= share * self._max_per_user:
            raise PeerError(Code.QUOTA, "this user has too many logins")
        if len(self._marks) >= share * self._max_marks:
            raise PeerError(Code.OVERLOAD, "this node remembers too many logins")

    def _keep(self, mark: TokenMark) -> TokenMark:
        """In place of what was known of the login; a mark never goes back."""
        known = self._marks.get(mark.login)
        if known is None:
            self._of_user[mark.user] += 1
        else:
            mark = TokenMark(mark.login, mark.user, max(mark.least, known.least), max(mark.until, known.until))
        self._marks[mark.login] = mark
        self._due.set(mark.login, mark.until)
        return mark

    def _prune(self, now: float) -> None:
        """Forget some of those that say nothing any more: more than come in meanwhile."""
        for login in self._due.take_due(now, _PRUNED_AT_ONCE):
            mark = self._marks.pop(login)
            self._of_user[mark.user] -= 1
            if not self._of_user[mark.user]:
                del self._of_user[mark.user]
