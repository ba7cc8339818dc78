"""What one stub may do: its manifest asks, the policy grants, and this page says no.

Theory of operation: `Grants` is the intersection of manifest and policy and never changes while a stub runs. `Ledger`
counts what one instance has open and refuses what goes beyond. Every refusal is a `StubFaultError` with STUB_DENIED
and the permission's name, which the host turns into a `closed` or `auth_token` event, counts and shows; a refusal
alone does not end a stub.

A stub names endpoints, never hosts: the words checked here are keys of the signed `live` document.

Source: docs/abi.md, "Actions"; trust and hosts, sections 3.4 and 4.2 (permission list); section 7, rows 36, 44 and 46.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protofly import limits
from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import Action, ChannelKind

CHANNEL_MAX: Final = 65_535
TIMER_DELAY_MS_MAX: Final = 86_400_000
DENIALS_BEFORE_FAULT: Final = 1000
"""A stub that is refused so often does nothing else; the supervisor ends it."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Names of the endpoints it may connect to, whether the host signs for it, and whether it may speak HTTP to them.

    The default is nothing: without endpoints there is nobody to speak HTTP to.
    """

    endpoints: frozenset[str] = frozenset()
    auth: bool = False
    http: bool = True

    def check_open(self, endpoint: str, kind: int) -> None:
        """One `open` action.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        if endpoint not in self.endpoints:
            raise denied("connect", f"endpoint {endpoint[:80]!r} is not granted")
        if kind not in _KINDS:
            raise denied("connect", f"unknown kind of channel {kind}")
        if kind == ChannelKind.HTTP and not self.http:
            raise denied("http", "this stub may not open http channels")

    def check_auth(self) -> None:
        """One `request_auth_token` action.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        if not self.auth:
            raise denied("auth", "this stub may not ask for tokens")


class _Allowance:
    """So many a second, and as many at once."""

    def __init__(self, per_second: int) -> None:
        self._most = self._left = float(per_second)
        self._counted_at: float | None = None

    def takes(self, now: float) -> bool:
        """True if there is one left; then it is taken."""
        if self._counted_at is not None:
            self._left = min(self._most, self._left + (now - self._counted_at) * self._most)
        self._counted_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Ledger:
    """Open channels and timers, and allowances, of one instance. Times are seconds of any one monotonic clock."""

    def __init__(self, grants: Grants) -> None:
        self.grants = grants
        self.denials = 0
        self._unasked_most = self._requests_left = 0  # nothing before `begin_answer`
        self._channels: set[int] = set()
        self._timers: set[int] = set()
        self._log_lines = _Allowance(limits.STUB_LOG_LINES_PER_SECOND)
        self._states = _Allowance(limits.STUB_STATES_PER_SECOND)

    @property
    def channels(self) -> frozenset[int]:
        """Numbers of the channels that are open."""
        return frozenset(self._channels)

    def open_channel(self, channel: int, endpoint: str, kind: int) -> None:
        """Judge an `open` action and remember the channel.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        self.grants.check_open(endpoint, kind)
        if not 1 <= channel <= CHANNEL_MAX:
            raise denied("connect", f"channel {channel} is not between 1 and {CHANNEL_MAX}")
        if channel in self._channels:
            raise denied("connect", f"channel {channel} is open already")
        if len(self._channels) >= limits.STUB_CHANNELS:
            raise denied("connect", f"more than {limits.STUB_CHANNELS} channels")
        self._channels.add(channel)

    def check_channel(self, channel: int) -> None:
        """Judge an action on a channel: it must be one of this instance's own.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        if channel not in self._channels:
            raise denied("channel", f"channel {channel} is not open")

    def close_channel(self, channel: int) -> None:
        """Release a channel that either side closed."""
        self._channels.discard(channel)

    def request_token(self, channel: int, challenge: bytes) -> None:
        """Judge a `request_auth_token` action.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        self.grants.check_auth()
        self.check_channel(channel)
        if not limits.CHALLENGE_BYTES_MIN <= len(challenge) <= limits.CHALLENGE_BYTES_MAX:
            raise denied("auth", f"a challenge of {len(challenge)} bytes")

    def set_timer(self, timer: int, payload: bytes) -> int:
        """Judge a `set_timer` action; the delay in milliseconds, 0 = cancel.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        if len(payload) != 4:
            raise denied("timer", f"a delay of {len(payload)} bytes instead of 4")
        delay_ms = int.from_bytes(payload, "little")
        if not delay_ms:
            self._timers.discard(timer)
            return 0
        if timer not in self._timers and len(self._timers) >= limits.STUB_TIMERS:
            raise denied("timer", f"more than {limits.STUB_TIMERS} timers")
        self._timers.add(timer)
        return min(delay_ms, TIMER_DELAY_MS_MAX)

    def timer_fired(self, timer: int) -> None:
        """The timer is free again."""
        self._timers.discard(timer)

    def log_line(self, payload: bytes, now: float) -> str | None:
        """Text of a `log` action made harmless, or None when it is one too many; the caller counts those.

        The text is untrusted: printable characters only, cut at STUB_LOG_BYTES.
        """
        if not self._log_lines.takes(now):
            return None
        text = payload[: limits.STUB_LOG_BYTES].decode("utf-8", "replace")
        return "".join(char if char.isprintable() else "." for char in text)

    def begin_answer(self, heard: int) -> None:
        """The guest answers, having heard so many messages and pieces of data: one request for each is fair."""
        self._unasked_most = limits.STUB_REQUESTS_PER_ANSWER
        self._requests_left = self._unasked_most + heard

    @property
    def unasked(self) -> int:
        """Requests in this answer so far, beyond one for each message and piece of data that the instance was given."""
        return max(0, self._unasked_most - self._requests_left)

    def count_request(self, op: int, now: float) -> None:
        """Count one request of the guest (a line, a timer, a token); mere notices do not count.

        Most of what it wants is answered by an event, so that a guest that wants several things for each event would
        have more and more of them. Each new state is written down, and the whole node goes by it.

        Raises:
            StubFaultError: STUB_OUTPUT, which ends it.
        """
        if op in _NOTICES:
            return
        self._requests_left -= 1
        if self._requests_left < 0:
            raise StubFaultError(Code.STUB_OUTPUT, "too many requests in one answer")
        if op == Action.STATUS and not self._states.takes(now):
            raise StubFaultError(Code.STUB_OUTPUT, "too many states in a second")

    def count_denial(self) -> bool:
        """One more refusal; True when it is time to end the stub."""
        self.denials += 1
        return self.denials >= DENIALS_BEFORE_FAULT


_NOTICES: Final = frozenset({int(Action.REFUSED), int(Action.LOG)})
_KINDS: Final = frozenset(int(kind) for kind in ChannelKind)


def denied(permission: str, detail: str) -> StubFaultError:
    """The refusal of one action; `fault` names the permission that is missing."""
    return StubFaultError(Code.STUB_DENIED, detail, fault=permission)
