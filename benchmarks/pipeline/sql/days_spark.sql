-- The days of statement_daily in Spark's own SQL, to be measured beside the kernel, which must give the same rows.
-- `traffic` has the columns of traffic_hourly. Each hour counts once for itself, and once for each entry of its maps.
WITH entries AS (
    SELECT
        our_domain, src_domain, dst_domain, role, dt,
        inline(concat(
            array(struct(
                'hour' AS kind, CAST(NULL AS STRING) AS word, CAST(NULL AS INT) AS bucket, messages AS n,
                delivered, denied, failed, bytes_in, bytes_wire
            )),
            transform(map_entries(outcomes), one -> struct(
                'outcomes' AS kind, one.key AS word, CAST(NULL AS INT) AS bucket, one.value AS n,
                0L AS delivered, 0L AS denied, 0L AS failed, 0L AS bytes_in, 0L AS bytes_wire
            )),
            transform(map_entries(denials), one -> struct(
                'denials' AS kind, one.key AS word, CAST(NULL AS INT) AS bucket, one.value AS n,
                0L AS delivered, 0L AS denied, 0L AS failed, 0L AS bytes_in, 0L AS bytes_wire
            )),
            transform(map_entries(latency), one -> struct(
                'latency' AS kind, CAST(NULL AS STRING) AS word, one.key AS bucket, one.value AS n,
                0L AS delivered, 0L AS denied, 0L AS failed, 0L AS bytes_in, 0L AS bytes_wire
            ))
        ))
    FROM traffic
), parts AS (
    SELECT
        our_domain, src_domain, dst_domain, role, dt, kind, word, bucket, sum(n) AS n,
        sum(delivered) AS delivered, sum(denied) AS denied, sum(failed) AS failed,
        sum(bytes_in) AS bytes_in, sum(bytes_wire) AS bytes_wire
    FROM entries
    GROUP BY our_domain, src_domain, dst_domain, role, dt, kind, word, bucket
), days AS (
    SELECT
        our_domain, src_domain, dst_domain, role, dt,
        sum(n) FILTER (WHERE kind = 'hour') AS messages, sum(delivered) AS delivered, sum(denied) AS denied,
        sum(failed) AS failed, sum(bytes_in) AS bytes_in, sum(bytes_wire) AS bytes_wire,
        coalesce(sum(n) FILTER (WHERE kind = 'latency'), 0) AS timed,
        map_from_entries(collect_list(struct(word, n)) FILTER (WHERE kind = 'outcomes')) AS outcomes,
        map_from_entries(collect_list(struct(word, n)) FILTER (WHERE kind = 'denials')) AS denials,
        array_sort(collect_list(struct(bucket, n)) FILTER (WHERE kind = 'latency')) AS buckets
    FROM parts
    GROUP BY our_domain, src_domain, dst_domain, role, dt
), ranks AS (
    SELECT *, transform(
        array(500, 950, 990),
        per_mille -> aggregate(
            buckets,
            struct(0L AS seen, CAST(NULL AS INT) AS bucket),
            (so_far, one) -> struct(
                so_far.seen + one.n AS seen,
                CASE
                    WHEN so_far.bucket IS NULL AND so_far.seen + one.n >= greatest(1, (timed * per_mille + 999) DIV 1000)
                    THEN one.bucket
                    ELSE so_far.bucket
                END AS bucket
            )
        ).bucket
    ) AS quantiles
    FROM days
), bounds AS (
    SELECT *, transform(quantiles, bucket -> CASE WHEN bucket >= 0 THEN struct(
        (shiftleft(16L + bucket % 16, CAST(bucket DIV 16 AS INT)) + 15) DIV 16 AS lower,
        (shiftleft(17L + bucket % 16, CAST(bucket DIV 16 AS INT)) + 15) DIV 16 - 1 AS upper
    ) END) AS ends
    FROM ranks
), middles AS (
    SELECT *, transform(ends, (one, place) -> CASE
        WHEN quantiles[place] < 0 THEN 0L
        ELSE one.lower + greatest(0, one.upper - one.lower) DIV 2
    END) AS middle
    FROM bounds
)
SELECT
    our_domain, src_domain, dst_domain, role, dt, messages, delivered, denied, failed, bytes_in, bytes_wire,
    outcomes, denials, map_from_entries(buckets) AS latency,
    middle[0] AS p50_us, middle[1] AS p95_us, middle[2] AS p99_us
FROM middles
