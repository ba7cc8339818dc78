-- The hours of traffic_hourly in Spark's own SQL, to be measured beside the kernel, which must give the same rows.
-- `records` has the columns of silver_mdr. Parts stand together by outcome, rule and bucket first: then each entry of a map is one of them.
WITH numbered AS (
    SELECT
        our_domain, src_domain, dst_domain, role, msg_type, ts_us - ts_us % 3600000000 AS hour_us, outcome,
        CASE WHEN outcome = 'denied' THEN coalesce(rule_id, '') END AS rule,
        CASE WHEN outcome = 'delivered' THEN d_total_us END AS time_us,
        CASE WHEN outcome = 'delivered' THEN length(bin(greatest(d_total_us, 1))) - 1 END AS power,
        coalesce(size_in, 0) AS size_in, coalesce(size_wire, 0) AS size_wire,
        CASE WHEN outcome = 'delivered' THEN xxhash64(msg_id, digest) END AS member
    FROM records
), parts AS (
    SELECT
        our_domain, src_domain, dst_domain, role, msg_type, hour_us, outcome, rule,
        CAST(CASE
            WHEN time_us < 0 THEN -2
            WHEN time_us = 0 THEN -1
            WHEN power < 4 THEN 16 * power + (shiftleft(time_us, 4 - power) & 15)
            ELSE 16 * power + (shiftright(time_us, power - 4) & 15)
        END AS INT) AS bucket,
        count(*) AS n, sum(size_in) AS bytes_in, sum(size_wire) AS bytes_wire,
        bit_xor(member) AS set_xor, sum(CAST(member AS DECIMAL(20, 0))) AS set_sum
    FROM numbered
    GROUP BY ALL
), hours AS (
    SELECT
        our_domain, src_domain, dst_domain, role, msg_type, hour_us,
        sum(n) AS messages,
        coalesce(sum(n) FILTER (WHERE outcome = 'delivered'), 0) AS delivered,
        coalesce(sum(n) FILTER (WHERE outcome = 'denied'), 0) AS denied,
        sum(bytes_in) AS bytes_in, sum(bytes_wire) AS bytes_wire,
        collect_list(struct(outcome, n)) FILTER (WHERE outcome NOT IN ('delivered', 'denied')) AS others,
        map_from_entries(collect_list(struct(rule, n)) FILTER (WHERE rule IS NOT NULL)) AS denials,
        map_from_entries(collect_list(struct(bucket, n)) FILTER (WHERE bucket IS NOT NULL)) AS latency,
        coalesce(bit_xor(set_xor), 0) AS set_xor, coalesce(sum(set_sum), 0) AS set_sum
    FROM parts
    GROUP BY ALL
)
SELECT
    hour_us, msg_type, our_domain, src_domain, dst_domain, role, messages, delivered, denied,
    messages - delivered - denied AS failed, bytes_in, bytes_wire,
    map_from_entries(concat(others, filter(
        array(struct('delivered' AS outcome, delivered AS n), struct('denied' AS outcome, denied AS n)), one -> one.n > 0
    ))) AS outcomes,
    denials, latency, set_xor,
    CAST(pmod(set_sum + CAST(9223372036854775808 AS DECIMAL(38, 0)), CAST(18446744073709551616 AS DECIMAL(38, 0)))
        - CAST(9223372036854775808 AS DECIMAL(38, 0)) AS BIGINT) AS set_sum,
    date_format(timestamp_micros(hour_us), 'yyyy-MM-dd') AS dt
FROM hours
