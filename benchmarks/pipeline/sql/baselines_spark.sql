-- The rows of domain_baseline in Spark's own SQL, to be measured beside the kernel, which must give the same rows.
-- `traffic` has the columns of traffic_hourly. An hour is compared with all of a peer, with those at that hour of the day, and with those at
-- that hour of the week; the last of these with enough hours counts.
WITH hours AS (
    SELECT our_domain, src_domain AS peer_domain, hour_us DIV 3600000000 AS hour, sum(messages) AS messages
    FROM traffic
    WHERE role = 'in'
    GROUP BY ALL
), every_hour AS (
    SELECT our_domain, peer_domain, explode(sequence(min(hour), max(hour))) AS hour
    FROM hours
    GROUP BY our_domain, peer_domain
), levels AS (
    SELECT
        our_domain, peer_domain, coalesce(messages, 0) AS messages,
        inline(array(
            struct(0 AS level, CAST(0 AS BIGINT) AS slot, 12 AS least),
            struct(1 AS level, (hour + 72) % 24 AS slot, 3 AS least),
            struct(2 AS level, (hour + 72) % 168 AS slot, 4 AS least)
        ))
    FROM every_hour LEFT JOIN hours USING (our_domain, peer_domain, hour)
), medians AS (
    SELECT our_domain, peer_domain, level, slot, median(messages) AS median, count(*) AS hours
    FROM levels
    GROUP BY our_domain, peer_domain, level, slot, least
    HAVING count(*) >= least
), usual AS (
    SELECT our_domain, peer_domain, level, slot, any_value(median) AS median, median(abs(messages - median)) AS mad, any_value(hours) AS hours
    FROM levels JOIN medians USING (our_domain, peer_domain, level, slot)
    GROUP BY our_domain, peer_domain, level, slot
), weeks AS (
    SELECT DISTINCT our_domain, peer_domain, CAST((hour + 72) % 168 AS INT) AS hour_of_week FROM every_hour
)
SELECT
    our_domain, peer_domain, hour_of_week, 'messages' AS measure,
    max_by(median, level) AS median, max_by(mad, level) AS mad, CAST(max_by(hours, level) AS INT) AS hours
FROM weeks JOIN usual USING (our_domain, peer_domain)
WHERE slot = CASE level WHEN 0 THEN 0 WHEN 1 THEN hour_of_week % 24 ELSE hour_of_week END
GROUP BY our_domain, peer_domain, hour_of_week
