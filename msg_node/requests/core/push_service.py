"""`domain://msg-node.<d>/push`: runtimes say where to wake them when somebody waits for them; our own naming.

`read` returns the public key that a push subscription is made for, and the caller's subscriptions; `create` keeps one,
`delete` forgets. Source: feature row HM-04; Push API, section 5; RFC 8292.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from msg_node.kernel.directories import Source
from msg_node.kernel.resources import key_or_refuse, object_or_refuse, text_of, texts_of
from msg_node.kernel.service import Answer, ServiceRequest
from msg_node.requests.core.push_targets import PushTarget
from msg_node.requests.core.tables import RequestTables
from protofly.errors import Code, PeerError
from protofly.limits import PUSH_ENDPOINT_CHARS, PUSH_MAX_SECONDS


class PushService:
    """Keeps push subscriptions.

    Args:
        state: The durable state.
        public_key: The public key of this node for push services, base64url of the uncompressed point.
        origins: Of the push services that the operator lets this node talk to: `https://host[:port]`.
    """

    def __init__(self, state: RequestTables, *, public_key: str, origins: Collection[str]) -> None:
        self._state = state
        self._public_key = public_key
        self._origins = frozenset(origins)

    def follow(self, *, public_key: str, origins: Collection[str]) -> None:
        """Use another key and other push services from now on; see there."""
        self._public_key, self._origins = public_key, frozenset(origins)

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `read`, `create` and `delete`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, POLICY, NOT_OWNER, QUOTA, OVERLOAD.
        """
        session = self._state.sessions.get(request.caller.number)
        if session is None or session.is_guest:
            raise PeerError(Code.POLICY, "this service is for runtimes of this domain")
        keys = self._keys(request, session.runtime_key)
        match request.message.type:
            case "read":
                return self._read(keys)
            case "create":
                return self._create(request, keys, session.runtime_key)
            case "delete":
                endpoint = text_of(object_or_refuse(request.members, "value"), "endpoint")
                for key in keys:
                    self._state.push.remove(key, endpoint)
                return Answer()
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows read, create and delete")

    def _keys(self, request: ServiceRequest, runtime_key: str) -> list[str]:
        """The addresses that a request is about: those named, which have to be the caller's own, or its runtime's."""
        texts = [*texts_of(request.members, "resources"), *filter(None, [text_of(request.members, "resource")])]
        keys = list(dict.fromkeys(key_or_refuse(text) for text in texts)) or [runtime_key]
        for key in keys:
            if self._state.senders.source_of(request.caller.number, key) is not Source.OWN:
                raise PeerError(Code.NOT_OWNER, "this address belongs to somebody else")
        return keys

    def _read(self, keys: list[str]) -> Answer:
        kept = [
            {"resource": one.key, "endpoint": one.endpoint, "expires": int(one.expires_at)}
            for key in keys
            for one in self._state.push.of(key)
        ]
        return Answer(value={"publicKey": self._public_key, "subscriptions": kept})

    def _create(self, request: ServiceRequest, keys: list[str], runtime_key: str) -> Answer:
        value = object_or_refuse(request.members, "value")
        endpoint = _checked(text_of(value, "endpoint"))
        if _origin(endpoint) not in self._origins:
            raise PeerError(Code.POLICY, "this node does not talk to that push service")
        ends = value.get("expirationTime")  # milliseconds, as browsers say it
        expires_at = request.now + PUSH_MAX_SECONDS
        if isinstance(ends, int | float) and not isinstance(ends, bool):
            expires_at = min(max(ends, 0), expires_at * 1000) / 1000  # first bounded: any integer may come
        if expires_at <= request.now:
            raise PeerError(Code.BAD_BODY, "this push subscription has expired")
        for key in keys:
            self._state.push.add(PushTarget(key, endpoint, runtime_key, expires_at))
        return Answer()


def _checked(endpoint: str) -> str:
    """An endpoint that is a URL and nothing else. Raises PeerError BAD_BODY."""
    is_text = 0 < len(endpoint) <= PUSH_ENDPOINT_CHARS and endpoint.isascii() and endpoint.isprintable()
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_text or not is_url or " " in endpoint or "@" in parts.netloc or "#" in endpoint:
        raise PeerError(Code.BAD_BODY, "value.endpoint is the URL of a push subscription")
    return endpoint


def _origin(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.lower()}"
