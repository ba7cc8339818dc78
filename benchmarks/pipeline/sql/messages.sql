-- Both books side by side, message by message; `judged` are all records, or those that `levels` leaves.
CREATE TABLE messages AS
WITH record AS (
    SELECT
        src_domain, dst_domain, msg_id, role, ts_us, digest, outcome,
        d_total_us AS span_us,
        coalesce(size_wire, size_in) AS size,
        CASE outcome WHEN 'delivered' THEN 0 WHEN 'duplicate' THEN 2 ELSE 1 END AS place
    FROM judged
),
side AS (
    SELECT
        src_domain, dst_domain, msg_id, role,
        arg_min(
            {'ts_us': ts_us, 'size': size, 'outcome': outcome, 'span_us': span_us},
            place * 1000000000000000000 + ts_us
        ) AS best,
        count(*) FILTER (place = 0) AS claims,
        count(*) FILTER (place < 2) AS answers,
        min(digest) FILTER (place = 0 OR role = 'in' AND place < 2) AS low_digest,
        max(digest) FILTER (place = 0 OR role = 'in' AND place < 2) AS high_digest
    FROM record
    GROUP BY ALL
)
SELECT
    src_domain, dst_domain, msg_id, o.best AS o, i.best AS i,
    o.claims AS copies_out, i.answers AS copies_in,
    least(o.low_digest, i.low_digest) <> greatest(o.high_digest, i.high_digest) AS is_altered
FROM (FROM side WHERE role = 'out') AS o
FULL JOIN (FROM side WHERE role = 'in') AS i USING (src_domain, dst_domain, msg_id)
