"""The class of a sender's session, `session.class` to rules: a word that goes with the roles of the session.

The class goes through queues, storage and other nodes of the domain wherever the roles go, as one more word among them.
No credential can name it: `shown_to_rules` drops what looks like such a word from the roles of a credential.
Source: feature row SC-06.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

_CLASS: Final = "session.class="
_OPERATOR: Final = "operator"
_CACHED_SETS: Final = 1_024


class SessionClass(Enum):
    """The proof with which a session was opened."""

    ANONYMOUS = "anonymous"
    """Nothing: the client proved nothing."""
    PROVED = "proved"
    """The client: a token of the settings or of a client, or a certificate."""
    USER = "user"
    """A person, or another subject of an issuer: a log-in, or a token of an issuer of the settings."""
    GUEST = "guest"
    """The domain: a runtime of another domain, whatever it proved."""
    OPERATOR = "operator"
    """The client, and that it has the role `operator`."""

    def __init__(self, word: str) -> None:
        self.mark = _CLASS + word
        """What stands among the roles."""
        self.alone = frozenset({self.mark})
        """The roles of a session of this class that has none."""


SESSION_CLASSES: Final = tuple(one.value for one in SessionClass)
"""The words, as rules and operators write them."""

_BY_MARK: Final = {one.mark: one.value for one in SessionClass}


def shown_to_rules(roles: frozenset[str], class_: SessionClass) -> frozenset[str]:
    """The roles of a credential together with the class of its session."""
    if not roles:
        return class_.alone
    return frozenset(role for role in roles if not role.startswith(_CLASS)) | class_.alone


def asked_about(roles: frozenset[str], word: str) -> frozenset[str]:
    """Return the roles and class that rules see for a described session; "" derives the class from the roles."""
    return shown_to_rules(roles, SessionClass(word)) if word else roles


@lru_cache(_CACHED_SETS)
def roles_in(shown: frozenset[str]) -> frozenset[str]:
    """The roles without the class."""
    return frozenset(word for word in shown if not word.startswith(_CLASS))


@lru_cache(_CACHED_SETS)
def class_in(shown: frozenset[str]) -> str:
    """The class; "" for what no session sends: links, and the node itself.

    Roles without a class, as nodes of earlier versions kept them, come from a credential.
    """
    for word in shown:
        if (found := _BY_MARK.get(word)) is not None:
            return found
    if _OPERATOR in shown:
        return SessionClass.OPERATOR.value
    return SessionClass.PROVED.value if shown else ""
