"""The clients that operators manage at a running node: what is stored of them counts for sessions at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import trio

from msg_node.identity.client_store import CLIENTS_FILE, ClientStore
from msg_node.identity.core.local_clients import Enrolled, EnrolQuestion, LocalClient
from msg_node.kernel.credentials import Credential, digest_of
from protofly.errors import Code, PeerError

_TOKEN_BYTES: Final = 32

CredentialOf = Callable[[int], str]
"""The credential of the session of that number, "" for none."""


def new_token() -> str:
    """A token, or a code, that nobody guesses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def stored_credentials(data_dir: Path) -> list[Credential]:
    """What opens the sessions of clients, before the node knows more of them. Blocks. Raises HostError: STORAGE."""
    with ClientStore(data_dir / CLIENTS_FILE) as store:
        return [credential for one in store.load() for credential in one.credentials()]


class LocalClients:
    """The clients of one node.

    Args:
        data_dir: Where they are stored.

    Attributes:
        changing: Held from the plan of a change until it is in force.
    """

    def __init__(self, data_dir: Path) -> None:
        """Load them; blocks.

        Raises:
            HostError: STORAGE.
        """
        self._store = ClientStore(data_dir / CLIENTS_FILE)
        self._clients = {one.name: one for one in self._store.load()}
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

    def store(self, name: str, client: LocalClient | None) -> None:
        """Make a change durable: in a thread. Raises HostError: STORAGE."""
        self._store.replace(name, client)

    def apply(self, name: str, client: LocalClient | None) -> None:
        """Put a change in force that is durable."""
        self._put(name, client)
        self._follow(self._credentials())

    async def enrol(self, question: EnrolQuestion) -> Enrolled:
        """Give the device behind a session its token; its code counts no longer, and the session goes on.

        Raises:
            PeerError: BAD_TOKEN: no code has opened the session, or it was used meanwhile.
            HostError: STORAGE.
        """
        async with self.changing:
            code, now = self._credential_of(question.session), time.time()
            client = next((one for one in self if code and one.code == code), None)
            if client is None or client.is_disabled or now >= client.code_ends_at:
                raise PeerError(Code.BAD_TOKEN, "only a session that was opened with an enrolment code gets a token")
            token = new_token()
            enrolled = client.enrolled(digest_of(token), now)
            with trio.CancelScope(shield=True):  # what is on the disk is in force as well
                await trio.to_thread.run_sync(self.store, client.name, enrolled)
            self._put(client.name, enrolled)
            for credential in enrolled.credentials():
                self._move(question.session, credential)
            self._follow(self._credentials())
        return Enrolled(token, enrolled)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

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
