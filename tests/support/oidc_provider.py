"""A small identity provider for tests: discovery, JWK set and ID tokens, over real HTTPS, with keys that change."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
import trustme

from tests.support.scripted_http import answer
from tests.support.token_issuer import Algorithm, TokenIssuer

CLIENT = "node.alpha.example"
"""What its tokens are for: the audience."""


class OidcProvider:
    """Serves its documents as they are set, and signs tokens with the newest of its keys."""

    def __init__(self, *, algorithm: Algorithm = "ES256") -> None:
        self.issuer = ""
        self.algorithm: Algorithm = algorithm
        self.asked: Counter[str] = Counter()
        self.is_down = False
        self.headers = ""
        self.documents: dict[str, bytes] = {}
        """What is served in place of the right documents, by path."""
        self.answered = trio.lowlevel.ParkingLot()
        self._numbers = count(1)
        self._signers: list[TokenIssuer] = []

    def begin(self, issuer: str) -> None:
        self.issuer = issuer
        self.rotate()

    @property
    def signer(self) -> TokenIssuer:
        """Who signs now."""
        return self._signers[-1]

    def rotate(self, *, keeps: int = 1) -> TokenIssuer:
        """Sign with a new key; so many old ones stay published. Returns who signed until now, or the first signer."""
        old = self._signers[-1] if self._signers else None
        self._signers.append(TokenIssuer(self.issuer, algorithm=self.algorithm, key_id=f"key-{next(self._numbers)}"))
        del self._signers[: max(0, len(self._signers) - 1 - keeps)]
        return old or self._signers[-1]

    def claims(self, *, now: float, **changes: Any) -> dict[str, Any]:
        """Claims of a good ID token; a change to None leaves one out."""
        made = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "ana-7",
            "iat": int(now),
            "exp": int(now) + 300,
            "name": "Ana",
            "email": "ana@alpha.example",
            "email_verified": True,
            **changes,
        }
        return {name: value for name, value in made.items() if value is not None}

    def token(self, *, now: float, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """An ID token, good unless changes make it another."""
        return self.signer.signed(self.claims(now=now, **changes), header)

    def document(self, path: str) -> bytes | None:
        """What is served at a path."""
        if path in self.documents:
            return self.documents[path]
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}).encode()
        if path == "/jwks":
            return json.dumps({"keys": [key for one in self._signers for key in one.jwks["keys"]]}).encode()
        return None

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, one request."""
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                path = await _requested_path(stream)
                if path is None:
                    return
                self.asked[path] += 1
                body = None if self.is_down else self.document(path)
                whole = answer(503 if self.is_down else 404, b"") if body is None else answer(200, body)
                await stream.send_all(whole.replace(b"\r\n", f"\r\n{self.headers}".encode(), 1))
                self.answered.unpark_all()


async def _requested_path(stream: trio.abc.Stream) -> str | None:
    """The path that a client asks for; None if it leaves before."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = await stream.receive_some()
        if not part:
            return None
        data += part
    return data.split(b" ", 2)[1].decode()


@asynccontextmanager
async def oidc_provider(authority: trustme.CA, *, algorithm: Algorithm = "ES256") -> AsyncIterator[OidcProvider]:
    """Serve on loopback until left."""
    provider = OidcProvider(algorithm=algorithm)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_ssl_over_tcp, provider.serve, 0, context, host="127.0.0.1", https_compatible=True)
        (listener, *_) = await nursery.start(serve)
        provider.begin(f"https://127.0.0.1:{listener.transport_listener.socket.getsockname()[1]}")
        yield provider
        nursery.cancel_scope.cancel()
