"""Spools and lake on an object store of either kind: the same tables as on a disk, and commits that hold or fail."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from threading import Barrier, Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.cli.program import app
from pipeline.jobs import compact, ingest, refine, report, retention, settle
from pipeline.jobs.ingest import Ingest
from pipeline.lake import storage
from pipeline.lake.store_path import Location, StorePath
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR, LEASE, SEGMENTS, SILVER_MDR, STATEMENT_DAILY
from pipeline.segments.ledger import Ledger
from pipeline.serving.lease import Lease
from protofly.errors import SettingsError
from tests.pipeline.object_store import SECRET, ObjectStore
from tests.pipeline.spools import SegmentWriter, message

pytestmark = pytest.mark.spark


@pytest.fixture(params=["store", "azure"], ids=["s3", "azure"])
def anywhere(request: pytest.FixtureRequest) -> ObjectStore:
    """A store of each kind."""
    store: ObjectStore = request.getfixturevalue(request.param)
    return store


@pytest.fixture
def place(anywhere: ObjectStore, request: pytest.FixtureRequest) -> StorePath:
    """A prefix of the test's own."""
    return anywhere.bucket / f"{abs(hash(request.node.name))}"


def test_records_in_a_store_become_statements_there(
    spark: SparkSession, anywhere: ObjectStore, place: StorePath, tmp_path: Path
) -> None:
    writer = SegmentWriter(tmp_path)
    writer.seal([message(1), message(2, size_wire=70)])
    anywhere.upload(tmp_path, place / "spool")
    lake = Lake(place / "lake", spark)
    for batch in (1, 2):
        ingest.run(lake, [place / "spool"])
        assert refine.run(lake).rows[SILVER_MDR.name] == 3 - batch
        writer.seal([message(3)])
        anywhere.upload(tmp_path, place / "spool")

    assert settle.run(lake).rows[STATEMENT_DAILY.name] == 1
    [statement] = lake.read(STATEMENT_DAILY).select("src_domain", "dst_domain", "dt", "status", "messages").collect()
    assert (*statement,) == ("a.example", "b.example", "2026-03-01", "draft", 3)
    report.run(lake, out=place / "report.html")
    assert storage.read_bytes(place / "report.html").startswith(b"<!DOCTYPE html>")

    before = [sorted(map(str, lake.read_small(table).to_pylist())) for table in (SILVER_MDR, BRONZE_MDR)]
    compact.run(lake, files_min=2, keep_s=0.0)
    assert [sorted(map(str, lake.read_small(table).to_pylist())) for table in (SILVER_MDR, BRONZE_MDR)] == before
    retention.run(lake, today=date(2030, 1, 1), keep_days=1, vacuum_after_s=0.0)
    assert list(storage.files_below(lake.folder / SILVER_MDR.name, ".parquet")) == []


