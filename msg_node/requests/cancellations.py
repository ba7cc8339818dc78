"""Requests to cancel, sent to the agents and nodes that have a request. Source: message specification, section 19.3."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msg_node.requests.core.delivery_messages import cancellation
from msg_node.requests.core.delivery_status import report_of
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.parking import Parking
from msg_node.requests.core.recipients import is_domain
from protofly.limits import AGENT_UNANSWERED
from protofly.message import Message


class Cancellations:
    """Requests to cancel that are not answered yet; the oldest are forgotten.

    Args:
        url: Address of our service `delivery`, in whose name they are sent.
        ids: For messages of our own.
    """

    def __init__(self, parking: Parking, send_queues: OutboundQueues, url: str, ids: Iterator[int]) -> None:
        self._parking = parking
        self._send_queues = send_queues
        self._url = url
        self._ids = ids
        self._asked: OrderedDict[tuple[bytes, str], ParkedRequest] = OrderedDict()

    def ask(self, entry: ParkedRequest, sid: int) -> None:
        """Ask the recipient of a request to leave it undone: the agent's session `sid` (0: none), or the other node.

        A node that is not connected is asked when its link is up.
        """
        self._parking.cancelling(entry)
        number = next(self._ids)
        if is_domain(entry.queue):
            to = f"domain://msg-node.{entry.queue}/delivery"
            request = cancellation(entry, self._url, to, number)
            if not self._send_queues.links.is_live(entry.queue):
                return
            self._send_queues.links.send(entry.queue, request)
        else:
            request = cancellation(entry, self._url, entry.request.to, number)
            self._send_queues.to_listeners((sid,) if sid else (), request, set())
        assert request.id is not None
        self._asked[request.id, request.to_key] = entry
        if len(self._asked) > AGENT_UNANSWERED:
            self._asked.popitem(last=False)
        self._send_queues.wake()

    def take_answered(self, reply: Message) -> ParkedRequest | None:
        """The request that a reply to a request to cancel is about; each is returned once."""
        if not self._asked or reply.id is None or reply.to_key != self._url:
            return None
        return self._asked.pop((reply.id, reply.from_key), None)


def is_undone(reply: Message) -> bool:
    """True when a reply to a request to cancel says that the request is cancelled, or unknown there."""
    word = report_of(reply)
    return word.code == 404 or (word.status.is_final and word.code < 300)
