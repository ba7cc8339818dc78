-- Messages by class, of both levels.
CREATE TABLE counted AS
WITH counts AS (
    SELECT case_class, count(*) AS messages FROM classes GROUP BY ALL
    UNION ALL SELECT 'matched', sum(out_messages) FROM buckets WHERE is_equal
    UNION ALL SELECT 'undelivered', sum(undelivered) FROM buckets WHERE is_equal
)
SELECT case_class, sum(messages)::BIGINT AS messages FROM counts GROUP BY ALL HAVING sum(messages) > 0
