"""Obligations that are carried out: their words and values, and what they put in place of passing a message on.

A message that is redirected or answered does not go to its recipient, so the gate denies it; a caller that carries the
obligation out does so instead of refusing. Rules with one of the two apply to requests and events between addresses,
at the gates `local`, `out` and `in`: replies, subscriptions and look-ups of domains go their way. Duties stand beside a
decision and change nothing of it: a notice, a copy in quarantine, a count.
Source: message specification, section 15.3; data formats, section 6.2 (actions of the runtime language).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from policy.core.limits import Limit, parse_limit
from policy.core.model import AllOf, Condition, Effect, Obligation, Operator, PolicySet, Scalar, Test
from protofly.address import parse
from protofly.errors import PeerError, SettingsError

DESCRIPTION_CHARS: Final = 200
_WORD_CHARS: Final = 64
_ANSWER: Final = re.compile(r"([2-5]\d\d)(?: (.*))?")
_SERVICE_SCHEMES: Final = re.compile(r"|acct|domain.*|global|https?|hyperty-.*|mn|runtime|user-guid|wss?")
_SUB_RESOURCES: Final = ("/subscription", "/changes", "/status", "/registration", "/inbox", "/children")
LABELS: Final = 8
"""So many a message has at most."""
LABEL: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_ABOUT_DATA: Final = frozenset({"label", "consent", "purpose", "basis"})
_TYPES: Final = ("create", "read", "update", "delete", "execute", "event")

APPLIES_TO: Final[Condition] = AllOf(
    parts=(
        Test(attribute="hook", operator=Operator.IN, parameters=("local", "out", "in")),
        Test(attribute="actionType", operator=Operator.IN, parameters=_TYPES),
    )
)
"""Further condition of a rule that redirects or answers: its gates and types of messages."""
BOUNDS_READ: Final = frozenset({"hook", "actionType"})
"""Attributes that `APPLIES_TO` reads."""


class Instead(msgspec.Struct, frozen=True):
    """Replacement for passing a message on: a redirection to another address, or an answer.

    Attributes:
        address: Where it goes, "" when it is answered.
        code: Of the answer, 0 when it goes elsewhere.
        description: Of the answer.
    """

    address: str = ""
    code: int = 0
    description: str = ""


class Transfer(msgspec.Struct, frozen=True):
    """Labels that a rule gives to the data of a permitted message that leaves our domain.

    Attributes:
        labels: Kinds of data, sorted.
        needs_consent: Whether only domains get it whose entry of the settings names all its labels.
        purpose: Why it leaves, for the report of transfers.
        basis: On what grounds, for the same.
    """

    labels: tuple[str, ...]
    needs_consent: bool = False
    purpose: str = ""
    basis: str = ""


class Duties(msgspec.Struct, frozen=True):
    """Actions of a node in addition to its decision about a message.

    Attributes:
        notify: The address that is sent an event about the decision, "" for none.
        quarantine: Whether a copy of the message is kept for operators.
    """

    notify: str = ""
    quarantine: bool = False


def instead_of(obligations: Iterable[Obligation]) -> Instead | None:
    """Return the redirection or answer that obligations of a decision ask for; None if there is none."""
    for one in obligations:
        if one.name == "redirect":
            return Instead(address=str(one.value))
        if one.name == "answer" and (match := _ANSWER.fullmatch(str(one.value))) is not None:
            return Instead(code=int(match[1]), description=match[2] or "")
    return None


def limit_of(obligations: Iterable[Obligation]) -> Limit | None:
    """Return the limit on messages that a rule permits; None if all pass."""
    return next((parse_limit(str(one.value)) for one in obligations if one.name == "limit"), None)


def mark_of(obligations: Iterable[Obligation]) -> Limit | None:
    """The limit in which a message counts without being held against it; None: in none."""
    return next((parse_limit(str(one.value)) for one in obligations if one.name == "mark"), None)


def duties_of(obligations: Iterable[Obligation]) -> Duties | None:
    """Return the duties of a decision; None if there are none."""
    found = {one.name: one.value for one in obligations}
    duties = Duties(str(found.get("notify", "")), found.get("quarantine") is True)
    return None if duties == Duties() else duties


def transfer_of(obligations: Iterable[Obligation]) -> Transfer | None:
    """Return the labels of a message's data; None if there are none."""
    found = {one.name: str(one.value) for one in obligations}
    if "label" not in found:
        return None
    labels = tuple(found["label"].split(","))
    return Transfer(labels, "consent" in found, found.get("purpose", ""), found.get("basis", ""))


def label_text(labels: Iterable[str]) -> str:
    """Labels as one value of an obligation."""
    return ",".join(sorted(set(labels)))


def is_service(address: str) -> bool:
    """True for addresses of services and of runtimes themselves; also for what is no address at all."""
    try:
        scheme, authority, _ = parse(address)
    except PeerError:
        return True
    return _SERVICE_SCHEMES.fullmatch(scheme) is not None or not authority


