-- The two levels of docs/settlement.md: totals of each pair and 5 minutes first, then only records of those that differ.
-- What is usual for a pair comes from some 400,000 records a day, as in ours.
CREATE MACRO five_minutes(id) AS ('0x' || hex(id[1:6]))::BIGINT // 300000;

CREATE TABLE delays AS
WITH sample AS (
    FROM records
    WHERE outcome = 'delivered'
    AND hash(msg_id) % (SELECT greatest(1, count(*) // (400000 * count(DISTINCT dt))) FROM records) = 0
)
SELECT src_domain, dst_domain, round(quantile_cont(i.ts_us - o.ts_us, 0.05))::BIGINT AS low_us
FROM (FROM sample WHERE role = 'out') AS o
JOIN (FROM sample WHERE role = 'in') AS i USING (src_domain, dst_domain, msg_id)
GROUP BY ALL;

CREATE TABLE totals AS
WITH record AS (
    SELECT
        src_domain, dst_domain, msg_id, five_minutes(msg_id) AS bucket,
        role = 'out' AS is_out,
        CASE role WHEN 'out' THEN outcome = 'delivered' ELSE outcome <> 'duplicate' END AS is_compared,
        coalesce(size_wire, size_in) AS size,
        hash(msg_id, digest, size) AS member,
        ts_us - 1000 * ('0x' || hex(msg_id[1:6]))::BIGINT AS lag_us
    FROM records
)
SELECT
    src_domain, dst_domain, bucket,
    count(*) FILTER (is_out AND is_compared) AS out_messages,
    count(*) FILTER (NOT is_out AND is_compared) AS in_messages,
    count(*) FILTER (is_out AND NOT is_compared) AS undelivered,
    count(*) FILTER (NOT is_out AND NOT is_compared) AS copies,
    count(*) FILTER (is_out) - count(DISTINCT msg_id) FILTER (is_out) AS repeats,
    coalesce(sum(size) FILTER (is_out AND is_compared), 0) AS out_bytes,
    coalesce(sum(size) FILTER (NOT is_out AND is_compared), 0) AS in_bytes,
    coalesce(bit_xor(member) FILTER (is_out AND is_compared), 0) AS out_xor,
    coalesce(bit_xor(member) FILTER (NOT is_out AND is_compared), 0) AS in_xor,
    coalesce(sum(member) FILTER (is_out AND is_compared), 0) AS out_sum,
    coalesce(sum(member) FILTER (NOT is_out AND is_compared), 0) AS in_sum,
    min(lag_us) FILTER (NOT is_out AND is_compared) AS lag_min_us,
    max(lag_us) FILTER (NOT is_out AND is_compared) AS lag_max_us
FROM record
GROUP BY ALL;

-- An id has whole milliseconds, so a lag is up to one more than what the clocks of both sides say.
CREATE TABLE buckets AS
SELECT
    *,
    out_messages = in_messages AND out_bytes = in_bytes AND out_xor = in_xor AND out_sum = in_sum
    AND copies = 0 AND repeats = 0
    AND coalesce(lag_max_us - low_us <= 1000000 AND low_us - lag_min_us <= 999000, lag_min_us IS NULL) AS is_equal
FROM totals LEFT JOIN delays USING (src_domain, dst_domain);

CREATE OR REPLACE VIEW judged AS
SELECT records.*
FROM records SEMI JOIN (FROM buckets WHERE NOT is_equal) AS different
ON records.src_domain = different.src_domain AND records.dst_domain = different.dst_domain
AND five_minutes(records.msg_id) = different.bucket;
