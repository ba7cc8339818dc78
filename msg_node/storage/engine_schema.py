"""Tables of the engine, and the function that fences: each transaction of state begins with it.

`trapezoid_hold` locks the row of a node in key share mode, on the condition that the caller's epoch is the newest. A
process that takes the name over locks it for update: it waits for transactions that have begun, and later ones are
refused. Renewals are plain updates, which neither wait for a long transaction nor hold one up.
Keys may be longer than an index takes and may have any character, so rows are found by the SHA-256 of their key. See
docs/adr/0028.
"""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 1
FENCED: Final = "TZF01"
"""SQLSTATE of `trapezoid_hold` for an epoch that has ended."""

CREATE: Final = (
    "CREATE TABLE trapezoid_schema (version integer NOT NULL, domain text NOT NULL)",
    """CREATE TABLE trapezoid_node (
        name text PRIMARY KEY,
        epoch bigint NOT NULL,
        beat bigint NOT NULL DEFAULT 0,
        is_held boolean NOT NULL DEFAULT true,
        instance text NOT NULL,
        renewed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        facts bytea NOT NULL
    )""",
    """CREATE TABLE trapezoid_row (
        node text NOT NULL,
        kind text NOT NULL,
        digest bytea NOT NULL,
        key bytea NOT NULL,
        row bytea NOT NULL,
        number bigint GENERATED ALWAYS AS IDENTITY,
        PRIMARY KEY (node, kind, digest)
    )""",
    "CREATE SEQUENCE trapezoid_claim_epoch",
    """CREATE TABLE trapezoid_claim (
        digest bytea PRIMARY KEY,
        key bytea NOT NULL,
        node text NOT NULL,
        epoch bigint NOT NULL DEFAULT nextval('trapezoid_claim_epoch')
    )""",
    "CREATE INDEX trapezoid_claim_node ON trapezoid_claim (node)",
    """CREATE FUNCTION trapezoid_hold(our_name text, our_epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM trapezoid_node WHERE name = our_name AND epoch = our_epoch AND is_held FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'epoch % of node % has ended', our_epoch, our_name USING ERRCODE = 'TZF01';
        END IF;
    END $$""",
)
"""Statements that make version 1, in order."""
