"""Erases one person from what a running node holds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from functools import partial

import trio

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.plan import Plan
from msg_node.bus.core.erasure import (
    GONE,
    erase,
    erase_registrations,
    erased_on_their_way,
    find_person,
    find_traces,
    is_named_in,
    names_of,
)
from msg_node.records.quarantined import about, remove_kept


async def erase_person(node: Administered, arguments: Mapping[str, Value], _by: str) -> Plan:
    """Take out all that is held of one person. The plan has numbers of rows, and no name.

    Raises:
        PeerError: BAD_BODY.
        HostError: STATE_UNAVAILABLE, it cannot be asked which sessions are on their way between nodes.
    """
    name, keeps_bans = str(arguments["person"]), bool(arguments.get("keep_bans"))
    person = find_person(node.state, name, await trio.to_thread.run_sync(node.on_their_way))
    find = partial(find_traces, node.state, person, keeps_bans=keeps_bans)
    data_dir = node.settings().node.data_dir
    kept = await trio.to_thread.run_sync(about, data_dir, names_of(person))
    proposals = partial(node.proposals.of_person, partial(is_named_in, person), person.credentials)
    counts = {**find().counts(), "quarantined_messages": len(kept), "proposals": len(proposals())}
    owed: set[int] = set()

    def apply() -> None:
        traces, known = find(), {one.number for one in node.state.delivery.inboxes}
        for entry in traces.requests_for:
            node.bus.parked_actions.recorder.finish(entry, GONE)
        owed.update(one.number for one in node.state.delivery.inboxes if one.number not in known)
        node.bus.runtimes.remove(person.sids)
        node.bus.effects.publish_statuses(erase_registrations(node.state, traces))
        node.bus.send_queues.wake()

    def finish() -> None:
        traces = find()
        reports = [one for one in traces.reports if one.number not in owed]
        erase(node.state, dataclasses.replace(traces, reports=reports), now=time.time())
        for proposal in proposals():
            node.proposals.remove(proposal)
        if person.on_their_way:
            node.store.submit(erased_on_their_way(person), lambda: None)
        node.store.scrub()

    def forget() -> None:
        remove_kept(kept)
        if person.guid:
            node.forget_guid(person.guid)

    return Plan({table: count for table, count in counts.items() if count}, None, apply, forget, finish)
