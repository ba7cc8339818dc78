"""The parts of a pipeline that serves: settings, lease, alerts that go out, metrics and health."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.core.schedule import Schedule
from pipeline.core.utc_days import end_us
from pipeline.jobs import reconcile
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.table_log import DataFile, LakeError
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import ALERT, ALERT_SENT, NODE_OWNER, RECON_PAIR, SILVER_MDR, STATEMENT_DAILY, Table
from pipeline.segments.node_keys import Trust
from pipeline.serving.alert_sinks import OPEN_S, labelled, send_new, sinks_of
from pipeline.serving.lease import MARGIN_S, Lease
from pipeline.serving.loop import Health, Rounds, Work
from pipeline.serving.metrics import Metrics, MetricsServer, measure
from pipeline.serving.settings import Alerts, periods, read_settings, store_environment
from protofly.errors import SettingsError
from tests.pipeline.receivers import receiver
from tests.pipeline.rows import DAY_US, HOUR_US, MONDAY_US, silver, silver_row

MINIMAL = 'lake = "lake"\nspools = ["records"]\n'
EXCHANGE = """
[exchange]
domain = "a.example"
key = "live.pem"
folder = "exchange"
inbox = "in"

[[partner]]
domain = "b.example"
keys = ["HkIPSEVEsY4ikjah_50yylBoCe01Bsl1pI20aFjc_5c"]
url = "https://b.example"
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of which nothing here asks Spark for anything."""
    return Lake(tmp_path / "lake", cast("SparkSession", None))


# Settings.


def test_paths_are_relative_to_the_file_and_jobs_have_periods(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(MINIMAL + 'retention_days = 90\n[schedule]\ningest = "2s"\nreconcile = "never"\n')
    settings = read_settings(file)
    assert (settings.lake, settings.spools) == (str(tmp_path / "lake"), (str(tmp_path / "records"),))
    known = periods(settings)
    assert (known["ingest"], known["reconcile"], known["retention"], known["report"]) == (2.0, None, 86_400.0, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lake = 1", "lake"),
        ('lake = "lake"\nspools = []', "spools"),
        (MINIMAL + "retention = 3", "retention"),
        ('lake = "hdfs://nn/lake"\nspools = ["x"]', "hdfs:// URLs are not supported"),
        (MINIMAL + '[store]\nendpoint = "https://key:secret@minio.example"', "store.endpoint"),
        (MINIMAL + '[schedule]\nsettle = "hourly"', "schedule.settle: 'hourly' is no period"),
        (MINIMAL + '[schedule]\ningest = "0s"', "schedule.ingest"),
        (MINIMAL + '[alerts]\nwebhook = ["http://hooks.example/x"]', "no https URL"),
        (MINIMAL + '[alerts]\nalertmanager = ["ftp://127.0.0.1"]', "no https URL"),
        ("lake = ", "pipeline.toml"),
        ("lake = " + "[" * 100_000, "nested too deep"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=problem):
        read_settings(file)


STORE = 'lake = "s3://lakes/a"\nspools = ["s3://records/mn-1", "here"]\n[store]\ncredentials = "key.toml"\n'


def test_a_store_is_reached_by_settings_and_a_file_of_credentials(tmp_path: Path) -> None:
    file, secret = tmp_path / "pipeline.toml", tmp_path / "key.toml"
    file.write_text(STORE + 'endpoint = "https://minio.example:9000"\n')
    secret.write_text('access_key = "AKIA"\nsecret_key = "hunter2"\n')
    secret.chmod(0o600)
    settings = read_settings(file)
    assert (settings.lake, settings.spools) == ("s3://lakes/a", ("s3://records/mn-1", str(tmp_path / "here")))
    assert store_environment(settings.store) == {
        "AWS_ENDPOINT_URL": "https://minio.example:9000",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ('access_key = "AKIA"\nsecret_key = "hunter2"\n', 0o604, "chmod 600"),
        ('access_key = "AKIA"\nsecret = "hunter2"\n', 0o600, "no TOML file with access_key and secret_key"),
        ("hunter2", 0o600, "no TOML file with access_key and secret_key"),
        ("hunter2 = " + "[" * 100_000, 0o600, "no TOML file with access_key and secret_key"),
        (None, 0, "No such file"),
    ],
)
def test_a_file_of_credentials_that_is_not_right_is_named_and_not_repeated(
    tmp_path: Path, content: str | None, mode: int, problem: str
) -> None:
    file, secret = tmp_path / "pipeline.toml", tmp_path / "key.toml"
    file.write_text(STORE)
    if content is not None:
        secret.write_text(content)
        secret.chmod(mode)
    with pytest.raises(SettingsError, match=problem) as refused:
        store_environment(read_settings(file).store)
    assert str(secret) in refused.value.detail
    assert "hunter2" not in refused.value.detail


# The lease.


def test_one_process_holds_the_lease_until_it_ends_or_is_given_up(lake: Lake) -> None:
    now = [1000.0]
    first, second = (Lease(lake, 60.0, name, clock=lambda: now[0]) for name in ("first", "second"))
    assert (first.take(), second.take()) == (True, False)
    assert (first.is_held, second.is_held, second.holder_now()) == (True, False, "first")
    now[0] += 50.0
    assert first.take()  # renewed
    now[0] += 60.0 + MARGIN_S - 1.0
    assert (first.is_held, second.take()) == (False, False)  # clocks differ
    now[0] += 2.0
    assert (second.take(), first.take()) == (True, False)
    second.release()
    assert first.take()


def test_of_two_that_take_the_lease_at_once_one_gets_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Lease(lake, 60.0, name) for name in ("first", "second"))
    read = lake.read_small

    def read_while_the_other_takes_it(*args: Any, **named: Any) -> pa.Table:
        rows = read(*args, **named)
        monkeypatch.undo()
        assert second.take()
        return rows

    monkeypatch.setattr(lake, "read_small", read_while_the_other_takes_it)
    assert not first.take()
    assert (first.is_held, second.is_held) == (False, True)


# Alerts.


def alert(number: int, **members: Any) -> dict[str, Any]:
    usual = {
        "our_domain": "a.example",
        "peer_domain": "b.example",
        "pattern": "fan-out",
        "subject": f"x:{number:024x}",
        "hour_us": MONDAY_US,
        "observed": 120.0,
        "severity": "warning",
        "evidence": [],
        "explanation": "Many.",
        "proposed_policy": "",
        "dt": "2026-03-02",
    }
    return usual | members


def commit(lake: Lake, *alerts: dict[str, Any]) -> None:
    lake.commit(pa.Table.from_pylist(list(alerts), to_arrow_schema(ALERT.schema)), ALERT, Change("overwrite"))


def test_each_alert_goes_to_each_receiver_once_and_again_when_it_has_become_severe(lake: Lake) -> None:
    commit(lake, alert(1), alert(2))
    with receiver([200]) as (hook, posted), receiver([200]) as (manager, managed):
        sinks = sinks_of(Alerts(webhook=(f"{hook}/in",), alertmanager=(manager,)))
        first = send_new(lake, sinks, least="warning", since_us=0)
        assert send_new(lake, sinks, least="warning", since_us=0).rows == {}
        commit(lake, alert(1, severity="severe"), alert(2, observed=500.0))
        send_new(lake, sinks, least="warning", since_us=0)
    assert first.rows == {"alert_sent": 4}
    [(path, body), (_, again)] = posted
    assert (path, [one["subject"] for one in body["alerts"]]) == ("/in", [alert(1)["subject"], alert(2)["subject"]])
    assert [one["severity"] for one in again["alerts"]] == ["severe"]
    assert body["alerts"][0]["id"] != again["alerts"][0]["id"]
    [(path, body), _] = managed
    assert path == "/api/v2/alerts"
    assert body[0]["labels"]["alertname"] == "TrapezoidAbuse"
    assert (body[0]["startsAt"], body[0]["annotations"]["description"]) == ("2026-03-02T00:00:00Z", "Many.")
    open_s = datetime.fromisoformat(body[0]["endsAt"]).timestamp() - time.time()
    assert OPEN_S - 60 < open_s <= OPEN_S, "without an end an Alertmanager takes it for over after minutes"
    assert first.outcome == "2 sent, 4 times in all"


def test_an_alert_about_a_person_that_was_erased_is_not_sent_anew(lake: Lake) -> None:
    with receiver([200]) as (hook, posted):
        for subject in ("x:1", None):
            commit(lake, alert(1, subject=subject))
            send_new(lake, sinks_of(Alerts(webhook=(hook,))), least="warning", since_us=0)
    assert len(posted) == 1


def test_an_alert_of_an_hour_to_come_ends_behind_its_start_at_an_alertmanager() -> None:
    ahead_us = int((time.time() + 2 * 86_400) * 1e6)
    sent = labelled(alert(1, hour_us=ahead_us), time.time() + OPEN_S)
    assert datetime.fromisoformat(sent["endsAt"]) - datetime.fromisoformat(sent["startsAt"]) == timedelta(hours=1)


def test_what_a_receiver_did_not_accept_is_sent_again_and_nobody_else_waits_for_it(lake: Lake) -> None:
    commit(lake, alert(1))
    with receiver([503, 302, 204]) as (slow, tried), receiver([200]) as (quick, posted):
        sinks = sinks_of(Alerts(webhook=(slow, quick, "http://127.0.0.1:9")))
        for _ in range(4):
            result = send_new(lake, sinks, least="warning", since_us=0)
    assert (len(tried), len(posted)) == (3, 1)
    assert result.exit_code is ExitCode.INCOMPLETE
    assert "http://127.0.0.1:9 did not accept 1 alerts" in result.warnings[0]


def test_what_is_secret_in_the_url_of_a_receiver_is_neither_shown_nor_stored(lake: Lake) -> None:
    commit(lake, alert(1))
    with receiver([503, 200, 200]) as (hook, posted):
        url = hook.replace("//", "//user:secret@") + "/services/secret?token=secret"
        sinks = sinks_of(Alerts(webhook=(url, hook)))
        failed = send_new(lake, sinks, least="warning", since_us=0)
        send_new(lake, sinks, least="warning", since_us=0)
        old = [row | {"sink": url} for row in lake.read_small(ALERT_SENT).to_pylist() if "…" in row["sink"]]
        lake.commit(pa.Table.from_pylist(old, to_arrow_schema(ALERT_SENT.schema)), ALERT_SENT, Change("overwrite"))
        send_new(lake, sinks, least="warning", since_us=0)
    assert len(posted) == 4, "of what an older version has entered nothing is sent anew"
    [warning] = failed.warnings
    assert warning.startswith(f"{hook}/…")
    assert "secret" not in warning
    assert "secret" not in str(lake.read_small(ALERT_SENT).to_pylist())


def test_old_and_slight_alerts_are_not_sent(lake: Lake) -> None:
    commit(lake, alert(1, severity="severe", hour_us=MONDAY_US - DAY_US), alert(2), alert(3, severity="severe"))
    with receiver([200]) as (hook, posted):
        send_new(lake, sinks_of(Alerts(webhook=(hook,))), least="severe", since_us=MONDAY_US)
    [(_, body)] = posted
    assert [one["subject"] for one in body["alerts"]] == [alert(3)["subject"]]


# Rounds.


def round_of(lake: Lake, jobs: dict[str, Callable[[], JobResult]], metrics: Metrics, rounds: int) -> None:
    """Run all jobs so many times."""
    stop = Event()
    left = [rounds]

    def last() -> JobResult:
        left[0] -= 1
        if not left[0]:
            stop.set()
        return JobResult("last")

    jobs["last"] = last
    Rounds(lake, jobs, Schedule(dict.fromkeys(jobs, 0.0), 0.0), metrics, Health()).run(stop)


def test_what_a_job_warned_of_the_last_time_is_not_logged_again(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    said = iter([["1 flood"], ["1 flood"], ["1 flood", "1 scan"], [], ["1 flood"]])
    jobs = {"abuse": lambda: JobResult("abuse", rows={"alert": 1}, warnings=next(said))}
    with caplog.at_level("WARNING", "pipeline.serving.loop"):
        round_of(lake, jobs, Metrics(), 5)
    assert caplog.messages == ["abuse: 1 flood", "abuse: 1 scan", "abuse: 1 flood"]


def test_what_could_not_be_done_is_logged_though_nothing_was_written(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a partner's file that is refused, or a partner that is away."""
    lacks = JobResult("exchange", warnings=["b.example: x is refused: nonsense"], exit_code=ExitCode.INCOMPLETE)
    with caplog.at_level("WARNING", "pipeline.serving.loop"):
        round_of(lake, {"exchange": lambda: lacks}, Metrics(), 3)
    assert caplog.messages == ["exchange: b.example: x is refused: nonsense"]


