"""Calls to a back-end that speaks JSON over HTTP, as values: what is asked, what is answered, what an answer means.

Cores make the calls and read the answers; `msg_node.backends.backend` carries them. An answer is a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from protofly.errors import Code, PeerError

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class Call(msgspec.Struct, frozen=True):
    """One request: `path` from the slash on, encoded; `document` is sent as JSON, `form` as a form."""

    method: str
    path: str
    document: Mapping[str, object] | None = None
    form: Mapping[str, str] | None = None


class Calls(msgspec.Struct, frozen=True):
    """Requests that are made one after the other, all of them whatever the answers."""

    calls: tuple[Call, ...]


class Answered(msgspec.Struct, frozen=True):
    """An answer as it came; `content_type` in lower case, without parameters."""

    status: int
    body: bytes = b""
    content_type: str = ""

    @property
    def is_failure(self) -> bool:
        """True if the back-end is not well, as far as its status says."""
        return self.status >= 500

    def document(self) -> object:
        """The body as JSON.

        Raises:
            PeerError: BAD_REPLY.
        """
        if self.content_type and not self.content_type.endswith(("/json", "+json")):
            raise PeerError(Code.BAD_REPLY, f"the answer is {self.content_type[:40]}, not JSON")
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise PeerError(Code.BAD_REPLY, "the answer is not JSON") from exc


Answers = tuple[Answered, ...]
"""One answer for each of the calls."""


def path_to(*parts: str, query: Mapping[str, str] | None = None) -> str:
    """A path whose parts are percent-encoded whole, as registries want addresses in them."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(query)}" if query else path


def refusal_of(answer: Answered, who: str) -> PeerError:
    """Make the error for a status that is not a result.

    Args:
        answer: What came.
        who: Names the back-end in the description.

    Returns:
        REDIRECT_REFUSED; STUB_REFUSED when it refuses this node; RATE; BAD_BODY; BAD_REPLY.

    Source: message specification, section 10.6.
    """
    status = answer.status
    if 300 <= status < 400:
        return PeerError(Code.REDIRECT_REFUSED, f"{who} redirects")
    if status in (401, 403):
        return PeerError(Code.STUB_REFUSED, f"{who} refuses this node: {status}")
    if status == 429:
        return PeerError(Code.RATE, f"{who} has too much to do")
    if status == 400:
        return PeerError(Code.BAD_BODY, f"{who} does not take this")
    return PeerError(Code.BAD_REPLY, f"{who} answers {status}")
