"""What partners hand in for our pipeline, by a POST at the site: a file each, signed, and bounded for each partner.

A request is known by its header (`protofly.partner_files`) before anything of its body is read. The body goes to a
hidden file and gets its name when all of it has come and has the hash that was signed, so the folder shows whole
files only. What a file says is no business of the node: the pipeline verifies it anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from msg_node.connectors.http_line import allow_body
from msg_node.settings.tables.exchange import ExchangeSettings
from protofly.errors import Code, PeerError
from protofly.partner_files import HEADER, PATH, PartnerFile, read_header
from protofly.signatures import KeyRecord

logger = logging.getLogger("msg_node.site.partner_inbox")

_HOUR_S: Final = 3600.0
_SLOWEST_BYTES_S: Final = 64 << 10
_SLOWEST_S: Final = 600.0
_HIDDEN: Final = ".incoming-"


@dataclass(slots=True)
class _Partner:
    """One partner: its keys, and what it has done lately; `requests` are those of the last hour, with their times."""

    keys: tuple[KeyRecord, ...]
    folder: Path
    requests: dict[str, float] = field(default_factory=dict)
    is_busy: bool = False
    taken: int = 0
    refused: int = 0


class PartnerInbox:
    """Takes the files of all partners.

    Args:
        domain: Ours.
        settings: Partners and bounds.
        folder: Where one folder for each of them is, or will be.
        clock: Seconds since the Unix epoch.
    """

    def __init__(
        self, domain: str, settings: ExchangeSettings, folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self._domain = domain
        self._clock = clock
        self._folder = folder
        self._partners: dict[str, _Partner] = {}
        self.follow(settings)

    def follow(self, settings: ExchangeSettings) -> None:
        """Take files of these partners from now on, within these bounds; the folder stays.

        What a partner has done lately counts on, and a file that is on its way is taken.
        """
        self._settings, before = settings, self._partners
        self._partners = {}
        for one in settings.partner:
            keys = tuple(KeyRecord(alg="ed25519", pub=pub) for pub in one.keys)
            known = self._partners[one.domain] = before.get(one.domain) or _Partner(keys, self._folder / one.domain)
            known.keys = keys

    def routes(self) -> list[Route]:
        """Routes that accept files of partners."""
        return [Route(f"{PATH}/{{author}}", self.take, methods=["POST"])]

    def status(self) -> list[dict[str, object]]:
        """The files that each partner has handed in, for `/status`."""
        return [
            {"domain": domain, "taken": one.taken, "refused": one.refused} for domain, one in self._partners.items()
        ]

    async def take(self, request: Request) -> Response:
        """Take one file. Raises PeerError with the reason for which it is refused."""
        author = request.path_params["author"]
        partner = self._partners.get(author)
        if partner is None:
            raise PeerError(Code.NO_SUCH_DOMAIN, "no partner of ours: its operator and ours agree on that first")
        text, now = request.headers.get(HEADER, ""), self._clock()
        try:
            file = read_header(text, author=author, reader=self._domain, keys=partner.keys, now=now)
            request_facts = _facts_of(partner, text)
        except PeerError as exc:  # anybody may have sent it, so it is not counted as the partner's
            logger.warning("a request in the name of %s is refused: %s: %s", author, exc.code.word, exc.detail)
            raise
        try:
            self._admit(partner, file, request_facts, now)
            await self._take(request, partner, file)
        except PeerError as exc:
            partner.refused += 1
            logger.warning("a file of %s is refused: %s: %s", author, exc.code.word, exc.detail)
            raise
        partner.taken += 1
        logger.info("took %s of %s, %d bytes", file.name, author, file.size)
        return PlainTextResponse("taken\n")

    def _admit(self, partner: _Partner, file: PartnerFile, facts: str, now: float) -> None:
        """Count a request that the partner has signed. Raises PeerError: its bounds are reached."""
        requests = partner.requests
        while requests and next(iter(requests.values())) <= now - _HOUR_S:
            del requests[next(iter(requests))]
        if partner.is_busy or len(requests) >= self._settings.hourly_files:
            raise PeerError(Code.RATE, "one file at a time, and so many in an hour: send it later", domain=file.author)
        requests[facts] = now
        if file.size > self._settings.file_bytes:
            raise PeerError(
                Code.TOO_LARGE, f"at most {self._settings.file_bytes:,} bytes are taken", domain=file.author
            )

    async def _take(self, request: Request, partner: _Partner, file: PartnerFile) -> None:
        partner.is_busy = True
        hidden = partner.folder / f"{_HIDDEN}{os.getpid()}"
        try:
            await trio.to_thread.run_sync(self._make_room, partner.folder, file)
            allow_body(request.scope, min(_SLOWEST_S, 10.0 + file.size / _SLOWEST_BYTES_S))
            await _store(request, hidden, file)
            await trio.to_thread.run_sync(_publish, hidden, partner.folder / file.name)
        except OSError as exc:
            logger.error("files of %s: %s", file.author, exc)
            raise PeerError(Code.STORAGE, "it cannot be stored now: send it later") from exc
        finally:
            partner.is_busy = False
            with suppress(OSError):
                hidden.unlink(missing_ok=True)

    def _make_room(self, folder: Path, file: PartnerFile) -> None:
        """See that there is a folder, and room in it. Raises PeerError and OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sizes: list[int] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                # What a process that was killed has left is nobody's.
                if entry.name.startswith(_HIDDEN) and entry.stat().st_mtime < time.time() - _HOUR_S:
                    Path(entry.path).unlink(missing_ok=True)
                elif entry.name != file.name and entry.is_file(follow_symlinks=False):
                    sizes.append(entry.stat(follow_symlinks=False).st_size)
        settings = self._settings
        if len(sizes) >= settings.waiting_files or sum(sizes) + file.size > settings.waiting_bytes:
            raise PeerError(Code.QUOTA, "too many files wait for our pipeline: send it later", domain=file.author)


def _facts_of(partner: _Partner, header: str) -> str:
    """The signed facts of a request; its signature alone might be written in another way.

    Raises:
        PeerError: AUTH_REPLAY: anybody who has seen the request may have sent it again, to use up the partner's bounds
            or to bring an older file back.
    """
    facts = header.partition(".")[0]
    if facts in partner.requests:
        raise PeerError(Code.AUTH_REPLAY, "this request has come before: send the file anew")
    return facts


async def _store(request: Request, hidden: Path, file: PartnerFile) -> None:
    """Write the body. Raises PeerError BAD_BODY: it is not what was signed; OSError."""
    left, digest = file.size, hashlib.sha256()
    async with await trio.open_file(hidden, "wb") as opened, aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            await opened.write(chunk)
    if left or digest.hexdigest() != file.sha256:
        raise PeerError(Code.BAD_BODY, "the body is not what was signed: send it anew", domain=file.author)


def _publish(hidden: Path, path: Path) -> None:
    """Give a file its name, for good. Blocks for the disk. Raises OSError."""
    with hidden.open("rb") as file:
        os.fsync(file.fileno())
    hidden.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
