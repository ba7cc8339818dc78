"""`domain://msg-node.<d>/delivery` and `…/inbox`: where requests stand, cancelling them, and what senders are to hear.

A request is shown to its sender, to the agent that it is for, and to operators; to anybody else it does not exist, so
that ids cannot be found by trying. Source: message specification, section 19.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from msg_node.kernel.resources import Members, check_texts, key_or_refuse, object_of, text_of
from msg_node.kernel.service import Answer, Caller, Durability, ServiceRequest
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.requests.core.delivery_status import CANCELLED, Status, read_status
from msg_node.requests.core.inbox import InboxEntry
from msg_node.requests.core.parked import FinishedRequest, ParkedRequest, Sender
from msg_node.requests.core.tables import RequestTables, is_sender
from msg_node.requests.core.viewer import Viewer, viewer_of
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import INBOX_PAGE_BYTES, PAGE_ENTRIES, RESOURCES_ENTRIES

_Shown = TypeVar("_Shown")
_NUMBER_CHARS = 20


class DeliveryService:
    """Reports where requests stand, and cancels them."""

    def __init__(self, state: RequestTables) -> None:
        self._state = state
        self._delivery: DeliveryState = state.delivery

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `read` and `delete`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, NO_SUCH_REQUEST, ALREADY_FINAL.
        """
        return self.serve(request, viewer_of(self._state, request.caller))

    def serve(self, request: ServiceRequest, viewer: Viewer) -> Answer:
        """The same for somebody who may have asked at another node. Raises PeerError, as above."""
        request_id = request_id_of(request)
        match request.message.type:
            case "read":
                if request_id:
                    return Answer(value=self._one(viewer, request_id), durability=Durability.REQUIRED)
                return Answer(value=self._listed(viewer, request.members), durability=Durability.REQUIRED)
            case "delete":
                if not request_id:
                    raise PeerError(Code.BAD_BODY, "resource is to name a request")
                return self._cancel(viewer, request_id, request.now)
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows read and delete")

    def viewer(self, caller: Caller) -> Viewer:
        """Identify the caller at this node."""
        return viewer_of(self._state, caller)

    def has_given(self, viewer: Viewer, request_id: str) -> bool:
        """True for a request that is not ours any more, since another node of the domain was given it."""
        finished = self._delivery.parking.finished.find(viewer.domain, request_id)
        return finished is not None and not finished.word.status.is_final

    def _one(self, viewer: Viewer, request_id: str) -> dict[str, object]:
        entry = self._open(viewer, request_id)
        if entry is not None:
            return _described(entry)
        notice = self._delivery.inboxes.find(request_id)
        if notice is not None and notice.is_final and self._may_see_notice(viewer, notice):
            return {
                "to": notice.queue,
                "from": notice.owner,
                **msgspec.json.decode(notice.body, type=dict[str, object]),
            }
        return _ended(self._finished(viewer, request_id))

    def _cancel(self, viewer: Viewer, request_id: str, now: float) -> Answer:
        entry = self._open(viewer, request_id)
        if entry is None:
            finished = self._finished(viewer, request_id)
            raise PeerError(Code.ALREADY_FINAL, f"the request is {finished.word.status.value}")
        by_sender = viewer.has_sent(self._state, entry.sender, entry.request.from_key)
        self._delivery.cancelled.append((entry, by_sender))
        if entry.status is Status.PENDING and not entry.is_acknowledged:
            self._delivery.parking.finish(entry, CANCELLED, now)
            return Answer(value={"requestId": request_id, "status": Status.CANCELLED.value})
        value = {"requestId": request_id, "status": entry.status.value}
        return Answer(202, value, description="the recipient has it, and is asked to leave it undone")

    def _open(self, viewer: Viewer, request_id: str) -> ParkedRequest | None:
        """The open request with that id that somebody may see: of several with one id ours, or else the newest."""
        parking = self._delivery.parking
        entry = parking.find(viewer.domain, request_id)
        found = [] if entry is None else [entry]
        if not viewer.domain:
            found += parking.find_foreign(request_id)
        seen = (one for one in found if self._may_see(viewer, one.sender, one.request.from_key, one.queue))
        return next(seen, None)

    def _finished(self, viewer: Viewer, request_id: str) -> FinishedRequest:
        finished = self._delivery.parking.finished.find(viewer.domain, request_id)
        if finished is None or not finished.word.status.is_final or not self._may_see_finished(viewer, finished):
            raise PeerError(Code.NO_SUCH_REQUEST, "no such request is known")
        return finished

    def _may_see(self, viewer: Viewer, sender: Sender, from_key: str, queue: str) -> bool:
        if viewer.is_operator or viewer.has_sent(self._state, sender, from_key):
            return True
        return not viewer.domain and queue in viewer.addresses

    def _may_see_finished(self, viewer: Viewer, finished: FinishedRequest) -> bool:
        return self._may_see(viewer, finished.sender, finished.from_key, finished.queue)

    def _may_see_notice(self, viewer: Viewer, notice: InboxEntry) -> bool:
        return self._may_see(viewer, notice.sender, notice.owner, notice.queue)

    def _listed(self, viewer: Viewer, members: Members) -> list[dict[str, object]]:
        criteria = object_of(members, "criteria")
        check_texts(criteria, "to", "from")
        to, from_ = text_of(criteria, "to"), text_of(criteria, "from")
        status = read_status(criteria.get("status"))
        if criteria.get("status") is not None and status is None:
            raise PeerError(Code.BAD_BODY, "status is none of the words for it")
        to_key, from_key = key_or_refuse(to) if to else "", key_or_refuse(from_) if from_ else ""
        found = [
            entry
            for entry in self._candidates(viewer)
            if (not to_key or to_key in (entry.queue, entry.request.to_key))
            and (not from_key or from_key == entry.request.from_key)
            and (status is None or status is entry.status)
        ]
        return [_described(entry) for entry in _page(found, members)]

    def _candidates(self, viewer: Viewer) -> list[ParkedRequest]:
        """Everything open that the viewer may see, in order of arrival."""
        parking = self._delivery.parking
        if viewer.is_operator:
            return parking.of_senders(list(parking.senders()))
        if viewer.domain:
            return parking.of_senders([Sender("", domain=viewer.domain)])
        theirs = {Sender(viewer.runtime_key), Sender(viewer.runtime_key, viewer.credential)}
        found = {
            entry.number: entry
            for entry in parking.of_senders(theirs)
            if viewer.has_sent(self._state, entry.sender, entry.request.from_key)
        }
        for queue in viewer.addresses & parking.queues.names():
            found.update((entry.number, entry) for entry in parking.queues.entries(queue))
        return [found[number] for number in sorted(found)]