def test_of_many_who_want_the_lease_at_once_one_gets_it(spark: SparkSession, place: StorePath) -> None:
    lake = Lake(place / "lake", spark)
    for _ in range(3):
        leases = [Lease(lake, 60.0, f"process {number}") for number in range(4)]
        start = Barrier(len(leases))
        taken: list[Lease] = []

        def take(lease: Lease, start: Barrier = start, taken: list[Lease] = taken) -> None:
            start.wait()
            if lease.take():
                taken.append(lease)

        threads = [Thread(target=take, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [holder] = taken
        assert not any(lease.take() for lease in leases if lease is not holder)
        holder.release()
    holder.clean_up()
    assert lake.read_small(LEASE).num_rows == 1


def test_of_two_who_ingest_at_once_one_ends_and_nothing_is_there_twice(
    spark: SparkSession, anywhere: ObjectStore, place: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path)
    writer.seal([message(1)])
    anywhere.upload(tmp_path, place / "spool")
    lake = Lake(place / "lake", spark)
    pin, write = Ingest._pin, Ledger.write

    with monkeypatch.context() as patch:  # another one does it all between what this one has read and what it pins

        def late_pin(*args: object) -> object:
            patch.setattr(Ingest, "_pin", pin)
            ingest.run(lake, [place / "spool"])
            return pin(*args)  # type: ignore[arg-type]

        patch.setattr(Ingest, "_pin", late_pin)
        with pytest.raises(LakeError, match="another ingest"):
            ingest.run(lake, [place / "spool"])
    assert _numbers(lake) == [1]

    writer.seal([message(2)])
    anywhere.upload(tmp_path, place / "spool")
    with monkeypatch.context() as patch:  # another one takes this one for dead, and carries out its plan

        def late_write(*args: object) -> object:
            patch.setattr(Ledger, "write", write)
            ingest.run(lake, [place / "spool"])
            return write(*args)  # type: ignore[arg-type]

        patch.setattr(Ledger, "write", late_write)
        with pytest.raises(LakeError, match="another ingest"):
            ingest.run(lake, [place / "spool"])
    assert _numbers(lake) == [1, 2]
    assert ingest.run(lake, [place / "spool"]).rows == {}
    assert sorted(lake.read_small(SEGMENTS, ("segno",)).column("segno").to_pylist()) == [1, 2]


def _numbers(lake: Lake) -> list[int]:
    return sorted(lake.read_small(BRONZE_MDR, ("seq",)).column("seq").to_pylist())


def test_a_store_that_fails_is_no_verdict_on_segments(
    spark: SparkSession, anywhere: ObjectStore, place: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SegmentWriter(tmp_path).seal([message(1)])
    anywhere.upload(tmp_path, place / "spool")
    lake = Lake(place / "lake", spark)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        patch.setenv("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1")
        with pytest.raises((LakeError, SettingsError, OSError)):
            ingest.run(lake, [place / "spool"])
    assert not lake.has(SEGMENTS)
    assert ingest.run(lake, [place / "spool"]).rows[SEGMENTS.name] == 1


@pytest.mark.parametrize("right", [True, False])
def test_commands_say_why_they_are_not_let_in_and_never_by_which_secret(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    secret = SECRET if right else "wrong" + SECRET
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    storage._client.cache_clear()
    try:
        done = CliRunner().invoke(app, ["show", "--lake", str(store.bucket / "nowhere"), "--json"])
    finally:
        storage._client.cache_clear()
    assert done.exit_code == 2
    assert ("no lake" if right else "ACCESS_DENIED") in done.output
    assert secret not in done.output + done.stderr


def test_without_a_name_of_the_account_a_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_USE_EMULATOR", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    done = CliRunner().invoke(app, ["show", "--lake", "az://lakes/x"])
    assert done.exit_code == 2
    assert "AZURE_STORAGE_ACCOUNT_NAME is not set" in done.output


def test_a_file_that_is_written_anew_is_never_seen_empty(azure: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = azure.bucket / "whole" / "lake.json"
    storage.write_bytes(path, b"old")
    files, seen = azure.files(), []

    class Looking:
        """A client that looks at the name after each step of another."""

        def __getattr__(self, name: str) -> object:
            def step(*arguments: object) -> object:
                done = getattr(files, name)(*arguments)
                seen.append(files.open_input_stream(path.inner).read())
                return done

            return step

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_files", lambda _path: Looking())
        storage.write_bytes(path, b"new")
    assert seen == [b"old", b"new", b"new"]
    assert [one.path for one in storage.files_below(azure.bucket / "whole")] == ["lake.json"]


@pytest.fixture(params=["disk", "store", "azure"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A folder of both kinds."""
    if request.param == "disk":
        return tmp_path / "x"
    store: ObjectStore = request.getfixturevalue(request.param)
    return store.bucket / "alike"


def test_files_of_both_kinds_behave_alike(folder: Location) -> None:
    assert list(storage.files_below(folder)) == []
    assert not storage.exists(folder / "a")
    for of_missing in (storage.read_bytes, storage.size_of):
        with pytest.raises(FileNotFoundError):
            of_missing(folder / "a")
    storage.make_folder(folder / "b")
    storage.write_bytes(folder / "b" / "one.json", b"first")
    storage.write_bytes(folder / "b" / "one.json", b"second")
    storage.write_bytes(folder / "a.txt", b"")
    assert storage.read_bytes(folder / "b" / "one.json") == b"second"
    assert storage.read_bytes(folder / "b" / "one.json", 3) == b"sec"
    assert storage.exists(folder / "b")
    assert [(one.path, one.size_bytes) for one in storage.files_below(folder)] == [("a.txt", 0), ("b/one.json", 6)]
    assert [one.path for one in storage.files_below(folder, ".json")] == ["b/one.json"]
    storage.copy(folder / "b" / "one.json", folder / "two.json")
    storage.remove(folder / "b" / "one.json")
    storage.remove(folder / "b" / "one.json")
    assert storage.read_bytes(folder / "two.json") == b"second"
    assert storage.age_s(folder / "b" / "one.json") == 0.0
    rows = pa.table({"n": [1, 2]})
    with storage.parquet_writer(folder / "rows.parquet", rows.schema) as writer:
        writer.write_table(rows)
    assert storage.parquet_metadata(folder / "rows.parquet").num_rows == 2
    with storage.open_parquet(folder / "rows.parquet") as file:
        assert file.read() == rows
