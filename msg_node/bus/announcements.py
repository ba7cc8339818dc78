"""Messages of the node's own, to those who subscribed: statuses of entries and sessions, events, notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msg_node.kernel.directories import ListenerDirectory
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.service import Event, Notice, SessionNews
from protofly import codec
from protofly.address import domain_of
from protofly.message import Message


class Announcements:
    """Words what the node has to announce. It sends nothing.

    Args:
        node_url: Our runtime address.
        listeners: Who subscribed to what.
        first_id: Random start of the ids of our own messages, below 2^31. Source: message specification, section 3.
        notifies_presence: True while subscribers of `<runtime>/status` are notified when a runtime comes and goes.
    """

    def __init__(
        self,
        node_url: str,
        listeners: ListenerDirectory,
        *,
        first_id: int,
        notifies_presence: Callable[[], bool] = lambda: False,
    ) -> None:
        self._node_url = node_url
        self._listeners = listeners
        self._next_id = first_id
        self._notifies_presence = notifies_presence

    def event(self, event: Event) -> Message:
        """An event as a message."""
        id_ = self._fresh_id() if event.has_id else None
        return codec.build(id=id_, type=event.type, from_=event.from_, to=event.to, body=event.body)

    def presence(self, news: Iterable[SessionNews]) -> list[Message]:
        """Make the notifications for subscribers of `<runtime>/status` when runtimes come and go."""
        if not self._notifies_presence():
            return []
        changes = [(one.runtime_key, presence) for one in news if (presence := presence_of(one))]
        return [
            self.status(runtime, presence, source=self._node_url)
            for runtime, presence in changes
            if self._listeners.targets(f"{runtime}/status")
        ]

    def status(
        self, runtime: str, value: str, *, reason: str = "", resource: str = "", source: str = SESSION_KEY
    ) -> Message:
        """The status of a runtime or of its session, without the members that are empty."""
        members = {"value": value, "reason": reason, "resource": resource}
        body: dict[str, object] = {name: text for name, text in members.items() if text}
        return codec.build(id=self._fresh_id(), type="update", from_=source, to=f"{runtime}/status", body=body)

    def of_changes(self, changes: Iterable[StatusChange]) -> list[Message]:
        """Make the notifications of entries that have listeners; most entries of a sweep have none."""
        return [self._notification(change) for change in changes if self._has_listener(change)]

    def _has_listener(self, change: StatusChange) -> bool:
        return self._listeners.is_heard(f"{change.key}/registration")

    def _notification(self, change: StatusChange) -> Message:
        """Make the notification about an entry. Source: message specification, section 10.3."""
        return codec.build(
            id=self._fresh_id(),
            type="update",
            from_=f"domain://registry.{domain_of(change.url)}",
            to=f"{change.url}/registration",
            body={"value": change.status.value, "attribute": "status"},
        )

    def _fresh_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def notice(self, notice: Notice) -> Message:
        """Make the message that notifies a connection about its session."""
        return self.status(notice.runtime, notice.value, reason=notice.reason)


def presence_of(news: SessionNews) -> str:
    """Return the presence that news of a session means: `live`, `disconnected`, or "" for no change."""
    if news.event == "opened" or (news.event == "re-opened" and news.detail != "renewed"):
        return "live"
    return "disconnected" if news.event in ("lost", "closed") else ""
