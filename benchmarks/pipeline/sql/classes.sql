-- One class per message, by the table in docs/settlement.md, where every book is complete.
CREATE TABLE classes AS
SELECT src_domain, dst_domain, msg_id, CASE
    WHEN i IS NULL AND o.outcome <> 'delivered' THEN 'undelivered'
    WHEN i IS NULL THEN 'lost'
    WHEN o IS NULL THEN 'orphan'
    WHEN o.outcome NOT IN ('delivered', 'denied') AND i.outcome <> 'delivered' THEN 'undelivered'
    WHEN o.outcome <> 'delivered' OR copies_in = 0 THEN 'outcome'
    WHEN is_altered THEN 'altered'
    WHEN copies_out <> copies_in THEN 'duplicated'
    WHEN o.size IS DISTINCT FROM i.size THEN 'size'
    WHEN i.ts_us - o.ts_us - low_us < -1000000 THEN 'skewed'
    WHEN i.ts_us - o.ts_us - low_us > 1000000 + coalesce(o.span_us, 0) THEN 'skewed'
    ELSE 'matched'
END AS case_class
FROM messages LEFT JOIN delays USING (src_domain, dst_domain)
