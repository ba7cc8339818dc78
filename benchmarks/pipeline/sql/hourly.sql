-- Statements per hour, pair, role and message type, from the definitions in docs/settlement.md.
-- `records` has the columns of silver_mdr, and `member`: 64 bits for msg_id and digest. set_sum is not reduced here.
CREATE TABLE hourly AS
SELECT
    our_domain, src_domain, dst_domain, role, msg_type,
    ts_us - ts_us % 3600000000 AS hour_us,
    count(*) AS messages,
    count(*) FILTER (outcome = 'delivered') AS delivered,
    count(*) FILTER (outcome = 'denied') AS denied,
    count(*) FILTER (outcome NOT IN ('delivered', 'denied')) AS failed,
    sum(coalesce(size_in, 0))::BIGINT AS bytes_in,
    sum(coalesce(size_wire, 0))::BIGINT AS bytes_wire,
    histogram(outcome) AS outcomes,
    histogram(coalesce(rule_id, '')) FILTER (outcome = 'denied') AS denials,
    histogram(bucket) FILTER (outcome = 'delivered' AND bucket IS NOT NULL) AS latency,
    bit_xor(member) FILTER (outcome = 'delivered') AS set_xor,
    sum(member) FILTER (outcome = 'delivered') AS set_sum
FROM (
    SELECT *, CASE
        WHEN d_total_us < 0 THEN -2
        WHEN d_total_us = 0 THEN -1
        ELSE 16 * power + (((d_total_us::HUGEINT << 4) >> power) & 15)
    END::INTEGER AS bucket
    FROM (SELECT *, length(bin(greatest(d_total_us, 1)))::INTEGER - 1 AS power FROM records)
)
GROUP BY ALL
