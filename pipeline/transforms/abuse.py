"""Who behaves badly: fan-out, scanning, spoofing and floods, and what is usual; counted in Spark's workers.

Workers return senders, peers and hours in which something was too much; `pipeline.core.alerts` says what that means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from pipeline.core.groups import RECORDS_AT_ONCE, in_pieces
from pipeline.core.packed import packed, places_for, together
from pipeline.core.senders import (
    SENDER,
    Suspect,
    claimed,
    claims_of,
    contacts_of,
    first_of,
    places_of_claims,
    places_of_contacts,
    too_much,
)
from pipeline.core.usual import baselines, floods, hours_of_peers, places_of_peers
from pipeline.schemas import BYTES, DOUBLE, FLAG, LONG, TEXT, TEXTS
from pipeline.schemas.columns import columns
from pipeline.worker_rows import Batches, WorkerRows

_PLACES_OF_PEERS: Final = 64
_NAMED: Final = dict.fromkeys(SENDER, TEXT)

SUSPECTS: Final = columns(**_NAMED, hour_us=LONG, widest=LONG, attempts=LONG, misses=LONG, unknown=LONG, is_scan=FLAG)
"""Rows of `senders.too_much`."""
FIRSTS: Final = columns(**_NAMED, hour_us=LONG, ts_us=LONG, msg_id=BYTES, is_unknown=FLAG)
"""Rows of `senders.first_of`."""
CLAIMED: Final = columns(our_domain=TEXT, domain=TEXT, hour_us=LONG, attempts=LONG, senders=LONG, claimed=TEXTS)
"""Rows of `senders.claimed`."""
FLOODS: Final = columns(
    our_domain=TEXT, peer_domain=TEXT, hour_us=LONG, messages=DOUBLE, median=DOUBLE, level=DOUBLE, hours=LONG
)
"""Rows of `usual.floods`."""


def usual_hours(traffic: WorkerRows) -> WorkerRows:
    """What is usual for each peer; rows of `domain_baseline`. `traffic` has the columns `usual.TRAFFIC`."""
    return traffic.then(_by_peer).by_place().then(_usual)


def flooded_hours(traffic: WorkerRows) -> WorkerRows:
    """Hours in which peers sent far more than that, from the same; rows of `FLOODS`."""
    return traffic.then(_by_peer).by_place().then(_flooded)


def suspects(silver: WorkerRows) -> WorkerRows:
    """Senders who wrote to too many, or to nobody; rows of `SUSPECTS`. `silver` has the columns `senders.MESSAGE`."""
    places = places_for(silver.records)
    return silver.then(partial(_contacts, places)).by_place().then(_too_much)


def firsts(silver: WorkerRows, of: Collection[Suspect]) -> WorkerRows:
    """Their first messages, of what each worker reads; rows of `FIRSTS`. `silver` has `senders.EVIDENT`."""
    return silver.then(partial(_firsts, frozenset(of)))


def false_names(events: WorkerRows, owners: Mapping[str, str]) -> WorkerRows:
    """Peers that claimed to be somebody else; rows of `CLAIMED`.

    Args:
        events: The columns `senders.EVENT` of `bronze_link_event`.
        owners: Which domain a node belongs to.
    """
    return events.then(partial(_claims, owners, places_for(events.records))).by_place().then(_claimed)


def _by_peer(batches: Batches) -> Batches:
    for traffic in in_pieces(batches, RECORDS_AT_ONCE):
        hours = hours_of_peers(traffic)
        yield packed(hours, places_of_peers(hours, _PLACES_OF_PEERS))


def _usual(batches: Batches) -> Batches:
    yield from baselines(together(batches)).to_batches()


def _flooded(batches: Batches) -> Batches:
    yield from floods(together(batches)).to_batches()


def _contacts(places: int, batches: Batches) -> Batches:
    for messages in in_pieces(batches, RECORDS_AT_ONCE):
        contacts = contacts_of(messages)
        yield packed(contacts, places_of_contacts(contacts, places))


def _too_much(batches: Batches) -> Batches:
    yield from too_much(together(batches)).to_batches()


def _firsts(of: Collection[Suspect], batches: Batches) -> Batches:
    for messages in in_pieces(batches, RECORDS_AT_ONCE):
        yield from first_of(messages, of).to_batches()


def _claims(owners: Mapping[str, str], places: int, batches: Batches) -> Batches:
    for events in in_pieces(batches, RECORDS_AT_ONCE):
        claims = claims_of(events, owners)
        yield packed(claims, places_of_claims(claims, places))


def _claimed(batches: Batches) -> Batches:
    yield from claimed(together(batches)).to_batches()
