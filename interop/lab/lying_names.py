"""A name server that lies about other domains, and the impostors that it points to."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

import trio
import trustme

from interop.lab.actors import Notes
from interop.lab.core.scene import Fault
from interop.lab.core.seen import Lure
from interop.lab.impostors import impersonate
from interop.lab.members import Members
from interop.name_server import Fault as NameFault

_IMPOSTOR_NETWORK: Final = "127.44"
_TTL_SECONDS: Final = 1
_MET_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1


async def lie(members: Members, fault: Fault, notes: Notes) -> None:
    """Have the name server of a domain lie about all others, and the addresses that were true take no connection.

    Lies that name impostors last until the node has come to one, at most twenty seconds longer.
    An impostor has a certificate with the right names, of an authority that nobody knows. Who accepts it, believes.
    """
    reader = fault.domain or ""
    others = [target for source, target in members.lines if source == reader and target in members.folders.folders]
    names = members.names[reader]
    lied = {host: other for other in others for host in (other, f"mn.{other}")}
    async with trio.open_nursery() as nursery:
        records = dict(names.records)
        for number, other in enumerate(others, 1):
            address = f"{_IMPOSTOR_NETWORK}.{members.folders.domains.index(reader) + 1}.{number}"
            if fault.answer == "impostor":
                lure = Lure(reader=reader, what=f"an impostor of {other} that its name server named", at=0.0)
                ports = members.lines[reader, other].ports
                run = partial(impersonate, host=address, ports=ports)
                await nursery.start(run, _stranger(other), partial(_note, notes, lure))
            for host in (other, f"mn.{other}"):
                records[host] = [f"{_TTL_SECONDS} A {address}"] if fault.answer == "impostor" else []
        true, began = names.records, notes.now()
        try:
            if fault.answer == "silence":
                names.faults = dict.fromkeys(lied, NameFault.SILENT)
            else:
                names.replace(records)
            for other in others:
                members.lines[reader, other].vanish()
            await trio.sleep(fault.lasts)
            if fault.answer == "impostor":
                await _until_met(notes, began)
        finally:
            names.faults = {}
            names.replace(true)
            for other in others:
                members.lines[reader, other].heal()
        nursery.cancel_scope.cancel()


async def _until_met(notes: Notes, since: float) -> None:
    """Until a node has come to an impostor, at most for a while: it connects again after a pause of its own."""
    with trio.move_on_after(_MET_SECONDS):
        while not any(one.at >= since for one in notes.seen.lures):  # noqa: ASYNC110 - it looks like all else here
            await trio.sleep(_LOOK_SECONDS)


def _stranger(domain: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(domain, f"mn.{domain}").configure_cert(context)
    return context


def _note(notes: Notes, lure: Lure, is_accepted: bool) -> None:
    notes.seen.lures.append(Lure(reader=lure.reader, what=lure.what, at=notes.now(), is_believed=is_accepted))
