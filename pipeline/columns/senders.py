"""What single senders did, added up in a worker: whom they wrote to, and in whose name.

A worker puts equal messages together where it reads them; all of one sender and hour meet in one place, where different
recipients are counted, exactly. Only senders who did too much go on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.columns.groups import (
    Numbers,
    Rows,
    column,
    from_zero,
    group_numbers,
    is_word,
    lengths_of,
    numbers,
    run_of_rows,
    runs,
    starts_of,
    sums,
    words,
)
from pipeline.columns.hours import DAY_US
from pipeline.columns.packed import places_of
from pipeline.columns.usual import HOUR_US
from pipeline.core.thresholds import FAN_OUT_RECIPIENTS, SCAN_ATTEMPTS, SCAN_RECIPIENTS, SCAN_SHARE

FAN_OUT_WINDOW_US: Final = 300_000_000
EVIDENCE: Final = 20
UNKNOWN_RECIPIENT: Final = ("no-route", "not-registered", "no-such-service")
SPOOFED: Final = "spoofed"
_ANSWER: Final = "response"

SENDER: Final = ("our_domain", "peer_domain", "src_key")
MESSAGE: Final = (*SENDER, "role", "ts_us", "dst_key", "msg_type", "outcome_code")
"""Columns of `silver_mdr` that senders are judged by."""
EVIDENT: Final = (*SENDER, "role", "ts_us", "msg_id", "msg_type", "outcome_code")
"""Columns of `silver_mdr` that evidence is taken from."""
EVENT: Final = ("node", "domain", "event", "src_key", "ts_us")
"""Columns of `bronze_link_event` that show messages in a false name."""
CLAIM: Final = ("our_domain", "domain", "hour_us")


class Suspect(NamedTuple):
    """A sender in an hour."""

    our_domain: str
    peer_domain: str
    src_key: str | None
    hour_us: int


def contacts_of(messages: pa.Table) -> pa.Table:
    """Count the messages, but no answers, from each sender to each recipient in 5 minutes; mark unknown recipients.

    Messages without a sender are left out.

    Args:
        messages: The columns `MESSAGE` of `silver_mdr`.
    """
    is_meant = is_word(column(messages, "role"), "in") & ~is_word(column(messages, "msg_type"), _ANSWER)
    # Persons that were erased have no name any more: together they would be one sender that nobody is.
    is_meant &= np.asarray(column(messages, "src_key").is_valid())
    messages = messages.filter(pa.array(is_meant))
    ts_us = numbers(messages, "ts_us")
    contacts = messages.select([*SENDER, "dst_key"])
    contacts = contacts.append_column("window_us", pa.array(ts_us - ts_us % FAN_OUT_WINDOW_US))
    contacts = contacts.append_column("is_unknown", pa.array(_are_unknown(messages)))
    return _together(contacts.append_column("messages", pa.array(np.ones(len(ts_us), np.int64))))


def places_of_contacts(contacts: pa.Table, places: int) -> Numbers:
    """Partition contacts for counting: those of a sender and hour share one of the `places` of their day."""
    hour = numbers(contacts, "window_us") // HOUR_US
    return places_of(
        contacts.append_column("hour", pa.array(hour)), (*SENDER, "hour"), hour * HOUR_US // DAY_US, places
    )


def too_much(contacts: pa.Table) -> pa.Table:
    """Senders who wrote to very many, or mostly to nobody: `SENDER`, `hour_us`, and the figures.

    `widest` counts different recipients of the fullest 5 minutes, `unknown` different ones that there are not, `misses`
    and `attempts` messages.

    Args:
        contacts: All those of a sender and hour.
    """
    contacts = _together(contacts)
    recipients, recipient = words(column(contacts, "dst_key"))
    keys = [words(column(contacts, name)) for name in SENDER]
    window = numbers(contacts, "window_us")
    hour = window // HOUR_US
    group, _ = group_numbers([*((places, len(found)) for found, places in keys), from_zero(hour)])
    order, starts = runs(group)
    sender, many = run_of_rows(order, starts), len(starts)
    is_somebody = recipient < len(recipients) - 1
    is_unknown = np.asarray(column(contacts, "is_unknown"))
    in_window, _ = group_numbers([(sender, many), from_zero(window // FAN_OUT_WINDOW_US)])
    widest = np.zeros(many, np.int64)
    rows, different = _different(in_window[is_somebody], recipient[is_somebody], len(recipients))
    np.maximum.at(widest, sender[is_somebody][rows], different)
    unknown = np.zeros(many, np.int64)
    is_missed = is_somebody & is_unknown
    rows, different = _different(sender[is_missed], recipient[is_missed], len(recipients))
    unknown[sender[is_missed][rows]] = different
    messages = numbers(contacts, "messages")
    attempts, misses = (sums(values[order], starts) for values in (messages, np.where(is_unknown, messages, 0)))
    is_scan = (misses >= SCAN_ATTEMPTS) & (unknown >= SCAN_RECIPIENTS) & (misses >= SCAN_SHARE * attempts)
    chosen = np.flatnonzero(is_scan | (widest >= FAN_OUT_RECIPIENTS))
    found = contacts.select(list(SENDER)).take(pa.array(order[starts][chosen]))
    figures = {"widest": widest, "attempts": attempts, "misses": misses, "unknown": unknown}
    return pa.table(
        {
            **{name: column(found, name) for name in SENDER},
            "hour_us": hour[order[starts][chosen]] * HOUR_US,
            **{name: values[chosen] for name, values in figures.items()},
            "is_scan": is_scan[chosen],
        }
    )


def first_of(messages: pa.Table, suspects: Collection[Suspect]) -> pa.Table:
    """The first messages of each suspect and hour: `SENDER`, `hour_us`, `ts_us`, `msg_id`, and `is_unknown`.

    The first ones that are no answers, and the first ones that nobody was there for.

    Args:
        messages: The columns `EVIDENT` of `silver_mdr`.
        suspects: Senders and hours.
    """
    named = sorted({suspect[:-1] for suspect in suspects}, key=repr)
    wanted = Rows(*(pa.array([one[place] for one in named], pa.string()) for place in range(len(SENDER))))
    messages = messages.filter(pa.array(is_word(column(messages, "role"), "in")))
    sender = wanted.find(*(column(messages, name) for name in SENDER))
    messages, sender = messages.filter(pa.array(sender >= 0)), sender[sender >= 0]
    ts_us = numbers(messages, "ts_us")
    hour_us = ts_us - ts_us % HOUR_US
    is_unknown = _are_unknown(messages)
    is_answer = is_word(column(messages, "msg_type"), _ANSWER)
    group, _ = group_numbers([(sender, len(named)), from_zero(hour_us)])
    kept = []
    for chosen, word in ((np.flatnonzero(~is_answer), False), (np.flatnonzero(is_unknown), True)):
        sorting = pa.table(
            {"group": group[chosen], "ts_us": ts_us[chosen], "msg_id": column(messages, "msg_id").take(chosen)}
        )
        order = np.asarray(pa.compute.sort_indices(sorting, [(name, "ascending") for name in sorting.column_names]))
        order = order.astype(np.int64)
        starts = starts_of(group[chosen][order])
        rank = np.arange(len(order)) - np.repeat(starts, lengths_of(starts, len(order)))
        rows = chosen[order[rank < EVIDENCE]]
        found = messages.select([*SENDER, "ts_us", "msg_id"]).take(pa.array(rows))
        found = found.append_column("hour_us", pa.array(hour_us[rows]))
        kept.append(found.append_column("is_unknown", pa.array(np.full(len(rows), word))))
    return pa.concat_tables(kept)


def claims_of(events: pa.Table, owners: Mapping[str, str]) -> pa.Table:
    """In whose name peers sent what they had not proved to be, with how often, by hour.

    Args:
        events: The columns `EVENT` of `bronze_link_event`.
        owners: Which domain a node belongs to; events of others are left out.
    """
    found, node = words(column(events, "node"))
    ours = pa.array([owners.get(name) if name is not None else None for name in found], pa.string())
    events = events.append_column("our_domain", ours.take(pa.array(node)))
    is_known = np.asarray(column(events, "our_domain").is_valid())
    events = events.filter(pa.array(is_known & is_word(column(events, "event"), SPOOFED)))
    ts_us = numbers(events, "ts_us")
    claims = events.select(["our_domain", "domain", "src_key"])
    claims = claims.append_column("hour_us", pa.array(ts_us - ts_us % HOUR_US))
    return _together(claims.append_column("messages", pa.array(np.ones(len(ts_us), np.int64))))


def places_of_claims(claims: pa.Table, places: int) -> Numbers:
    """Partition claims for counting: those of a peer and hour share one of the `places` of their day."""
    return places_of(claims, CLAIM, numbers(claims, "hour_us") // DAY_US, places)


def claimed(claims: pa.Table) -> pa.Table:
    """Of each peer and hour: `attempts`, different `senders`, and the first of these by name, `claimed`."""
    claims = _together(claims)
    rows, order, starts = _groups(claims, CLAIM)
    senders, sender = words(column(claims, "src_key"))
    names, counts = [], []
    ends = starts + lengths_of(starts, len(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        different = np.unique(sender[order[start:end]])
        different = different[different < len(senders) - 1]
        counts.append(len(different))
        names.append([senders[place] for place in different[:EVIDENCE].tolist()])
    found = claims.select(list(CLAIM)).take(pa.array(rows))
    return pa.table(
        {
            **{name: column(found, name) for name in CLAIM},
            "attempts": sums(numbers(claims, "messages")[order], starts),
            "senders": pa.array(counts, pa.int64()),
            "claimed": pa.array(names, pa.list_(pa.string())),
        }
    )


def _together(rows: pa.Table) -> pa.Table:
    """Rows that are the same but for `messages` as one, with the sum of these."""
    same = [name for name in rows.column_names if name != "messages"]
    first, order, starts = _groups(rows, same)
    added = sums(numbers(rows, "messages")[order], starts)
    return rows.select(same).take(pa.array(first)).append_column("messages", pa.array(added))


def _groups(rows: pa.Table, names: Collection[str]) -> tuple[Numbers, Numbers, Numbers]:
    """The first row of each group, all rows in the order of groups, and where in it each begins."""
    keys = []
    for name in names:
        values = column(rows, name)
        if pa.types.is_integer(values.type):
            keys.append(from_zero(numbers(rows, name)))
        else:  # flags as well
            found, places = words(values)
            keys.append((places, len(found)))
    group, _ = group_numbers(keys)
    order, starts = runs(group)
    return order[starts], order, starts


def _different(group: Numbers, member: Numbers, members: int) -> tuple[Numbers, Numbers]:
    """For each group a row of it, and how many different members it has."""
    order, starts = runs(group_numbers([from_zero(group), (member, members)])[0])
    rows = order[starts]
    begin = starts_of(group[rows])
    return rows[begin], lengths_of(begin, len(rows))


def _are_unknown(messages: pa.Table) -> NDArray[np.bool_]:
    code = column(messages, "outcome_code")
    found, places = words(code)
    return np.array([word in UNKNOWN_RECIPIENT for word in found], bool)[places]
