"""Takes the state out of a link that moves to another node of our domain, and puts it into the link there.

Nothing of what is moved is answered here, and nothing of it goes out here any more.
Source: docs/adr/0041-a-link-moves-with-all-it-has.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from federation.core.moved_link import MovedLink, moved_message
from federation.core.outbound_queue import OutboundMessage
from federation.core.stub_lifecycle import StubState
from federation.links.domain_link import DomainLink
from federation.links.router import Federation
from federation.links.visitors import greeting
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message

logger = logging.getLogger("federation")

CALL_SECONDS: Final = 5.0
"""A stub that calls its domain for longer does not keep that from calling us."""
_CALLING: Final = frozenset(
    {StubState.DEPLOYING.value, StubState.DEPLOYED.value, StubState.CREATED.value, StubState.IN_PROGRESS.value}
)


def keeps_link(link: DomainLink, our_domain: str, stream: str, *, now: float) -> bool:
    """Decide whether a link stays where it is although its domain has connected to another node of ours.

    It stays while a carrier is up, unless that came from the same stream: then the domain has lost it. If both domains
    call each other at the same time, a call of the one whose name is less counts, so that not both ends give way.

    Args:
        link: As it is here.
        our_domain: Our name.
        stream: That of the domain, as it introduced itself.
        now: Seconds since the Unix epoch.
    """
    if link.machine.carriers:
        return any(carrier.origin != stream for carrier in link.machine.carriers)
    is_calling = link.stub.state in _CALLING and now - link.stub.since < CALL_SECONDS
    return is_calling and our_domain < link.domain


def hand_over_link(federation: Federation, domain: str) -> MovedLink | None:
    """End the link to a domain for another node: what it has, None if there is none.

    Its carriers end, but what they took is seen through and said to be: the other domain sends it to nobody again.
    """
    link = federation.find(domain)
    if link is None:
        return None
    moved = taken_out(link)
    link.senders.relieve()
    federation.cut_off(domain, Code.LINK_ELSEWHERE, "the link moves to another node of this domain")
    return moved


def taken_out(link: DomainLink) -> MovedLink:
    """Take everything out of a link, for another node; nothing is left in it."""
    machine, now = link.machine, link.now()
    if machine.canary is not None:
        machine.canary.join(machine.queue)
        machine.canary = None
    requests, addressed = machine.replies.hand_over(now)
    return MovedLink(
        machine.queue.stream,
        machine.queue.next_number,
        list(machine.streams.all().items()),
        [moved_message(one, now) for one in machine.queue.abandon()],
        requests,
        addressed,
    )


def take_over_link(federation: Federation, node: str, domain: str, moved: MovedLink) -> None:
    """Make the link to a domain go on here; `node` is the address of this node.

    Raises:
        PeerError: As `Federation.open_link`; nothing has been taken over.
    """
    federation.cut_off(domain, Code.LINK_ELSEWHERE, "the link comes from another node of this domain")
    put_in(federation.open_link(domain, greeting(node, node)), moved)


def put_in(link: DomainLink, moved: MovedLink) -> None:
    """Have a link that is new go on for another one."""
    machine, now = link.machine, link.now()
    machine.queue.begin_stream(moved.stream, moved.next_number, _outbound(link, moved, now))
    machine.replies.restore(moved.requests, moved.addressed, now)
    for stream, number in moved.seen:
        machine.streams.heard(stream, number)


def _outbound(link: DomainLink, moved: MovedLink, now: float) -> list[OutboundMessage]:
    messages = []
    for one in moved.messages:
        try:
            messages.append(one.outbound(now))
        except PeerError as exc:  # of another version than this node: the request is answered when its time is over
            logger.error("a message for %s cannot be read: %s", link.domain, exc, extra={"domain": link.domain})
    return messages


def undo_link(node: str, moved: MovedLink, code: Code) -> Iterator[Message]:
    """The answers to those who wait for one, where a link that moves can go on nowhere."""
    for request in moved.requests:
        yield codec.refusal(request.message, code, source=node)
