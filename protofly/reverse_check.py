"""The reverse check: a domain that proves itself asks another one whether a link of it would be admitted.

At the site of a node, `GET` gives a challenge and `POST` takes the proof: the challenge, and a token like the one with
which a node opens a link. It names as its endpoint `endpoint_of` the domain that is asked, so that it opens no link,
and a token of a link proves nothing here.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from protofly.limits import TOKEN_BYTES

PATH: Final = "/.well-known/rethink-mn/reverse-check"
PROOF_BYTES: Final = TOKEN_BYTES + 512
"""The largest body of a request."""
ANSWER_BYTES: Final = 4_096
"""The largest body of an answer."""
_Challenge = Annotated[str, Meta(min_length=22, max_length=86, pattern=r"^[A-Za-z0-9_-]+\Z")]


class ReverseChallenge(Struct, frozen=True, kw_only=True):
    """The challenge that a token has to answer, base64url without padding."""

    challenge: _Challenge


class ReverseProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The challenge as it came, and the token that answers it."""

    challenge: _Challenge
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_BYTES)]


class ReverseAnswer(Struct, frozen=True, kw_only=True):
    """Says if a link would be admitted now.

    Attributes:
        admitted: It would.
        code: "ok", or the word of the code with which it would be refused.
        hint: What to do, for people; "" if it is admitted.
    """

    admitted: bool
    code: Annotated[str, Meta(max_length=64)]
    hint: Annotated[str, Meta(max_length=512)] = ""


def endpoint_of(domain: str) -> str:
    """The endpoint that a token for the reverse check at a domain names, wherever the site of that domain is."""
    return f"https://{domain}{PATH}"


challenge_decoder: Final = msgspec.json.Decoder(ReverseChallenge)
answer_decoder: Final = msgspec.json.Decoder(ReverseAnswer)
