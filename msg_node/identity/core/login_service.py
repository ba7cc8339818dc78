"""`login`, `refresh` and `revoke` at `domain://idm.<d>`: an assertion, or a password, for a session token of our own.

A runtime that has a session, be it an anonymous one, logs in with an assertion about its user, and opens its session
again, on the same connection, with the token that it gets. A token counts for the runtime that logged in, so only that
one renews it. When a login ends, by `revoke` or because one of its tokens was renewed twice, its sessions lose their
connections within a second and do not come back with it. An operator ends all logins of a user.

What has become of a token is in memory before anything else happens, and on disk before it is answered. Pure: the disk
is behind `TOKEN_MARKS`. Source: message specification, section 13.2; RFC 9700, section 4.14.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.identity.core.local_clients import ENROLMENT, Enrolled, EnrolQuestion
from msg_node.identity.core.password_attempts import Pause
from msg_node.identity.core.password_login import (
    LEAST_BYTES,
    PASSWORD_BYTES,
    PASSWORDS,
    LocalAccounts,
    PasswordQuestion,
    PasswordVerdict,
    is_acceptable,
)
from msg_node.identity.core.session_tokens import IssuedToken, RenewedBeforeError, SessionTokens
from msg_node.kernel.counts import LoginCount
from msg_node.kernel.directories import SessionDirectory
from msg_node.kernel.identifiers import identifier
from msg_node.kernel.resources import Members
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, ServiceRequest, inquire
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS

METHODS: Final = frozenset({"refresh", "revoke", "changePassword", "enrol"})

TOKEN_MARKS: ConnectorName[TokenMark, None] = ConnectorName("token-marks")
"""Makes a mark durable."""

_ASSERTION: Final = "assertion"
_PASSWORD: Final = "password"  # noqa: S105 - the word for a kind of credential
_SUBJECT_CHARS: Final = 1100  # of the issuer, and of the user


class LoginSessions(Protocol):
    """Sessions that were opened with our tokens."""

    @property
    def sessions(self) -> SessionDirectory:
        """All of them."""

    def end_login(self, login: str, /, *, now: float) -> None:
        """Let what a login proved expire now."""

    def end_credential(self, credential: str, /, *, now: float) -> None:
        """Let all that a credential proved expire now."""


class LoginService:
    """The part of `IdentityService` that issues, renews and revokes session tokens.

    Args:
        sessions: Those that end with their logins.
        tokens: None when logins are switched off.
        accounts: See the attribute.

    Attributes:
        accounts: Local users may log in with their passwords; None: not now.
    """

    def __init__(
        self, sessions: LoginSessions, tokens: SessionTokens | None, accounts: LocalAccounts | None = None
    ) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self.accounts = accounts
        self.counters = Counters(LoginCount)

    def offered(self, request: ServiceRequest, params: Members) -> str | PasswordQuestion:
        """Read the credential of a log-in: an assertion, or a name and a password.

        Raises:
            PeerError: CONNECTOR_OFF, TRANSIT, BAD_TOKEN or BAD_BODY.
        """
        self._runtime(request)
        credentials = params.get("credentials", params)
        if not isinstance(credentials, dict):
            raise PeerError(
                Code.BAD_BODY, "`params.credentials` is an object with `kind` and `assertion` or `password`"
            )
        kind = credentials.get("kind", _ASSERTION)
        if kind == _ASSERTION:
            return token_of(credentials, _ASSERTION, "params.credentials")
        if kind != _PASSWORD or self.accounts is None:
            raise PeerError(
                Code.BAD_TOKEN, "this node keeps no passwords: log in at your identity provider, and send its assertion"
            )
        return self._password_of(request, credentials)

    def _password_of(self, request: ServiceRequest, members: Members) -> PasswordQuestion:
        if self.accounts is None:
            raise PeerError(Code.CONNECTOR_OFF, "this node keeps no passwords ([identity.passwords])")
        user, password = members.get("user"), members.get("password")
        if not isinstance(user, str) or not isinstance(password, str) or not 0 < len(password) <= PASSWORD_BYTES:
            raise PeerError(Code.BAD_BODY, "there is no `user`, or no `password`, in the credentials")
        return PasswordQuestion(self.accounts.name_in(user), password, request.caller.number)

    def by_password(self, request: ServiceRequest, question: PasswordQuestion) -> Inquiry:
        """Have a password checked, and answer as to an assertion."""
        return inquire(PASSWORDS, question, partial(self._judged, request, question.user))

    def _judged(self, request: ServiceRequest, user: str, verdict: PasswordVerdict, now: float) -> Answer:
        if (refusal := self._refusal(verdict)) is not None:
            return refusal
        if self.accounts is None:  # switched off meanwhile
            raise PeerError(Code.CONNECTOR_OFF, "log-ins with a password are switched off at this node")
        issuer, address = self._on().rules.issuer, self.accounts.address(user)
        asserted = Asserted(address, address, issuer, math.inf, {}, frozenset(verdict.roles))
        return self.logged_in(request, asserted, min(now, verdict.began))

    def _refusal(self, verdict: PasswordVerdict) -> Answer | None:
        """Answer to a password that was not looked at. Raises PeerError BAD_TOKEN for one that is not right."""
        if verdict.pause is not None:
            self.counters[LoginCount.PAUSED_ATTEMPTS] += 1
            return _paused(verdict.pause)
        if not verdict.is_right:
            self.counters[LoginCount.WRONG_PASSWORDS] += 1
            raise PeerError(Code.BAD_TOKEN, "no such user, or not the password")
        return None

    def end_user(self, address: str, moment: float, *, now: float) -> None:
        """End the log-ins that the local user of that address began up to a moment, in seconds since the Unix epoch.

        Raises:
            PeerError: QUOTA or OVERLOAD.
        """
        tokens = self._on()
        subject = f"{tokens.rules.issuer} {address}"
        mark = tokens.revoke_all(subject, now=now, moment=moment)
        end_sessions(self._sessions, tokens, mark, now=now)

    def logged_in(self, request: ServiceRequest, asserted: Asserted, now: float) -> Answer:
        """Issue the token of a user whose identity was proved as it was `now`.

        Raises:
            PeerError: CONNECTOR_OFF or TRANSIT, when that has changed meanwhile.
        """
        runtime = self._runtime(request)
        text, issued = self._on().begin(asserted, runtime, login=identifier(request.seed, 0), now=now)
        self.counters[LoginCount.LOGINS] += 1
        return _token_answer(text, issued)

    def execute(self, method: str, request: ServiceRequest, params: Members) -> Answer | Inquiry:
        """Every method but `login`.

        Raises:
            PeerError: CONNECTOR_OFF, TRANSIT, BAD_BODY, BAD_TOKEN, NOT_OWNER, QUOTA or OVERLOAD.
        """
        if method == "enrol":
            return self._enrol(request)
        runtime = self._runtime(request)
        if method == "changePassword":
            return self._change_password(request, params)
        if method == "revoke" and "subject" in params:
            return self._revoke_all(request, params)
        token = token_of(params, "token", "params")
        return (self._refresh if method == "refresh" else self._revoke)(token, runtime, request.now)

    def _enrol(self, request: ServiceRequest) -> Inquiry:
        """Give a device the token that its code stands for."""
        if request.caller.is_link or request.caller.is_guest:
            raise PeerError(Code.TRANSIT, "devices of this domain are enrolled by its own runtimes")
        return inquire(ENROLMENT, EnrolQuestion(request.caller.number), _enrolled)

    def _change_password(self, request: ServiceRequest, params: Members) -> Inquiry:
        question = self._password_of(request, params)
        new = params.get("newPassword")
        if not isinstance(new, str) or not is_acceptable(new):
            raise PeerError(Code.BAD_BODY, f"`params.newPassword` has {LEAST_BYTES} to {PASSWORD_BYTES} bytes")
        return inquire(PASSWORDS, replace(question, new_password=new), self._changed)

    def _changed(self, verdict: PasswordVerdict, _now: float) -> Answer:
        return self._refusal(verdict) or Answer(value={"changed": True})

    def _refresh(self, token: str, runtime: str, now: float) -> Answer | Inquiry:
        try:
            text, issued, mark = self._on().renew(token, runtime, now=now)
        except RenewedBeforeError as exc:
            self.counters[LoginCount.RENEWED_TWICE] += 1
            end_sessions(self._sessions, self._on(), exc.mark, now=now)
            return inquire(TOKEN_MARKS, exc.mark, partial(_refused, exc))
        self.counters[LoginCount.REFRESHED] += 1
        return inquire(TOKEN_MARKS, mark, partial(_remembered, _token_answer(text, issued)))

    def _revoke(self, token: str, runtime: str, now: float) -> Answer | Inquiry:
        mark = self._on().revoke(token, runtime, now=now)
        self.counters[LoginCount.REVOKED] += 1
        end_sessions(self._sessions, self._on(), mark, now=now)
        return inquire(TOKEN_MARKS, mark, partial(_remembered, Answer(value={"revoked": True})))

    def _revoke_all(self, request: ServiceRequest, params: Members) -> Answer | Inquiry:
        """All logins of the user that tokens call `subject`."""
        subject = params["subject"]
        if not request.caller.is_operator:
            raise PeerError(Code.NOT_OWNER, "operators end the logins of others")
        if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_CHARS:
            raise PeerError(Code.BAD_BODY, "`params.subject` is a user as tokens name them: <issuer> <user>")
        mark = self._on().revoke_all(subject, now=request.now)
        self.counters[LoginCount.USERS_REVOKED] += 1
        end_sessions(self._sessions, self._on(), mark, now=request.now)
        return inquire(TOKEN_MARKS, mark, partial(_remembered, Answer(value={"revoked": True})))

    def renewed_elsewhere(self, mark: TokenMark, now: float) -> RenewedBeforeError:
        """Another node of the domain has renewed the same token: end its login, for who has it cannot be known.

        Returns:
            The error to be raised, with the mark that is to be made durable.
        """
        self.counters[LoginCount.RENEWED_TWICE] += 1
        ended = self._on().issued.revoke(mark.login, mark.user, until=mark.until, now=now)
        end_sessions(self._sessions, self._on(), ended, now=now)
        return RenewedBeforeError(ended)

    def raised_elsewhere(self, marks: Iterable[TokenMark], now: float) -> None:
        """Take over what other nodes have made of tokens: sessions end whose logins have ended there."""
        if self._tokens is None:
            return
        for mark in marks:
            is_known = self._tokens.issued.least(mark.login) >= mark.least
            self._tokens.issued.restore([mark], now=now)
            if not is_known and (mark.is_revoked or mark.is_of_user):
                end_sessions(self._sessions, self._tokens, mark, now=now)

    def _on(self) -> SessionTokens:
        if self._tokens is None:
            raise PeerError(
                Code.CONNECTOR_OFF,
                "logins are switched off at this node ([identity.tokens]); a token of your provider may open sessions",
            )
        return self._tokens

    def _runtime(self, request: ServiceRequest) -> str:
        """The runtime of ours that asks."""
        self._on()
        session = self._sessions.sessions.get(request.caller.number)
        if session is None or session.is_guest:
            raise PeerError(Code.TRANSIT, "only runtimes of this domain log in here")
        return session.runtime_key


def end_sessions(sessions: LoginSessions, tokens: SessionTokens, mark: TokenMark, *, now: float) -> None:
    """End the proof of sessions that were opened with a login that has ended."""
    if mark.is_of_user:
        sessions.end_credential(tokens.credential_of(mark.user), now=now)
    else:
        sessions.end_login(mark.login, now=now)


def token_of(params: Members, name: str, place: str) -> str:
    """A token among parameters. Raises PeerError BAD_BODY."""
    token = params.get(name)
    if not isinstance(token, str) or not token or len(token) > BEARER_TOKEN_CHARS:
        raise PeerError(Code.BAD_BODY, f"`{place}.{name}` is missing, or no token")
    return token


def _token_answer(text: str, issued: IssuedToken) -> Answer:
    value: dict[str, object] = {"token": text, "expires": issued.exp, "subject": issued.sub}
    return Answer(value={**value, "roles": list(issued.roles)} if issued.roles else value)


def _enrolled(enrolled: Enrolled, _now: float) -> Answer:
    client = enrolled.client
    value: dict[str, object] = {"token": enrolled.token, "runtime": client.runtime}
    value["roles"] = sorted({client.kind, *client.roles})
    return Answer(value=value if client.ends_at is None else {**value, "expires": int(client.ends_at)})


def _paused(pause: Pause) -> Answer:
    code, seconds = Code.TOO_MANY_ATTEMPTS, math.ceil(pause.seconds)
    text = f"{code.description}: too many wrong passwords {pause.bound.value}; try again in {seconds} s"
    return Answer(code.status, reason=code.word, description=text, members={"retryAfter": seconds})


def _remembered(answer: Answer, _reply: None, _now: float) -> Answer:
    return answer


def _refused(error: PeerError, _reply: None, _now: float) -> Answer:
    raise error
