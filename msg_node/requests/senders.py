"""How senders hear of their requests: by an answer while they wait, later through their inboxes, abroad by an event.

Everything leaves after what it promises is durable. Source: message specification, section 19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from msg_node.kernel.links import is_node
from msg_node.kernel.service import Durability, ServiceResult
from msg_node.requests.core.delivery_messages import (
    abroad_event,
    inbox_event,
    mirrored_answer,
    notice_body,
    status_reply,
)
from msg_node.requests.core.delivery_status import StatusReport
from msg_node.requests.core.inbox import InboxEntry, Notice
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.parked import ParkedRequest, Sender
from msg_node.requests.core.tables import RequestTables, is_sender
from protofly.limits import INBOX_NOTIFIED_AT_ONCE
from protofly.message import Message

Apply = Callable[[ServiceResult, Callable[[Message], None]], None]
"""Commits what a step changed; its replies leave through the callback."""


class Senders:
    """Everybody who sent a request that may wait.

    Args:
        url: Address of our service `delivery`, in whose name they are notified.
        ids: For events of our own.
    """

    def __init__(
        self,
        state: RequestTables,
        send_queues: OutboundQueues,
        *,
        url: str,
        apply: Apply,
        ids: Iterator[int],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._delivery = state.delivery
        self._send_queues = send_queues
        self._url = url
        self._apply = apply
        self._ids = ids
        self._now = now
        self._to_notify: dict[str, None] = {}  # owners of inboxes, first come, first served

    def reply(self, entry: ParkedRequest, word: StatusReport, answer: Message | None = None) -> bool:
        """Answer the request of a sender that is connected; False when it is not."""
        if entry.is_invitation and answer is not None:
            reply = mirrored_answer(entry, answer)
        else:
            reply = status_reply(entry, word)
        return self.send_to_sender(entry, reply)

    def send_to_sender(self, entry: ParkedRequest, message: Message) -> bool:
        """Send an answer to the sender of a request; False when it is not connected."""
        durability = Durability.PREFERRED if entry.is_stored else Durability.NONE
        result = ServiceResult(replies=[message], durability=durability)
        if entry.sender.domain:
            result.changes = self._state.take_changes()
            self._apply(result, partial(self.send_abroad, entry.sender.domain))
            return True
        if is_node(entry.asker):
            result.changes = self._state.take_changes()
            self._apply(result, partial(self.reply_to, entry.asker))
            return True
        sid = entry.asker if entry.asker in self._send_queues.ports else self._live_session_of(entry)
        if not sid:
            return False
        result.changes = self._state.take_changes()
        self._apply(result, partial(self._send_queues.reply_to, sid))
        return True

    def notify(self, entry: ParkedRequest, word: StatusReport) -> None:
        """Report through the inbox of the sender; the entry is kept until it is acknowledged."""
        if entry.sender.domain:
            event = abroad_event(entry, word, self._url, next(self._ids))
            self._apply(
                ServiceResult(replies=[event], changes=self._state.take_changes()),
                partial(self.send_abroad, entry.sender.domain),
            )
            return
        notice = self._delivery.inboxes.deposit(
            Notice(
                entry.request.from_key,
                entry.sender,
                entry.request_id,
                entry.queue,
                notice_body(entry, word),
                word.status.is_final,
            ),
            self._now(),
        )
        self._push([notice], 1)

    def notify_inboxes(self, owners: Iterable[str]) -> None:
        """Push entries of inboxes to the sessions of their owners: some now, the rest by `notify_more`."""
        self._to_notify.update(dict.fromkeys(owner for owner in owners if self._delivery.inboxes.has_unnotified(owner)))
        self.notify_more()

    def notify_more(self) -> int:
        """Push some of the entries that wait; returns how many were pushed."""
        left = INBOX_NOTIFIED_AT_ONCE
        for owner in list(islice(self._to_notify, INBOX_NOTIFIED_AT_ONCE)):
            del self._to_notify[owner]
            left -= self._push(self._delivery.inboxes.unnotified(owner), left)
        return INBOX_NOTIFIED_AT_ONCE - left

    def _push(self, notices: Iterable[InboxEntry], most: int) -> int:
        """Push at most so many to owners that are connected and have room; returns how many. The others wait."""
        pushed: dict[int, list[Message]] = {}
        count = 0
        for one in notices:
            sid = self._live_owner(one)
            if not sid:
                continue
            if count >= most or self._send_queues.ports[sid].queue.is_congested or one.owner in self._to_notify:
                self._to_notify[one.owner] = None
                break
            self._delivery.inboxes.notified(one)
            pushed.setdefault(sid, []).append(inbox_event(one, self._url))
            count += 1
        changes = self._state.take_changes()
        for sid, events in pushed.items():
            result = ServiceResult(replies=events, changes=changes, durability=Durability.REQUIRED)
            self._apply(result, partial(self._send_queues.reply_to, sid))
            changes = []
        if changes:
            self._apply(ServiceResult(changes=changes), to_nobody)
        return count

    def _live_owner(self, entry: InboxEntry) -> int:
        return self._live_speaker(entry.owner, entry.sender)

    def _live_session_of(self, entry: ParkedRequest) -> int:
        return self._live_speaker(entry.request.from_key, entry.sender)

    def _live_speaker(self, key: str, sender: Sender) -> int:
        """The live session that may hear what `sender` asked in the name of `key`; 0: there is none."""
        owner = self._state.owners.owner(key)
        sid = owner if owner is not None else self._state.sessions.by_runtime(sender.runtime_key)
        if sid is None or sid not in self._send_queues.ports or not is_sender(self._state, sid, sender, key):
            return 0
        return sid

    def reply_to(self, asker: int, message: Message) -> None:
        """Send a reply to a session, or to another node of ours, which has the session that asks."""
        if is_node(asker):
            self.send_abroad(self._state.links.domain(asker), message)
        else:
            self._send_queues.reply_to(asker, message)

    def send_abroad(self, domain: str, message: Message) -> None:
        """Queue for another domain; what its link refuses, it asks again."""
        self._send_queues.links.send(domain, message)

    def repeat_abroad(self, domain: str, end: Message, message: Message) -> None:
        """Queue for another domain how a request ended, but no refusal in place of it: that would be another end."""
        if message is end:
            self.send_abroad(domain, end)


def to_nobody(_message: Message) -> None:
    """There is no reply."""