def notified_addresses(sets: Iterable[PolicySet]) -> frozenset[str]:
    """Every address that some rule wants to be notified."""
    found = list[Obligation]()
    for policy_set in sets:
        found += policy_set.obligations
        for policy in policy_set.policies:
            found += policy.obligations
            for rule in policy.rules:
                found += rule.obligations
    return frozenset(str(one.value) for one in found if one.name == "notify")


def is_recorded(obligations: Iterable[Obligation]) -> bool:
    """True if each decision is to have a record of its own: `log` asks for it, and duties leave one."""
    obligations = tuple(obligations)
    return any(one.name == "log" for one in obligations) or duties_of(obligations) is not None


def check_obligations(obligations: Iterable[Obligation]) -> None:
    """Check those of one decision together, and each by itself.

    Raises:
        SettingsError: One that permits and is not carried out, a value that makes no sense, or two that exclude each
            other. What is not carried out may stand with a denial, which it does not change.
    """
    seen = set[str]()
    obligations = tuple(obligations)
    for one in obligations:
        check = _CHECKS.get(one.name)
        if check is None and one.on is Effect.PERMIT:
            known = ", ".join(_CHECKS)
            raise SettingsError(
                f'the obligation "{one.name}" is not carried out, so nothing may be permitted for it; known: {known}'
            )
        if check is not None:
            check(one.value)
            if one.name in seen:
                raise SettingsError(f'the obligation "{one.name}" is given twice: keep one')
            seen.add(one.name)
        if one.name == "limit" and one.on is not Effect.PERMIT:
            raise SettingsError("a limit belongs to a rule that permits: leave it out of one that denies")
    if len(seen & {"redirect", "answer", "park"}) > 1:
        raise SettingsError("a message can only be redirected, or answered, or parked: keep one of these obligations")
    if len(seen & {"redirect", "answer", "limit"}) > 1:
        raise SettingsError(
            "a limit counts messages that pass, and a redirected or answered one does not: leave out the limit"
        )
    if seen & _ABOUT_DATA and {one.on for one in obligations if one.name in _ABOUT_DATA} != {Effect.PERMIT}:
        raise SettingsError("a label belongs to a rule that permits: leave it out of one that denies")
    limit, mark = limit_of(obligations), mark_of(obligations)
    if limit is not None and mark is not None and limit.name == mark.name:
        raise SettingsError(
            f'the limit "{limit.name}" counts what it lets pass: leave out the mark, or give it another name'
        )


def check_labelled(obligations: Iterable[Obligation]) -> None:
    """Check all that stand with one decision: what is said about data says which. Raises SettingsError."""
    names = {one.name for one in obligations} & _ABOUT_DATA
    if names and "label" not in names:
        raise SettingsError(f'"{min(names)}" is about data with a label: give the label too')


def _check_redirect(value: Scalar) -> None:
    _check_address("redirect", value)


def _check_notify(value: Scalar) -> None:
    _check_address("notify", value)


def _check_address(name: str, value: Scalar) -> None:
    try:
        path = parse(str(value)).path
    except PeerError as exc:
        raise SettingsError(f"{name}: {value!r} is no address: {exc.detail}") from exc
    if is_service(str(value)) or path.endswith(_SUB_RESOURCES) or "/children/" in path:
        raise SettingsError(f"{name}: {value!r} is not the address of a hyperty, an object or a user")


def _check_answer(value: Scalar) -> None:
    match = _ANSWER.fullmatch(str(value))
    if match is None or len(match[2] or "") > DESCRIPTION_CHARS or not str(value).isprintable():
        text = f"a code from 200 to 599 and a description of at most {DESCRIPTION_CHARS} characters"
        raise SettingsError(f"answer: expected {text}, got {value!r}")


def _check_flag(name: str) -> Callable[[Scalar], None]:
    def check(value: Scalar) -> None:
        if not isinstance(value, bool):
            raise SettingsError(f"{name}: expected true or false")

    return check


def _check_label(value: Scalar) -> None:
    labels = str(value).split(",")
    if len(labels) > LABELS or not all(map(LABEL.fullmatch, labels)):
        form = "1 to 32 lower-case letters, digits, `.`, `_` and `-`"
        raise SettingsError(f"label: expected a label or a list of at most {LABELS}, each of {form}")


def _check_consent(value: Scalar) -> None:
    if value != "required":
        raise SettingsError('consent: expected "required"; leave it out where none is needed')


def _check_words(name: str) -> Callable[[Scalar], None]:
    def check(value: Scalar) -> None:
        if not isinstance(value, str) or not 0 < len(value) <= _WORD_CHARS or not value.isprintable():
            raise SettingsError(f"{name}: expected a text of at most {_WORD_CHARS} characters")

    return check


_CHECKS: Final[Mapping[str, Callable[[Scalar], object]]] = {
    "redirect": _check_redirect,
    "answer": _check_answer,
    "log": _check_words("log"),
    "park": _check_flag("park"),
    "limit": lambda value: parse_limit(str(value)),
    "notify": _check_notify,
    "quarantine": _check_flag("quarantine"),
    "mark": lambda value: parse_limit(str(value)),
    "label": _check_label,
    "consent": _check_consent,
    "purpose": _check_words("purpose"),
    "basis": _check_words("basis"),
}
