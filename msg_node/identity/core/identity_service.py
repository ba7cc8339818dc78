"""`domain://idm.<d>`: is this assertion good, whose is this token, with which keys do we sign, who is this user.

Logging in by itself is the identity providers' business: what a runtime gets there it exchanges here for a token of
ours (`login_service`), if the settings want that.

Source: message specification, section 13.2; feature row CN-18.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from msg_node.identity.core.assertions import Asserted, AssertionRefusedError
from msg_node.identity.core.login_service import METHODS, LoginService, token_of
from msg_node.identity.core.password_login import PasswordQuestion
from msg_node.identity.core.verdicts import Verdicts
from msg_node.kernel.credentials import Credentials
from msg_node.kernel.resources import Members, text_of
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, ServiceRequest, inquire
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError

_KEYS: Final = "/keys"
_USERS: Final = "/users/"

Then = Callable[[Asserted, float], Answer]
"""What follows when an assertion holds, at that time (seconds since the Unix epoch)."""


class KeysQuestion(msgspec.Struct, frozen=True):
    """A question for the newest keys of an issuer."""

    issuer: str


ISSUER_KEYS: ConnectorName[KeysQuestion, bool] = ConnectorName("issuer-keys")
"""Fetches the keys of an identity provider; replies whether there may be others now."""


class IdentityService:
    """The identity manager as a message service.

    Args:
        credentials: Knows the tokens that open sessions.
        verdicts: Judges assertions.
        logins: Gives tokens of ours.
        public_keys: The keys with which our domain signs, as JWK; what is changed there counts.
        profile_of: Gives what is registered of a user by its address, {} for nothing.
    """

    def __init__(
        self,
        credentials: Credentials,
        verdicts: Verdicts,
        logins: LoginService,
        public_keys: Sequence[Mapping[str, str]],
        profile_of: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._credentials = credentials
        self._verdicts = verdicts
        self._logins = logins
        self._profile_of = profile_of
        self._public_keys = public_keys

    def __call__(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve `execute` and `read`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, BAD_ASSERTION, BAD_TOKEN, NO_SUCH_SERVICE, NOT_REGISTERED, TRANSIT,
                CONNECTOR_OFF, QUOTA or OVERLOAD.
        """
        match request.message.type:
            case "execute":
                return self._execute(request)
            case "read":
                return self._read(request)
        raise PeerError(Code.BAD_TYPE, "this service knows execute and read")

    def _execute(self, request: ServiceRequest) -> Answer | Inquiry:
        method, params = text_of(request.members, "method"), _params(request.members)
        if method == "validateAssertion":
            return self._validate(request, params)
        if method == "introspect":
            return self._introspect(request, params)
        if method == "login":
            offered = self._logins.offered(request, params)
            if isinstance(offered, PasswordQuestion):
                return self._logins.by_password(request, offered)
            return self._checked(offered, request.domain, request.now, partial(self._logins.logged_in, request))
        if method in METHODS:
            return self._logins.execute(method, request, params)
        others = ", ".join(sorted(METHODS))
        raise PeerError(Code.BAD_BODY, f"methods are validateAssertion, introspect, login, {others}")

    def _validate(self, request: ServiceRequest, params: Members) -> Answer | Inquiry:
        assertion = token_of(params, "assertion", "params")
        return self._checked(assertion, _origin(params) or request.domain, request.now, _valid)

    def _checked(self, assertion: str, domain: str, now: float, then: Then) -> Answer | Inquiry:
        """Check an assertion, with newer keys of its issuer if it names one that we do not have."""
        try:
            asserted = self._verdicts.check(assertion, domain, now=now)
        except AssertionRefusedError as exc:
            if not exc.lacking_issuer:
                raise
            again = partial(self._checked_again, assertion, domain, exc, then)
            failed = partial(_still, exc)
            return inquire(ISSUER_KEYS, KeysQuestion(exc.lacking_issuer), again, failed=failed)
        return then(asserted, now)

    def _checked_again(
        self, assertion: str, domain: str, error: AssertionRefusedError, then: Then, has_more: bool, now: float
    ) -> Answer:
        if not has_more:
            raise error
        return then(self._verdicts.check(assertion, domain, now=now), now)

    def _introspect(self, request: ServiceRequest, params: Members) -> Answer:
        """Answer whether a session token is valid, and whose; only for our own runtimes."""
        if request.caller.is_link or request.caller.is_guest:
            raise PeerError(Code.TRANSIT, "tokens of this domain are looked at by its own runtimes")
        known = self._credentials.introspect(token_of(params, "token", "params"), now=request.now)
        if known is None:
            return Answer(value={"active": False})
        value: dict[str, object] = {"active": True, "subject": known.credential, "roles": sorted(known.roles)}
        if known.expires_at is not None:
            value["expires"] = int(known.expires_at)
        return Answer(value=value)

    def _read(self, request: ServiceRequest) -> Answer:
        resource = text_of(request.members, "resource")
        if resource == _KEYS:
            return Answer(value={"keys": [dict(key) for key in self._public_keys]})
        if resource.startswith(_USERS):
            profile = self._profile_of(resource.removeprefix(_USERS))
            if not profile:
                raise PeerError(Code.NOT_REGISTERED, "nobody of that name is registered here")
            return Answer(value=profile)
        raise PeerError(Code.NO_SUCH_SERVICE, "resources are /keys and /users/<user address>")


def _valid(asserted: Asserted, _now: float) -> Answer:
    profile = {"userURL": asserted.user, "subject": asserted.subject, **asserted.profile}
    value = {"valid": True, "userProfile": profile, "issuer": asserted.issuer, "expires": int(asserted.expires_at)}
    return Answer(value=value)


def _still(error: AssertionRefusedError, _instead: HostError, _now: float) -> Answer:
    raise error


def _params(members: Members) -> Members:
    """An object, or an array with one object. Source: message specification, section 13.1."""
    params = members.get("params")
    if isinstance(params, list) and len(params) == 1:
        params = params[0]
    return params if isinstance(params, dict) else {}


def _origin(params: Members) -> str:
    """The domain that an assertion has to be about: a domain, a web origin or an address.

    Raises:
        AssertionRefusedError: It is none of them, so that no assertion is about it.
    """
    origin = text_of(params, "origin").strip().lower()
    try:
        return domain_of(origin) if "://" in origin else origin
    except PeerError as exc:
        raise AssertionRefusedError(f"the origin is {exc.detail}") from exc
