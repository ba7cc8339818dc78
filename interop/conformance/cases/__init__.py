"""All cases, in the order of the report. A module holds what one chapter of the message specification demands."""

from __future__ import annotations

from typing import Final

from interop.conformance.cases import (
    addresses,
    allocation,
    broken_input,
    commands,
    existing_runtimes,
    headers,
    release,
    routing,
    session_messages,
    sessions,
    subscription,
    synchronisation,
)
from interop.conformance.model import Case

GROUPS: Final = {
    "session": "sessions",
    "open": "session messages",
    "command": "command frames",
    "query": "query",
    "header": "header and envelope",
    "address": "addresses and services",
    "broken": "broken input",
    "alloc": "allocation",
    "release": "release",
    "sub": "subscription",
    "unsub": "end of subscription",
    "sync": "data synchronisation",
    "route": "routing",
    "rethink": "existing runtimes",
}
"""First word of a case's id, and what the report calls it."""

CASES: Final[tuple[Case, ...]] = (
    *sessions.CASES,
    *session_messages.CASES,
    *commands.CASES,
    *headers.CASES,
    *addresses.CASES,
    *broken_input.CASES,
    *allocation.CASES,
    *release.CASES,
    *subscription.CASES,
    *synchronisation.CASES,
    *routing.CASES,
    *existing_runtimes.CASES,
)
