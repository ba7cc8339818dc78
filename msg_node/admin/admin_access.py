"""Who may use the admin site: the holder of its token, and only directly.

A request that a proxy has passed on is refused unless the settings expect one. Clients that try wrong tokens are
answered 429 after some of them, by address; the right token counts always, so that nobody can lock operators out.
"""

from __future__ import annotations

from typing import Final

import trio
from starlette.requests import Request

from msg_node.admin.admin_token import AdminToken
from msg_node.admin.administration import HOLDER, Actor
from msg_node.connectors.http_line import remote_of
from msg_node.kernel.keyed_rates import KeyedRates
from msg_node.site.site import is_forwarded
from protofly.errors import Code, PeerError
from wire.core.address_group import address_group

FAILURES: Final = 10
"""Wrong tokens of one address, until it has to wait; one more is free every ten seconds."""
_FAILURES_PER_SECOND: Final = 0.1
_ADDRESSES: Final = 4096


class AdminAccess:
    """Judges requests.

    Args:
        token: The token.

    Attributes:
        behind_proxy: Requests may come through a proxy.
    """

    def __init__(self, token: AdminToken, *, behind_proxy: bool) -> None:
        self.token = token
        self.behind_proxy = behind_proxy
        self._failures = KeyedRates(
            per_second=_FAILURES_PER_SECOND, burst_seconds=FAILURES / _FAILURES_PER_SECOND, most=_ADDRESSES
        )

    def check_way(self, request: Request) -> None:
        """Refuse what a proxy has passed on.

        Raises:
            PeerError: POLICY.
        """
        if not self.behind_proxy and is_forwarded(request):
            raise PeerError(Code.POLICY, "this request was passed on by a proxy; see `admin.behind_proxy`")

    def actor_of(self, request: Request) -> Actor:
        """Find who asks, by the field `Authorization`.

        Raises:
            PeerError: POLICY, NO_CREDENTIALS, BAD_TOKEN; RATE after too many of these.
        """
        self.check_way(request)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise PeerError(Code.NO_CREDENTIALS, "the admin site wants `Authorization: Bearer` and its token")
        return self.actor_with(given.strip(), request)

    def actor_with(self, given: str, request: Request) -> Actor:
        """Find who gives a token with a request. Raises PeerError BAD_TOKEN or RATE."""
        remote = remote_of(request.scope)
        if self.token.is_right(given):
            return Actor(f"holder of the admin token at {remote}", "https", HOLDER)
        wait_seconds = self._failures.take(address_group(remote), trio.current_time())
        if wait_seconds > 0.0:
            raise PeerError(Code.RATE, f"too many wrong tokens; wait {wait_seconds:.0f} s")
        raise PeerError(Code.BAD_TOKEN, "this is not the token of the admin site")
