-- The rows of recon_pair in Spark's own SQL, from all records of both sides, to be measured beside the kernel's level two.
-- It does less: clocks, proofs and evidence are left out, and copies of one message are taken as alike in all but the lowest
-- and the highest of what they hold. Where there is nothing of that the kernel must give the same rows.
WITH entries AS (
    SELECT
        src_domain, dst_domain, msg_id, role = 'out' AS is_out, outcome, digest, ts_us,
        coalesce(size_wire, size_in, -1) AS size,
        CASE outcome WHEN 'delivered' THEN 0 WHEN 'duplicate' THEN 2 ELSE 1 END AS place,
        CASE role WHEN 'out' THEN outcome = 'delivered' ELSE outcome <> 'duplicate' END AS has_crossed,
        CASE
            WHEN length(msg_id) >= 9 AND substr(hex(msg_id), 13, 1) = '7' AND substr(hex(msg_id), 17, 1) IN ('8', '9', 'A', 'B')
            THEN 1000 * CAST(conv(hex(substr(msg_id, 1, 6)), 16, 10) AS BIGINT)
        END AS id_us
    FROM records
    WHERE NOT channel <=> 'guest'
), messages AS (
    SELECT
        src_domain, dst_domain, msg_id,
        min(struct(place, ts_us, outcome, id_us)) FILTER (WHERE is_out) AS o,
        min(struct(place, ts_us, outcome, id_us)) FILTER (WHERE NOT is_out) AS i,
        count_if(is_out AND has_crossed) AS copies_out,
        count_if(NOT is_out AND has_crossed) AS copies_in,
        min(digest) FILTER (WHERE has_crossed) AS low_digest,
        max(digest) FILTER (WHERE has_crossed) AS high_digest,
        min(size) FILTER (WHERE has_crossed AND is_out) AS low_out,
        max(size) FILTER (WHERE has_crossed AND is_out) AS high_out,
        min(size) FILTER (WHERE has_crossed AND NOT is_out) AS low_in,
        max(size) FILTER (WHERE has_crossed AND NOT is_out) AS high_in
    FROM entries
    GROUP BY src_domain, dst_domain, msg_id
), classes AS (
    SELECT
        *, coalesce(o.ts_us, i.ts_us) AS any_us, coalesce(o.id_us, i.id_us) AS sent_us,
        CASE
            WHEN i IS NULL AND o.outcome <> 'delivered' THEN 'undelivered'
            WHEN i IS NULL THEN 'lost'
            WHEN o IS NULL THEN 'orphan'
            WHEN o.outcome NOT IN ('delivered', 'denied') AND i.outcome <> 'delivered' THEN 'undelivered'
            WHEN o.outcome <> 'delivered' OR copies_in = 0 THEN 'outcome'
            WHEN low_digest <> high_digest THEN 'altered'
            WHEN copies_out <> copies_in THEN 'duplicated'
            WHEN low_out <> low_in OR high_out <> high_in THEN 'size'
            ELSE 'matched'
        END AS case_class
    FROM messages
)
SELECT
    src_domain, dst_domain,
    date_format(timestamp_micros(CASE WHEN abs(sent_us - any_us) <= 86400000000 THEN sent_us ELSE any_us END), 'yyyy-MM-dd') AS dt,
    count_if(copies_out > 0) AS sent, count_if(copies_in > 0) AS received,
    count_if(case_class = 'matched' AND i.outcome <> 'delivered') AS refused,
    count_if(case_class = 'matched') AS matched, 0L AS pending, 0L AS unprovable,
    count_if(case_class = 'lost') AS lost, count_if(case_class = 'orphan') AS orphan,
    count_if(case_class = 'altered') AS altered, count_if(case_class = 'duplicated') AS duplicated,
    count_if(case_class = 'size') AS size, count_if(case_class = 'outcome') AS outcome, 0L AS skewed,
    count_if(case_class = 'undelivered') AS undelivered,
    :until_us AS complete_until_us
FROM classes
GROUP BY ALL