def test_a_failure_is_an_error_once_the_process_is_unhealthy_by_it(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.core.schedule.FIRST_PAUSE_S", 0.0)
    fails = iter([True, True, False, True, True, True, True])

    def settle() -> JobResult:
        if next(fails):
            raise LakeError("the disk is full")
        return JobResult("settle")

    with caplog.at_level("WARNING", "pipeline.serving.loop"):
        round_of(lake, {"settle": settle}, Metrics(), 7)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING"] * 4 + ["ERROR"] * 2
    assert caplog.messages[-1] == "settle failed 4 times in a row: the disk is full"


def test_failures_of_each_job_are_counted_from_zero_on(lake: Lake) -> None:
    metrics = Metrics()
    Rounds(lake, {"ingest": lambda: JobResult("ingest")}, Schedule({}, 0.0), metrics, Health())
    assert metrics.registry.get_sample_value("trapezoid_pipeline_job_failures_total", {"job": "ingest"}) == 0.0


# Jobs.


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("", [reconcile.ONE_DOMAIN]),
        (EXCHANGE, []),
        (EXCHANGE.replace("[exchange]", '[schedule]\nexchange = "never"\n[exchange]'), [reconcile.ONE_DOMAIN]),
    ],
    ids=["without partners", "extracts are exchanged", "extracts are never exchanged"],
)
def test_nobody_is_advised_to_exchange_extracts_where_that_is_done(
    tmp_path: Path, spark: SparkSession, more: str, warned: list[str]
) -> None:
    assert work_of(tmp_path, spark, more)["reconcile"]().warnings == warned


