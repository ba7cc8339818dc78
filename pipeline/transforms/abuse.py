"""Who behaves badly: fan-out, scanning, spoofing and floods, each with its evidence and a gate entry to consider.

Every pattern is judged by the books of the domain that was the target: nobody is accused by a third party's records.
What a foreign domain wrote (addresses) gets into a proposed policy only when it is made of harmless characters;
otherwise, and when addresses are hashed, the proposal names the domain.

Source: pipeline study, section 8.3; trust and hosts, attack families of floods and forgeries.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.schemas import ALERT
from pipeline.transforms.baselines import HOUR_US, alarm_level_column, hour_of_week_column

FAN_OUT_WINDOW_US: Final = 300_000_000
FAN_OUT_RECIPIENTS: Final = 100
"""Different recipients of one sender within five minutes."""
SCAN_ATTEMPTS: Final = 30
SCAN_RECIPIENTS: Final = 20
SCAN_SHARE: Final = 0.5
"""Share of an hour's messages of one sender that went to nobody."""
SPOOFS_SEVERE: Final = 10
EVIDENCE: Final = 20

UNKNOWN_RECIPIENT: Final = ("no-route", "not-registered", "no-such-service")
SPOOFED: Final = "spoofed"
_DOMAIN: Final = r"^[a-z0-9.-]{1,253}$"
_HARMLESS: Final = r"^[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/@%#-]{1,512}$"
_PAIR: Final = ["our_domain", "peer_domain"]


def alerts(silver: DataFrame, link_events: DataFrame, hourly: DataFrame, baseline: DataFrame) -> DataFrame:
    """All alerts.

    Args:
        silver: Message records.
        link_events: `bronze_link_event`; messages in a false name never become message records.
        hourly: Of `baselines.hourly_incoming`.
        baseline: Of `baselines.baselines`.
    """
    incoming = silver.where(F.col("role") == "in").withColumn("hour_us", _hour(F.col("ts_us")))
    parts = [_with_evidence(alert, messages) for alert, messages in (fan_outs(incoming), scans(incoming))]
    owners = silver.select("node", "our_domain").distinct()
    parts += [spoofs(link_events, owners), floods(hourly, baseline)]
    return reduce(lambda first, second: first.unionByName(second), parts).select(*ALERT.schema.names)


