-- What the times of both records usually differ by.
CREATE TABLE delays AS
SELECT src_domain, dst_domain, round(quantile_cont(i.ts_us - o.ts_us, 0.05))::BIGINT AS low_us
FROM messages
WHERE o.outcome = 'delivered' AND i.outcome = 'delivered'
GROUP BY ALL
