-- Statements per day, pair and role; straight from the records, not from the hours.
CREATE TABLE daily AS
SELECT
    our_domain, src_domain, dst_domain, role,
    strftime(make_timestamp(ts_us), '%Y-%m-%d') AS dt,
    count(*) AS messages,
    count(*) FILTER (outcome = 'delivered') AS delivered,
    count(*) FILTER (outcome = 'denied') AS denied,
    count(*) FILTER (outcome NOT IN ('delivered', 'denied')) AS failed,
    sum(coalesce(size_in, 0))::BIGINT AS bytes_in,
    sum(coalesce(size_wire, 0))::BIGINT AS bytes_wire,
    histogram(outcome) AS outcomes,
    histogram(coalesce(rule_id, '')) FILTER (outcome = 'denied') AS denials,
    histogram(bucket) FILTER (outcome = 'delivered' AND bucket IS NOT NULL) AS latency
FROM (
    SELECT *, CASE
        WHEN d_total_us < 0 THEN -2
        WHEN d_total_us = 0 THEN -1
        ELSE 16 * power + (((d_total_us::HUGEINT << 4) >> power) & 15)
    END::INTEGER AS bucket
    FROM (SELECT *, length(bin(greatest(d_total_us, 1)))::INTEGER - 1 AS power FROM records)
)
GROUP BY ALL
