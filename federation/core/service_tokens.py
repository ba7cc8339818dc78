"""Access tokens of a legacy service: we keep them, its stub gets names for them, and they leave in one header only.

Two kinds. The operator's token for the stub itself is called `service`; it lies in a file that only the shell reads.
Tokens of users come in invitations (`body.identity.accessToken`, `access_token`): on their way to the stub each is
replaced by a handle that says nothing, always the same for the same token while we remember it. An `open` of kind
`http` may name either; the token then goes into its `Authorization` header, if the operator named the origin of that
endpoint. What comes back is cleaned of it.

A handle is good at this stub only: each has its own table.

Source: message specification, section 16, rule 6; feature row LI-09; RFC 6750, section 2.1.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

import msgspec

from protofly import codec
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import STUB_USER_TOKENS
from protofly.message import Message
from sandbox.core.grants import denied

SERVICE: Final = "service"
"""The name of the operator's token, for stubs."""
CLEANED: Final = b"[token]"

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,8192}=*")
_MEMBERS: Final = frozenset({"accessToken", "access_token"})
_HINTS: Final = (b'"accessToken"', b'"access_token"', b"\\u")
"""One of these is in every text that may have a token: a name can also be spelled with escapes."""
_PER_MESSAGE: Final = 8


class ServiceTokens:
    """The tokens of one interworking stub.

    Args:
        origins: Where they may go, as `origin_of` writes it; none: nowhere.
        has_service_token: True when the operator gave it one.
    """

    def __init__(self, origins: Collection[str] = (), *, has_service_token: bool = False) -> None:
        self._origins = frozenset(origins)
        self.names = (SERVICE,) if has_service_token else ()
        self._users: OrderedDict[str, str] = OrderedDict()
        self._handles: dict[str, str] = {}

    def check(self, handle: str, url: str) -> None:
        """Judge whether a token may go to an endpoint.

        Raises:
            StubFaultError: STUB_DENIED.
        """
        if handle not in self.names and handle not in self._users:
            raise denied("token", "there is no such token")
        if origin_of(url) not in self._origins:
            raise denied("token", "tokens do not go to this endpoint")

    def of_user(self, handle: str) -> str:
        """The token behind a handle, "" for none."""
        return self._users.get(handle, "")

    def veiled(self, message: Message, handle: str) -> Message:
        """A message for the stub, with `handle` in place of a user's token; another known one if it is known.

        Raises:
            PeerError: BAD_BODY when it cannot be read, or what it calls a token is none.
        """
        if not any(hint in message.body for hint in _HINTS):
            return message
        body = self._veil(codec.body_members(message.body), handle, is_identity=False)
        return codec.with_body(message, msgspec.json.encode(body))

    def _veil(self, value: object, handle: str, *, is_identity: bool) -> object:
        """The same value without tokens of identities, wherever these stand; the codec has bounded its depth."""
        if isinstance(value, list):
            return [self._veil(one, handle, is_identity=is_identity) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self._handle_of(inner, handle)
            if is_identity and name in _MEMBERS
            else self._veil(inner, handle, is_identity=is_identity or name == "identity")
            for name, inner in value.items()
        }

    def _handle_of(self, token: object, handle: str) -> str:
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise PeerError(Code.BAD_BODY, "an access token is a text of letters, digits and -._~+/=")
        known = self._handles.get(token)
        if known is not None:
            self._users.move_to_end(known)
            return known
        names = (handle, *(f"{handle}-{number}" for number in range(2, _PER_MESSAGE + 1)))
        handle = next((name for name in names if name not in self._users), "")
        if not handle:
            raise PeerError(Code.BAD_BODY, f"more than {_PER_MESSAGE} access tokens")
        self._users[handle], self._handles[token] = token, handle
        if len(self._users) > STUB_USER_TOKENS:
            _, oldest = self._users.popitem(last=False)
            del self._handles[oldest]
        return handle


def read_token(text: str) -> str:
    """The operator's token out of the text of its file; a line end behind it is left out.

    Raises:
        SettingsError: It is none, and nothing that could break out of a header.
    """
    token = text.removesuffix("\n").removesuffix("\r")
    if not _TOKEN.fullmatch(token):
        raise SettingsError("not an access token: one line of letters, digits and -._~+/=")
    return token


def origin_of(url: str) -> str:
    """`https://host[:port]` of an endpoint or a setting, without the port that goes without saying; "" for no https."""
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError:
        return ""
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        return ""
    return f"https://{parts.hostname}" if port == 443 else f"https://{parts.hostname}:{port}"


def cleaned(data: bytes, token: str) -> bytes:
    """Return a service's answer without the token: some repeat what they were sent."""
    return data.replace(token.encode(), CLEANED)
