"""The clients that operators manage at a running node: what is stored of them counts for sessions at once.

Where nodes share an engine, each reads all of them when another one has announced a change.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import trio

from msg_node.identity.client_store import Clients
from msg_node.identity.core.local_clients import Enrolled, EnrolQuestion, LocalClient
from msg_node.kernel.credentials import Credential, digest_of
from protofly.errors import Code, HostError, PeerError

logger = logging.getLogger("msg_node")

RETRY_SECONDS: Final = 1.0
_TOKEN_BYTES: Final = 32

CredentialOf = Callable[[int], str]
"""The credential of the session of that number, "" for none."""


def new_token() -> str:
    """A token, or a code, that nobody guesses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def stored_credentials(store: Clients) -> list[Credential]:
    """Load the credentials of all clients, before the node accepts connections. Blocks. Raises HostError."""
    return [credential for one in store.load() for credential in one.credentials()]


class LocalClients:
    """The clients of a domain, as one of its nodes knows and changes them.

    Args:
        store: Where they are durable.

    Attributes:
        changing: Held from the plan of a change until it is in force.
    """

    def __init__(self, store: Clients) -> None:
        """Load them; blocks.

        Raises:
            HostError: They cannot be read.
        """
        self._store = store
        self._clients = {one.name: one for one in store.load()}
        self._changed = trio.Event()
        self._follow: Callable[[Iterable[Credential]], None] = lambda _credentials: None
        self._move: Callable[[int, Credential], None] = lambda _session, _credential: None
        self._credential_of: CredentialOf = lambda _session: ""
        self.changing = trio.Lock()

    def __iter__(self) -> Iterator[LocalClient]:
        """All of them, by name."""
        return iter([self._clients[name] for name in sorted(self._clients)])

    def __len__(self) -> int:
        return len(self._clients)

    def connect(
        self,
        *,
        follow: Callable[[Iterable[Credential]], None],
        move: Callable[[int, Credential], None],
        credential_of: CredentialOf,
    ) -> None:
        """Connect them to the sessions of the node.

        Args:
            follow: Lets these credentials count, and ends sessions of others.
            move: Gives a session another credential.
            credential_of: That of a session.
        """
        self._follow, self._move, self._credential_of = follow, move, credential_of

    def find(self, name: str) -> LocalClient | None:
        """The client of that name."""
        return self._clients.get(name)

    def store(self, before: LocalClient | None, client: LocalClient | None) -> None:
        """Make a change durable: in a thread.

        Raises:
            PeerError: DUPLICATE: another node has changed that client meanwhile.
            HostError: It is not durable.
        """
        named = client or before
        assert named is not None
        self._store.replace(named.name, before, client)

    def apply(self, name: str, client: LocalClient | None) -> None:
        """Put a change in force that is durable."""
        self._put(name, client)
        self._follow(self._credentials())

    async def enrol(self, question: EnrolQuestion) -> Enrolled:
        """Give the device behind a session its token; its code counts no longer, and the session goes on.

        Raises:
            PeerError: BAD_TOKEN: no code has opened the session, or it was used meanwhile.
            HostError: The token is not durable.
        """
        async with self.changing:
            code, now = self._credential_of(question.session), time.time()
            client = next((one for one in self if code and one.code == code), None)
            if client is None or client.is_disabled or now >= client.code_ends_at:
                raise PeerError(Code.BAD_TOKEN, "only a session that was opened with an enrolment code gets a token")
            token = new_token()
            enrolled = client.enrolled(digest_of(token), now)
            with trio.CancelScope(shield=True):  # what is on the disk is in force as well
                await trio.to_thread.run_sync(self._store_enrolled, client, enrolled)
            self._put(client.name, enrolled)
            for credential in enrolled.credentials():
                self._move(question.session, credential)
            self._follow(self._credentials())
        return Enrolled(token, enrolled)

    def heard(self) -> None:
        """Another node has changed clients, or may have."""
        self._changed.set()

    async def run(self) -> None:
        """Follow what other nodes change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                await self._read()
            except HostError as exc:
                logger.error("cluster: clients of the domain cannot be read; trying again: %s", exc)
                self._changed.set()
                await trio.sleep(RETRY_SECONDS)

    async def _read(self) -> None:
        async with self.changing:
            loaded = {one.name: one for one in await trio.to_thread.run_sync(self._store.load)}
            if loaded != self._clients:
                self._clients = loaded
                self._follow(self._credentials())

    def close(self) -> None:
        """Let what stores them go."""
        self._store.close()

    def _store_enrolled(self, client: LocalClient, enrolled: LocalClient) -> None:
        try:
            self.store(client, enrolled)
        except PeerError as exc:
            raise PeerError(Code.BAD_TOKEN, "the code was used, or the client changed, meanwhile") from exc

    def _put(self, name: str, client: LocalClient | None) -> None:
        if client is None:
            self._clients.pop(name, None)
        else:
            self._clients[name] = client

    def _credentials(self) -> list[Credential]:
        return [credential for one in self for credential in one.credentials()]


def known(clients: LocalClients, name: str) -> LocalClient:
    """The client of that name.

    Raises:
        PeerError: NOT_REGISTERED.
    """
    found = clients.find(name)
    if found is None:
        raise PeerError(Code.NOT_REGISTERED, f"there is no client {name[:64]!r}")
    return found
