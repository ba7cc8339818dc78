-- Senders who wrote to too many, or to nobody, in Spark's own SQL, to be measured beside the kernel, which must give the same rows.
-- `records` has the columns of silver_mdr. Equal messages stand together first, then five minutes, then hours.
WITH contacts AS (
    SELECT
        our_domain, peer_domain, src_key, dst_key, ts_us DIV 300000000 AS minutes,
        coalesce(outcome_code IN ('no-route', 'not-registered', 'no-such-service'), false) AS is_unknown,
        count(*) AS n
    FROM records
    WHERE role = 'in' AND NOT msg_type <=> 'response'
    GROUP BY ALL
), minutes AS (
    SELECT
        our_domain, peer_domain, src_key, minutes DIV 12 AS hour, count(DISTINCT dst_key) AS widest,
        sum(n) AS attempts, coalesce(sum(n) FILTER (WHERE is_unknown), 0) AS misses,
        collect_list(dst_key) FILTER (WHERE is_unknown) AS missed
    FROM contacts
    GROUP BY our_domain, peer_domain, src_key, minutes
), hours AS (
    SELECT
        our_domain, peer_domain, src_key, hour * 3600000000 AS hour_us, max(widest) AS widest,
        sum(attempts) AS attempts, sum(misses) AS misses,
        CAST(size(array_distinct(flatten(collect_list(missed)))) AS BIGINT) AS unknown
    FROM minutes
    GROUP BY our_domain, peer_domain, src_key, hour
)
SELECT *, misses >= :scan_attempts AND unknown >= :scan_recipients AND misses >= :scan_share * attempts AS is_scan
FROM hours
WHERE widest >= :fan_out_recipients
    OR misses >= :scan_attempts AND unknown >= :scan_recipients AND misses >= :scan_share * attempts