def fan_outs(incoming: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Senders who write to very many different recipients within five minutes. Answers do not count."""
    messages = incoming.where(F.col("msg_type") != "response").withColumn(
        "window_us", F.col("ts_us") - F.col("ts_us") % F.lit(FAN_OUT_WINDOW_US)
    )
    widest = (
        messages.groupBy(*_PAIR, "hour_us", "src_key", "window_us")
        .agg(F.countDistinct("dst_key").alias("recipients"))
        .where(F.col("recipients") >= FAN_OUT_RECIPIENTS)
        .groupBy(*_PAIR, "hour_us", F.col("src_key").alias("subject"))
        .agg(F.max("recipients").alias("recipients"))
    )
    explanation = F.concat(
        F.lit("One sender wrote to "), F.col("recipients"), F.lit(" different recipients within five minutes.")
    )
    alert = _alert(
        widest,
        "fan-out",
        observed=F.col("recipients"),
        threshold=F.lit(FAN_OUT_RECIPIENTS),
        explanation=explanation,
        policy=_sender_policy("fan-out"),
    )
    return alert, messages


def scans(incoming: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Senders most of whose messages of an hour were for addresses that do not exist."""
    is_unknown = F.col("outcome_code").isin(*UNKNOWN_RECIPIENT)
    unknown = incoming.where(is_unknown)
    tried = (
        incoming.where(F.col("msg_type") != "response")
        .groupBy(*_PAIR, "hour_us", F.col("src_key").alias("subject"))
        .agg(
            F.count("*").alias("attempts"),
            F.count_if(is_unknown).alias("misses"),
            F.countDistinct(F.when(is_unknown, F.col("dst_key"))).alias("recipients"),
        )
        .withColumn("share", F.col("misses") / F.col("attempts"))
        .where((F.col("misses") >= SCAN_ATTEMPTS) & (F.col("recipients") >= SCAN_RECIPIENTS))
        .where(F.col("share") >= SCAN_SHARE)
    )
    explanation = F.concat(
        F.col("misses"),
        F.lit(" of "),
        F.col("attempts"),
        F.lit(" messages of one sender went to addresses that do not exist, "),
        F.col("recipients"),
        F.lit(" different ones."),
    )
    alert = _alert(
        tried,
        "scanning",
        observed=F.col("share"),
        threshold=F.lit(SCAN_SHARE),
        explanation=explanation,
        policy=_sender_policy("scanning"),
    )
    return alert, unknown


def spoofs(link_events: DataFrame, owners: DataFrame) -> DataFrame:
    """Peers that sent messages in the name of a domain that they had not proved to be.

    Args:
        link_events: `bronze_link_event`.
        owners: Which domain a node belongs to: `node our_domain`.

    The evidence is the senders that were claimed.
    """
    claimed = F.slice(F.array_sort(F.collect_set("src_key")), 1, EVIDENCE)
    counted = (
        link_events.where(F.col("event") == SPOOFED)
        .join(owners, "node", "inner")
        .withColumn("hour_us", _hour(F.col("ts_us")))
        .groupBy("our_domain", F.col("domain").alias("peer_domain"), "hour_us")
        .agg(F.count("*").alias("attempts"), F.countDistinct("src_key").alias("senders"), claimed.alias("claimed"))
        .withColumn("subject", F.col("peer_domain"))
    )
    explanation = F.concat(
        F.col("attempts"),
        F.lit(" messages claimed senders of domains that the peer had not proved to be, "),
        F.col("senders"),
        F.lit(" different senders. None passed."),
    )
    return _alert(
        counted,
        "spoofing",
        observed=F.col("attempts"),
        threshold=F.lit(1),
        explanation=explanation,
        policy=_domain_policy("spoofing"),
        is_severe=F.col("attempts") >= SPOOFS_SEVERE,
        evidence=F.col("claimed"),
    )


def floods(hourly: DataFrame, baseline: DataFrame) -> DataFrame:
    """Peers that sent far more in an hour than is usual at that hour of the week.

    The evidence is the count itself: a list of messages would be that of the whole hour.
    """
    level = alarm_level_column(F.col("median"), F.col("mad"))
    flooding = (
        hourly.withColumn("hour_of_week", hour_of_week_column(F.col("hour_us")))
        .join(baseline.where(F.col("measure") == "messages"), [*_PAIR, "hour_of_week"], "inner")
        .withColumn("level", level)
        .where(F.col("messages") > F.col("level"))
        .withColumn("subject", F.col("peer_domain"))
    )
    explanation = F.concat(
        F.col("messages").cast("long"),
        F.lit(" messages in one hour, where "),
        F.round("median").cast("long"),
        F.lit(" are usual at that hour (over "),
        F.col("hours"),
        F.lit(" hours)."),
    )
    rate = F.greatest(F.round(F.col("level") / F.lit(3600.0), 1), F.lit(0.1))
    policy = F.concat(
        F.lit('# in the settings of the node\n[[peer]]\ndomain = "'),
        F.col("peer_domain"),
        F.lit('"\nmessages_per_second = '),
        rate.cast("string"),
        F.lit("\n"),
    )
    return _alert(
        flooding,
        "flood",
        observed=F.col("messages"),
        expected=F.col("median"),
        threshold=F.col("level"),
        explanation=explanation,
        policy=F.when(F.col("peer_domain").rlike(_DOMAIN), policy),
        is_severe=F.col("messages") > 2 * F.col("level"),
        evidence=F.array().cast("array<string>"),
    )


def _alert(
    found: DataFrame,
    pattern: str,
    *,
    observed: Column,
    threshold: Column,
    explanation: Column,
    policy: Column,
    expected: Column | None = None,
    is_severe: Column | None = None,
    evidence: Column | None = None,
) -> DataFrame:
    """Alerts; without `evidence` the column is still to come."""
    more = [] if evidence is None else [evidence.alias("evidence")]
    severe = F.lit(True) if is_severe is None else is_severe
    return found.select(
        *_PAIR,
        F.lit(pattern).alias("pattern"),
        "hour_us",
        "subject",
        observed.cast("double").alias("observed"),
        (F.lit(0.0) if expected is None else expected.cast("double")).alias("expected"),
        threshold.cast("double").alias("threshold"),
        F.when(severe, F.lit("severe")).otherwise(F.lit("warning")).alias("severity"),
        explanation.alias("explanation"),
        policy.alias("proposed_policy"),
        F.date_format(F.timestamp_micros("hour_us"), "yyyy-MM-dd").alias("dt"),
        *more,
    )


def _with_evidence(alert: DataFrame, messages: DataFrame) -> DataFrame:
    """Join up to `EVIDENCE` message ids of the sender, the first ones of the hour."""
    keys = [*_PAIR, "hour_us", "subject"]
    named = messages.select(*_PAIR, "hour_us", F.col("src_key").alias("subject"), "msg_id", "ts_us")
    first = Window.partitionBy(*keys).orderBy("ts_us", "msg_id")
    evidence = (
        named.join(alert.select(*keys), keys, "left_semi")
        .withColumn("rank", F.row_number().over(first))
        .where(F.col("rank") <= EVIDENCE)
        .groupBy(*keys)
        .agg(F.sort_array(F.collect_set(F.lower(F.hex("msg_id")))).alias("evidence"))
    )
    return alert.join(evidence, keys, "left").withColumn(
        "evidence", F.coalesce("evidence", F.array().cast("array<string>"))
    )


def _sender_policy(pattern: str) -> Column:
    """A set against the sender where its address is there and harmless, against its domain otherwise."""
    target = F.concat(F.lit(', msgFrom = { equals = "'), F.col("subject"), F.lit('" }'))
    is_safe = F.col("peer_domain").rlike(_DOMAIN) & F.col("subject").rlike(_HARMLESS)
    return F.when(is_safe, _policy(pattern, target)).otherwise(_domain_policy(pattern))


def _domain_policy(pattern: str) -> Column:
    return F.when(F.col("peer_domain").rlike(_DOMAIN), _policy(pattern, F.lit("")))


def _policy(pattern: str, target: Column) -> Column:
    """A set that takes only these messages: all others go on to the sets after it."""
    return F.concat(
        F.lit(f'id = "{pattern}-'),
        F.translate("peer_domain", ".", "-"),
        F.lit('"\ntarget = { hook = { equals = "in" }, linkDomain = { equals = "'),
        F.col("peer_domain"),
        F.lit('" }'),
        target,
        F.lit(' }\n\n[[rules]]\nid = "refuse"\neffect = "deny"\n'),
    )


def _hour(ts_us: Column) -> Column:
    return ts_us - ts_us % F.lit(HOUR_US)