class InboxService:
    """Shows senders what they are to hear, and forgets what they acknowledge."""

    def __init__(self, state: RequestTables) -> None:
        self._state = state
        self._inboxes = state.delivery.inboxes

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `read` and `delete`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY.
        """
        owners = self._owners(request.caller)
        match request.message.type:
            case "read":
                return Answer(value=self._read(request, owners), durability=Durability.REQUIRED)
            case "delete":
                numbers = _numbers(request.members)
                gone = 0
                for owner in owners:
                    theirs = {one.number for one in self._visible(request.caller, owner)}
                    gone += self._inboxes.acknowledge(owner, [number for number in numbers if number in theirs])
                return Answer(value={"acknowledged": gone})
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows read and delete")

    def _owners(self, caller: Caller) -> list[str]:
        session = self._state.sessions.get(caller.number)
        if session is None:
            return []
        owned = {canonical_key(row.url) for row in self._state.owners.owned(caller.number)}
        return sorted({*self._inboxes.owners_of(session.runtime_key), *(owned & self._inboxes.owners())})

    def _visible(self, caller: Caller, owner: str) -> list[InboxEntry]:
        return [
            one for one in self._inboxes.of_owner(owner) if is_sender(self._state, caller.number, one.sender, owner)
        ]

    def _read(self, request: ServiceRequest, owners: Iterable[str]) -> list[dict[str, object]]:
        criteria = object_of(request.members, "criteria")
        names = [name for name in ("requestId", "status") if name in criteria]
        entries = sorted(
            (one for owner in owners for one in self._visible(request.caller, owner)), key=lambda one: one.number
        )
        found = [one for one in entries if all(_word_of(one, name) == criteria[name] for name in names)]
        shown: list[dict[str, object]] = []
        room = INBOX_PAGE_BYTES
        for one in _page(found, request.members):
            members = msgspec.json.decode(one.body, type=dict[str, msgspec.Raw])
            room -= len(one.body)
            if room < 0 and shown:
                members.pop("value", None)
            shown.append({"id": one.number, "to": f"{one.owner}/inbox", **members})
        return shown


class _Reported(msgspec.Struct):
    """What a search needs of an entry; the value, which may be long, is skipped."""

    status: object = None


_decode_reported = msgspec.json.Decoder(_Reported).decode


def _word_of(entry: InboxEntry, name: str) -> object:
    return entry.request_id if name == "requestId" else _decode_reported(entry.body).status


def request_id_of(request: ServiceRequest) -> str:
    """The request that is asked about, "" for a list. Raises PeerError: BAD_BODY."""
    return text_of(request.members, "resource", "requestId")


def _described(entry: ParkedRequest) -> dict[str, object]:
    return {
        "requestId": entry.request_id,
        "status": entry.status.value,
        "from": entry.request.from_,
        "to": entry.request.to,
        "expires": int(entry.expires_at),
    }


def _ended(finished: FinishedRequest) -> dict[str, object]:
    word = finished.word
    return {"requestId": finished.request_id, "status": word.status.value, "code": word.code, "to": finished.queue}


def _page(found: list[_Shown], members: Members) -> list[_Shown]:
    """One page of a list; pages count from 1."""
    page = members.get("page", 1)
    if isinstance(page, bool) or not isinstance(page, int) or page < 0:
        raise PeerError(Code.BAD_BODY, "page is to be a number, from 1")
    start = max(page - 1, 0) * PAGE_ENTRIES
    return found[start : start + PAGE_ENTRIES]


def _numbers(members: Members) -> list[int]:
    """Ids of inbox entries in `resources` (or one in `resource`)."""
    named = members.get("resources", members.get("resource"))
    listed = named if isinstance(named, list) else [named]
    if not listed or len(listed) > RESOURCES_ENTRIES:
        raise PeerError(Code.BAD_BODY, f"resources is to list at most {RESOURCES_ENTRIES} ids of entries")
    numbers = []
    for one in listed:
        number = int(one) if isinstance(one, str) and one.isdecimal() and len(one) < _NUMBER_CHARS else one
        if isinstance(number, bool) or not isinstance(number, int):
            raise PeerError(Code.BAD_BODY, "resources is to list ids of entries")
        numbers.append(number)
    return numbers
