"""Tables of the engine, and the function that fences: each transaction of state begins with it.

`trapezoid_hold` locks the row of a node in key share mode, on the condition that the caller's epoch is the newest. A
process that takes the name over locks it for update: it waits for transactions that have begun, and later ones are
refused. Renewals are plain updates, which neither wait for a long transaction nor hold one up.
Keys may be longer than an index takes and may have any character, so rows are found by the SHA-256 of their key. What
another node looks for when this one has died is in indexes of their own: sessions by token and by runtime, and what
they hold by their number. They are made when they are missing, and do not count as another version: what is older
writes them without knowing. See docs/adr/0028.
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
MEMBER_CHARACTERS: Final = 500
"""Most of a member of a row that is in an index."""
LAST_ADDED: Final = "trapezoid_row_of_session"
ADD: Final = (
    f"""CREATE OR REPLACE FUNCTION trapezoid_member(row_text bytea, member text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
    BEGIN
        RETURN left(convert_from(row_text, 'UTF8')::json ->> member, {MEMBER_CHARACTERS});
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;  -- a row is stored whatever it says
    END $$""",
    """CREATE INDEX IF NOT EXISTS trapezoid_row_token
        ON trapezoid_row (node, trapezoid_member(row, 'token_digest')) WHERE kind = 'sessions'""",
    """CREATE INDEX IF NOT EXISTS trapezoid_row_runtime
        ON trapezoid_row (node, trapezoid_member(row, 'runtime_key')) WHERE kind = 'sessions'""",
    f"""CREATE INDEX IF NOT EXISTS {LAST_ADDED}
        ON trapezoid_row (node, kind, trapezoid_member(row, 'sid')) WHERE kind IN ('addresses', 'subscriptions')""",
)
"""Statements that add what version 1 did not have at first, in order; `LAST_ADDED` is there when all of it is."""
