-- The hours of stub_hourly in Spark's own SQL, to be measured beside the kernel, which must give the same rows.
-- `records` has the columns of silver_mdr. Each message counts three times: for itself, for its latency and for its fuel.
WITH numbered AS (
    SELECT
        our_domain, peer_domain, stub_ver, msg_type, ts_us - ts_us % 3600000000 AS hour_us,
        CASE WHEN size_in IS NOT NULL THEN length(bin(greatest(size_in, 1))) - 1 END AS size_class,
        CAST(outcome NOT IN ('delivered', 'denied') AS INT) AS is_failed,
        CAST(outcome = 'trapped' OR trap IS NOT NULL AS INT) AS is_trapped,
        inline(array(
            struct('message' AS measure, CAST(NULL AS BIGINT) AS value),
            struct('latency' AS measure, CAST(coalesce(d_stub_us, d_total_us) AS BIGINT) AS value),
            struct('fuel' AS measure, CAST(fuel AS BIGINT) AS value)
        ))
    FROM records
    WHERE role = 'out' AND stub_ver IS NOT NULL
), powers AS (
    SELECT *, length(bin(greatest(value, 1))) - 1 AS power FROM numbered WHERE measure = 'message' OR value IS NOT NULL
), parts AS (
    SELECT
        our_domain, peer_domain, stub_ver, msg_type, hour_us, size_class, measure,
        CAST(CASE
            WHEN value < 0 THEN -2
            WHEN value = 0 THEN -1
            WHEN power < 4 THEN 16 * power + (shiftleft(value, 4 - power) & 15)
            ELSE 16 * power + (shiftright(value, power - 4) & 15)
        END AS INT) AS bucket,
        count(*) AS n, sum(is_failed) AS failed, sum(is_trapped) AS traps
    FROM powers
    GROUP BY ALL
)
SELECT
    our_domain, peer_domain, stub_ver, hour_us, msg_type, size_class,
    sum(n) FILTER (WHERE measure = 'message') AS messages,
    sum(failed) FILTER (WHERE measure = 'message') AS failed,
    sum(traps) FILTER (WHERE measure = 'message') AS traps,
    map_from_entries(collect_list(struct(bucket, n)) FILTER (WHERE measure = 'latency')) AS latency,
    map_from_entries(collect_list(struct(bucket, n)) FILTER (WHERE measure = 'fuel')) AS fuel,
    date_format(timestamp_micros(hour_us), 'yyyy-MM-dd') AS dt
FROM parts
GROUP BY our_domain, peer_domain, stub_ver, hour_us, msg_type, size_class
