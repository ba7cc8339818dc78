"""Who behaves badly: fan-out, scanning, spoofing and floods, and what is usual; counted in Spark's workers.

Workers return senders, peers and hours in which something was too much; `pipeline.core.alerts` says what that means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from pipeline.columns.packed import places_for
from pipeline.columns.senders import (
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
from pipeline.columns.usual import Missing, baselines, floods, hours_of_peers, places_of_peers
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import BYTES, DOUBLE, FLAG, LONG, TEXT, TEXTS
from pipeline.schemas.columns import columns

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


def usual_hours(traffic: WorkerRows, missing: Missing | None = None) -> WorkerRows:
    """Compute the baseline of each peer; rows of `domain_baseline`.

    Args:
        traffic: The columns `usual.TRAFFIC` of `traffic_hourly`.
        missing: When records of a domain are missing.
    """
    return _peers(traffic).of_places(partial(baselines, missing=missing or {}))


def flooded_hours(traffic: WorkerRows, missing: Missing | None = None) -> WorkerRows:
    """Hours in which peers sent far more than that, from the same; rows of `FLOODS`."""
    return _peers(traffic).of_places(partial(floods, missing=missing or {}))


def suspects(silver: WorkerRows) -> WorkerRows:
    """Senders who wrote to too many, or to nobody; rows of `SUSPECTS`. `silver` has the columns `senders.MESSAGE`."""
    contacts = silver.to_places(places_of_contacts, places_for(silver.records), of=contacts_of)
    return contacts.of_places(too_much)


def firsts(silver: WorkerRows, of: Collection[Suspect]) -> WorkerRows:
    """Their first messages, of what each worker reads; rows of `FIRSTS`. `silver` has `senders.EVIDENT`."""
    return silver.in_tables(partial(first_of, suspects=frozenset(of)))


def false_names(events: WorkerRows, owners: Mapping[str, str]) -> WorkerRows:
    """Peers that claimed to be somebody else; rows of `CLAIMED`.

    Args:
        events: The columns `senders.EVENT` of `bronze_link_event`.
        owners: Which domain a node belongs to.
    """
    claims = partial(claims_of, owners=owners)
    return events.to_places(places_of_claims, places_for(events.records), of=claims).of_places(claimed)


def _peers(traffic: WorkerRows) -> WorkerRows:
    return traffic.to_places(places_of_peers, _PLACES_OF_PEERS, of=hours_of_peers)
