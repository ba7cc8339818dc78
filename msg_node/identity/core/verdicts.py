"""Results of checks of assertions: each is checked once, and its result is kept by its hash for a while.

A verdict counts until the assertion expires, and five minutes at most; new keys of any provider make all of them void.
How many assertions of one domain are checked per second is bounded, since a check costs up to a third of a millisecond
and senders of rubbish cost nothing. Of our own domain each session has a part of that, and its first check in a second
counts apart, so that a session with rubbish uses up none but its own. Pure: keys and time are given.

Source: message specification, section 13.3; feature rows CN-20, MM-19 and SC-05.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msg_node.identity.core.assertions import (
    Asserted,
    AssertionRefusedError,
    ProviderRules,
    assertion_in,
    check_assertion,
)
from msg_node.kernel.issuer_keys import VerificationKey
from protofly.errors import PeerError
from protofly.limits import (
    ASSERTION_CHECKS_PER_SECOND,
    ASSERTION_CHECKS_PER_SESSION,
    ASSERTION_VERDICTS,
    VERDICT_SECONDS,
)

_MISSING: Final = "the message carries no assertion"


class AssertionVerdict(NamedTuple):
    """The result of checking an assertion. `user` and `issuer` are "" unless `is_verified`; else why not.

    `stub` is where the user's provider says that the stub of the domain is, "" when it says nothing; `groups` are the
    user's, None when nobody asks for them.
    """

    is_verified: bool
    user: str = ""
    issuer: str = ""
    detail: str = ""
    stub: str = ""
    groups: frozenset[str] | None = None


UNASSERTED: Final = AssertionVerdict(False, detail=_MISSING)
"""There is no assertion to judge."""


class Verdicts:
    """Judges assertions.

    Args:
        providers: The identity providers of the settings.
        wants_keys: Called with the issuer when an assertion names a key that is not known.

    Attributes:
        count_groups_left_out: Called with the number of entries of a claim with groups that were not taken, if any.
    """

    def __init__(
        self, providers: Iterable[ProviderRules], *, wants_keys: Callable[[str], None] = lambda _: None
    ) -> None:
        self.providers: Mapping[str, ProviderRules] = {one.issuer: one for one in providers}
        self._wants_keys = wants_keys
        self._keys: dict[str, Sequence[VerificationKey]] = {}
        self._known: OrderedDict[bytes, tuple[AssertionVerdict, float]] = OrderedDict()
        self.count_groups_left_out: Callable[[int], None] = lambda _: None
        self._second = 0
        self._checks: Counter[str] = Counter()  # within that second

    def follow(self, providers: Iterable[ProviderRules], keys: Mapping[str, Sequence[VerificationKey]]) -> None:
        """From now on these providers count, with these keys, and no others."""
        self.providers = {one.issuer: one for one in providers}
        self._keys = {issuer: tuple(some) for issuer, some in keys.items()}
        self._known.clear()

    def keys_of(self, issuer: str) -> Sequence[VerificationKey]:
        """The keys of a provider, as far as they are known."""
        return self._keys.get(issuer, ())

    def set_keys(self, issuer: str, keys: Sequence[VerificationKey]) -> None:
        """From now on these are the keys of a provider, and no others."""
        self._keys[issuer] = tuple(keys)
        self._known.clear()

    def check(self, assertion: str, domain: str, *, now: float) -> Asserted:
        """Check an assertion about somebody of a domain, now and whatever was known.

        Raises:
            AssertionRefusedError: With what is wrong.
        """
        try:
            return check_assertion(assertion, domain, self.providers, self._keys, now=now)
        except AssertionRefusedError as exc:
            if exc.lacking_issuer:
                self._wants_keys(exc.lacking_issuer)
            raise

    def judge(
        self, body: bytes, domain: str, *, now: float, sender: Callable[[], int | None] | None = None
    ) -> AssertionVerdict:
        """Judge what the body of a message says about its sender, who is of `domain`. Never raises.

        `sender` gives the session that sends it, where we know that.
        """
        try:
            assertion = assertion_in(body)
        except PeerError as exc:
            return AssertionVerdict(False, detail=exc.detail)
        if not assertion:
            return UNASSERTED
        name = hashlib.sha256(f"{domain} {assertion}".encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(name)
        if known is not None and now < known[1]:
            return known[0]
        if not self._may_check(domain, None if sender is None else sender(), now):
            return AssertionVerdict(False, detail="too many different assertions of this domain at once")
        return self._judge(name, assertion, domain, now)

    def _judge(self, name: bytes, assertion: str, domain: str, now: float) -> AssertionVerdict:
        until = now + VERDICT_SECONDS
        try:
            asserted = self.check(assertion, domain, now=now)
        except AssertionRefusedError as exc:
            verdict = AssertionVerdict(False, detail=exc.detail)
            if exc.lacking_issuer:
                return verdict  # its keys may come at any moment
        else:
            verdict = AssertionVerdict(True, asserted.user, asserted.issuer, stub=asserted.stub, groups=asserted.groups)
            if asserted.groups_left_out:
                self.count_groups_left_out(asserted.groups_left_out)
            until = min(until, asserted.expires_at)
        self._known[name] = verdict, until
        self._known.move_to_end(name)
        if len(self._known) > ASSERTION_VERDICTS:
            self._known.popitem(last=False)
        return verdict

    def _may_check(self, domain: str, session: int | None, now: float) -> bool:
        """Count one check within this second, if there may be one more."""
        if self._second != int(now) or len(self._checks) > ASSERTION_VERDICTS:
            self._second = int(now)
            self._checks.clear()
        pool, own = domain, "" if session is None else f"{domain} {session}"
        if own:
            if self._checks[own] >= ASSERTION_CHECKS_PER_SESSION:
                return False
            pool = domain if self._checks[own] else f"{domain} first"
        if self._checks[pool] >= ASSERTION_CHECKS_PER_SECOND:
            return False
        self._checks.update([pool, own] if own else [pool])
        return True
