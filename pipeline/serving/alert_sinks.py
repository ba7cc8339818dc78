"""Alerts go out: to webhooks as JSON, to Alertmanagers in their own form, and to mailboxes (`alert_mail`).

Each alert goes to each of them once, and again when it has become severe. What was sent is in table `alert_sent`; what
a receiver did not accept is sent again the next time. A process that ends between sending and noting sends twice, so
each alert has an id that stays the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.partner_alerts import PATTERNS, of_returns, of_usage
from pipeline.core.utc_days import day_of
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.tables import Change, Lake
from pipeline.partners.bounded_post import post
from pipeline.schemas import ALERT, ALERT_SENT, PEER_RETURN, USAGE_NAMED
from pipeline.serving.alert_mail import Mailbox
from pipeline.serving.settings import Alerts, login_of

TIMEOUT_S: Final = 10.0
MOST: Final = 200
"""So many alerts go into one request; more go with the next ones."""
OPEN_S: Final = 3600.0
"""So long an alert is open at an Alertmanager, which would close it after minutes. Who goes on causes another one."""
_RANK: Final = {"warning": 0, "severe": 1}


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver of alerts.

    Attributes:
        url: Where to.
        is_alertmanager: Takes them as Alertmanager does, at `/api/v2/alerts`.
    """

    url: str
    is_alertmanager: bool = False

    @property
    def name(self) -> str:
        """The name by which warnings and `alert_sent` call it: paths of webhooks are often secrets."""
        parts = urlsplit(self.url)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        is_open = self.url.rstrip("/") == origin
        return origin if is_open else f"{origin}/…{sha256(self.url.encode()).hexdigest()[:8]}"

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Send some. Raises httpx.HTTPError and OSError: they were not accepted."""
        url = self.url
        content: Any = {"alerts": [plain(alert) for alert in alerts]}
        if self.is_alertmanager:
            open_until = time.time() + OPEN_S
            url, content = (
                f"{self.url.rstrip('/')}/api/v2/alerts",
                [labelled(alert, open_until) for alert in alerts],
            )
        body = json.dumps(content).encode()
        status, _ = post(url, body, {"content-type": "application/json"}, limit_s=TIMEOUT_S)
        if not 200 <= status < 300:
            raise OSError(f"answered {status}")


def sinks_of(alerts: Alerts) -> list[Sink | Mailbox]:
    """All receivers that are named. Raises SettingsError: a file of credentials."""
    sinks: list[Sink | Mailbox] = [*map(Sink, alerts.webhook), *(Sink(url, True) for url in alerts.alertmanager)]
    if alerts.email is not None:
        login = login_of(alerts.email)
        sinks += [Mailbox(address, alerts.email, login) for address in alerts.email.to]
    return sinks


def id_of(alert: Mapping[str, Any]) -> str:
    """The same for the same alert, another when it has become severe."""
    names = (*ALERT.key, "severity")
    return sha256(json.dumps([alert[name] for name in names]).encode()).hexdigest()[:32]


def plain(alert: Mapping[str, Any]) -> dict[str, Any]:
    """An alert as webhooks get it."""
    return {"id": id_of(alert), "starts_at": _moment(alert["hour_us"])} | {
        name: alert[name] for name in ALERT.schema.names if name != "dt"
    }


def labelled(alert: Mapping[str, Any], open_until: float) -> dict[str, Any]:
    """An alert as Alertmanager takes it: labels say which one it is, annotations are for people."""
    labels = {name: str(alert[name] or "") for name in ("our_domain", "peer_domain", "pattern", "subject", "severity")}
    start = _moment(alert["hour_us"])
    return {
        "labels": {"alertname": "TrapezoidPartner" if alert["pattern"] in PATTERNS else "TrapezoidAbuse", "hour": start}
        | labels,
        "annotations": {
            "summary": f"{alert['pattern']} from {alert['peer_domain']}",
            "description": alert["explanation"] or "",
            "proposed_policy": alert["proposed_policy"] or "",
        },
        "startsAt": start,
        # One that ends before it starts, by a node's clock that is ahead, would have all of the request refused.
        "endsAt": _moment(max(int(open_until * 1e6), alert["hour_us"] + int(OPEN_S * 1e6))),
    }


def send_new(lake: Lake, sinks: Sequence[Sink | Mailbox], *, least: str, since_us: int, domain: str = "") -> JobResult:
    """Send alerts that were not sent yet.

    Args:
        lake: Reads `alert`, and what partners have reported and returned; writes `alert_sent`.
        sinks: Where to.
        least: Lowest severity that is sent.
        since_us: Only alerts of hours from here on: what is old is no news to anybody.
        domain: Ours, for what partners say; empty: that is left out.

    Returns:
        Ends with INCOMPLETE when some receiver did not accept them; they are sent again the next time.

    Raises:
        LakeError: As the lake does.
    """
    result = JobResult("alerts")
    since = day_of(since_us)
    days = {file.partition["dt"] for file in lake.files(ALERT) if file.partition["dt"] >= since}
    found = lake.read_small(ALERT, partitions=days).to_pylist()
    found += _of_partners(lake, domain, since_us) if domain else []
    # The subject of an alert about a person that was erased is gone: it was sent before, and says nothing.
    alerts = [row for row in found if row["subject"] is not None and _RANK.get(row["severity"], 0) >= _RANK[least]]
    alerts = sorted((row for row in alerts if row["hour_us"] >= since_us), key=lambda row: int(row["hour_us"]))
    current = {id_of(row): row for row in alerts}
    version = max(lake.version(ALERT_SENT), 0)
    by_url = {sink.url: sink.name for sink in sinks}  # as older versions have entered them
    sent = [
        row | {"sink": by_url.get(row["sink"], row["sink"])}
        for row in lake.read_small(ALERT_SENT).to_pylist()
        if row["alert"] in current
    ]
    known = {(row["alert"], row["sink"]) for row in sent}
    count, accepted = 0, set[str]()
    for sink in sinks:
        news = [name for name in current if (name, sink.name) not in known][:MOST]
        if not news:
            continue
        try:
            sink.send([current[name] for name in news])
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
            result.warnings.append(f"{sink.name} did not accept {len(news)} alerts: {exc}")
            result.exit_code = ExitCode.INCOMPLETE
            continue
        now_us = time.time_ns() // 1000
        sent += [{"alert": name, "sink": sink.name, "sent_us": now_us} for name in news]
        count += len(news)
        accepted.update(news)
    if count:
        rows = pa.Table.from_pylist(sent, to_arrow_schema(ALERT_SENT.schema))
        done = lake.commit(rows, ALERT_SENT, Change("overwrite", base_version=version))
        result.wrote(ALERT_SENT.name, count, done.version)
    result.outcome = f"{len(accepted):,} sent, {count:,} times in all"
    return result


def _of_partners(lake: Lake, domain: str, since_us: int) -> list[dict[str, Any]]:
    """What partners have reported and returned to us since; returns are stored by the day that they are about."""
    since = day_of(since_us)
    days = {file.partition["dt"] for file in lake.files(USAGE_NAMED) if file.partition["dt"] >= since}
    reports = lake.read_small(USAGE_NAMED, partitions=days).to_pylist()
    returns = lake.read_small(PEER_RETURN)
    news = returns.filter(pc.greater_equal(returns.column("entered_us"), since_us)).to_pylist()
    return [*of_usage(reports, domain), *of_returns(news, domain)]


def _moment(hour_us: int) -> str:
    return datetime.fromtimestamp(hour_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
