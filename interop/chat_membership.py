"""Who takes part in a group chat: addresses, registration, look-up, invitation, observation, and the end of all that.

Each function is one step of the conversation. Unless it says otherwise it returns what it did, as text, and raises
UnexpectedAnswerError when a party answers otherwise than the scene foresees, TransportError when no answer comes.

Source: message specification, sections 5.1 and 7 to 10.
"""

from __future__ import annotations

from interop.chat_cast import Cast
from interop.participant import Participant
from interop.runtime_client import UnexpectedAnswerError


async def allocate(cast: Cast) -> str:
    """Get addresses for all hyperties and the object."""
    for participant in cast.people:
        [participant.hyperty] = await participant.client.at(participant.domain).allocate("hyperty", 1)
    reporter = cast.reporter
    [cast.room.address] = await reporter.client.at(reporter.domain).allocate(cast.scene.room.scheme, 1)
    for participant in cast.people:
        participant.meet(cast.people)
    return cast.room.address


async def register(cast: Cast) -> str:
    """Register all hyperties and the object."""
    for participant in cast.people:
        domain = participant.domain
        await participant.client.at(domain).register(
            {
                "url": participant.hyperty,
                "user": participant.person.user,
                "descriptor": f"hyperty-catalogue://catalogue.{domain}/.well-known/hyperty/Chat",
                "runtime": participant.person.runtime,
                "resources": ["chat"],
                "dataSchemes": [cast.scene.room.scheme],
                "status": "live",
                "expires": 3600,
            },
        )
    await cast.reporter.client.at(cast.reporter.domain).register(
        {
            "url": cast.room.address,
            "name": cast.scene.room.name,
            "schema": _schema(cast),
            "reporter": cast.reporter.hyperty,
            "runtime": cast.reporter.person.runtime,
            "resources": ["chat"],
            "dataSchemes": [cast.scene.room.scheme],
            "status": "live",
            "expires": 3600,
        },
    )
    return f"{len(cast.people)} hyperties, 1 data object"


async def find(seeker: Participant, sought: Participant) -> int:
    """Have one look up the hyperties of the other; returns how long it took, in ns."""
    answer = await seeker.client.at(sought.domain).look_up(seeker.hyperty, sought.person.user)
    if not isinstance(answer.value, dict) or sought.hyperty not in answer.value:
        raise UnexpectedAnswerError(f"look-up of {sought.person.user}: {sought.hyperty} is missing", answer)
    return answer.taken_ns


async def listen(cast: Cast) -> str:
    """Have the reporter subscribe to what is written to its object."""
    resources = [cast.room.subscription, cast.room.messages]
    await cast.reporter.client.at(cast.reporter.domain).subscribe(resources)
    cast.room.version = 1
    cast.room.data = {"topic": cast.scene.room.topic, "participants": [cast.reporter.hyperty]}
    return cast.room.subscription


async def invite(cast: Cast) -> str:
    """Invite all observers."""
    body = {
        "source": cast.reporter.hyperty,
        "schema": _schema(cast),
        "value": {"name": cast.scene.room.name, "reporter": cast.reporter.hyperty},
        "p2p": False,
        "mutual": False,
    }
    for observer in cast.observers:
        await cast.reporter.client.granted("create", cast.room.subscription, observer.hyperty, body)
    accepted = [observer.name for observer in cast.observers if observer.invitations == [cast.room.subscription]]
    return f"accepted by {', '.join(accepted)}"


async def observe(cast: Cast) -> str:
    """Have all observers subscribe, at their own node and at the reporter's."""
    resources = [cast.room.changes, cast.room.messages]
    for observer in cast.observers:
        for domain in dict.fromkeys((observer.domain, cast.reporter.domain)):
            await observer.client.at(domain).subscribe(resources)
        answer = await observer.client.granted(
            "subscribe",
            f"{observer.person.runtime}/sm",
            cast.room.subscription,
            {"source": observer.hyperty, "resource": cast.room.address},
        )
        expected = {"data": cast.room.data, "version": cast.room.version}
        if answer.value != expected:
            raise UnexpectedAnswerError(f"{observer.name} subscribes: the object differs from {expected}", answer)
    return f"granted to {len(cast.reporter.granted)} observers"


async def leave_room(cast: Cast) -> str:
    """Have all observers unsubscribe."""
    resources = [cast.room.changes, cast.room.messages]
    for observer in cast.observers:
        await observer.client.granted(
            "unsubscribe",
            f"{observer.person.runtime}/sm",
            cast.room.subscription,
            {"source": observer.hyperty, "resource": cast.room.address},
        )
        for domain in dict.fromkeys((cast.reporter.domain, observer.domain)):
            await observer.client.at(domain).unsubscribe(resources)
    return f"{len(cast.reporter.granted)} observers left"


async def give_back(cast: Cast) -> str:
    """Unregister entries and release addresses."""
    await cast.reporter.client.at(cast.reporter.domain).unregister(cast.room.address)
    await cast.reporter.client.at(cast.reporter.domain).release(cast.scene.room.scheme)
    for participant in cast.people:
        await participant.client.at(participant.domain).unregister(participant.hyperty)
        await participant.client.at(participant.domain).release("hyperty")
    return f"{len(cast.people) + 1} addresses"


async def close(cast: Cast) -> str:
    """Close all sessions."""
    closed = [await participant.client.close() for participant in cast.people]
    return f"{sum(closed)} of {len(closed)} closed by their node"


def _schema(cast: Cast) -> str:
    domain = cast.reporter.domain
    return f"hyperty-catalogue://catalogue.{domain}/.well-known/dataschema/Communication"