@pytest.mark.parametrize(("more", "is_warned"), [("", False), ('[schedule]\nsettle = "never"\n', True)])
def test_nobody_is_advised_to_settle_where_that_is_done(
    tmp_path: Path, spark: SparkSession, more: str, is_warned: bool
) -> None:
    done = work_of(tmp_path, spark, more)["abuse"]()
    assert (bool(done.warnings), done.exit_code == ExitCode.INCOMPLETE) == (is_warned, is_warned)


def work_of(folder: Path, spark: SparkSession, more: str) -> dict[str, Callable[[], JobResult]]:
    """Jobs of a lake with records of one domain, none of them settled yet."""
    (folder / "records").mkdir()
    (folder / "pipeline.toml").write_text(MINIMAL + more)
    lake = Lake(folder / "lake", spark)
    lake.commit(silver(spark, [silver_row(node="runtime://a.example/mn-1")]), SILVER_MDR)
    return Work(lake, read_settings(folder / "pipeline.toml"), Trust()).jobs()


# Metrics and health.


def test_metrics_say_how_far_the_lake_is_and_health_what_is_wrong(lake: Lake) -> None:
    pairs = [
        {"src_domain": "a.example", "dst_domain": f"d{number}.example", "pending": number, "dt": day}
        for number, day in ((3, "2026-03-02"), (4, "2026-02-27"), (5, "2026-01-01"))
    ]
    lake.commit(pa.Table.from_pylist(pairs, to_arrow_schema(RECON_PAIR.schema)), RECON_PAIR)
    statement = {"our_domain": "a.example", "status": "final", "version": 1, "dt": "2026-03-01"}
    lake.commit(pa.Table.from_pylist([statement], to_arrow_schema(STATEMENT_DAILY.schema)), STATEMENT_DAILY)
    metrics, problem = Metrics(), [""]
    measure(lake, metrics, now=(MONDAY_US + HOUR_US) / 1e6)
    with MetricsServer(metrics, lambda: problem[0], host="127.0.0.1", port=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        text = httpx.get(f"{url}/metrics", trust_env=False).text
        healthy = httpx.get(f"{url}/healthz", trust_env=False)
        problem[0] = "ingest failed 3 times: disk full"
        ill = httpx.get(f"{url}/healthz", trust_env=False)
        assert httpx.get(f"{url}/secret", trust_env=False).status_code == 404
    assert (healthy.status_code, ill.status_code, ill.text) == (200, 503, "ingest failed 3 times: disk full\n")
    for age, count in (("today", 3.0), ("1d", 0.0), ("2d-6d", 4.0), ("7d", 5.0)):
        assert f'trapezoid_pipeline_pending_messages{{age="{age}"}} {count}' in text
    assert 'trapezoid_pipeline_last_final_day{domain="a.example"} 1.7724096e+09' in text
    assert 'trapezoid_pipeline_table_files{table="recon_pair"} 3.0' in text


def test_metrics_look_at_the_newest_statements_only(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(rows: list[dict[str, Any]], table: Table) -> None:
        lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(table.schema)), table)

    enter([{"our_domain": name, "node": f"mn-1.{name}"} for name in ("a.example", "b.example")], NODE_OWNER)
    days = [f"2026-03-{day:02}" for day in range(1, 21)]
    enter([{"our_domain": "a.example", "status": "final", "version": 1, "dt": day} for day in days], STATEMENT_DAILY)
    enter([{"our_domain": "b.example", "status": "restated", "version": 2, "dt": days[-3]}], STATEMENT_DAILY)
    enter([{"our_domain": "b.example", "status": "draft", "version": 1, "dt": "2026-03-21"}], STATEMENT_DAILY)
    enter([{"src_domain": "a.example", "dst_domain": "b.example", "pending": 0, "dt": day} for day in days], RECON_PAIR)
    read, opened = lake.read_files_small, list[str]()

    def counted(table: Table, files: Sequence[DataFile], *names: Any) -> pa.Table:
        opened.extend(file.path for file in files if table in (STATEMENT_DAILY, RECON_PAIR))
        return read(table, files, *names)

    monkeypatch.setattr(lake, "read_files_small", counted)
    metrics = Metrics()
    measure(lake, metrics, now=(MONDAY_US + HOUR_US) / 1e6)
    final = {
        name: metrics.registry.get_sample_value("trapezoid_pipeline_last_final_day", {"domain": name})
        for name in ("a.example", "b.example")
    }
    assert final == {"a.example": end_us(days[-1]) / 1e6, "b.example": end_us(days[-3]) / 1e6}
    assert len(opened) == 4, "three days, one of them in two files"


def test_a_client_that_says_nothing_keeps_nobody_from_asking_for_health() -> None:
    with (
        MetricsServer(Metrics(), lambda: "", host="127.0.0.1", port=0) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        answer = httpx.get(f"http://127.0.0.1:{server.port}/healthz", trust_env=False, timeout=5)
    assert answer.status_code == 200
