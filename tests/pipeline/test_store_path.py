from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lake.store_path import StorePath, location, parsed
from protofly.errors import SettingsError


def test_a_path_is_a_path_and_a_url_of_a_store_is_bucket_and_key() -> None:
    assert parsed("spool/mn-1") == Path("spool/mn-1")
    assert parsed("./hdfs:/lake") == Path("hdfs:/lake")
    assert parsed("lake:2026") == Path("lake:2026")
    path = parsed("s3://lakes/a/b/")
    assert path == StorePath("lakes", "a/b")
    assert isinstance(path, StorePath)
    assert (str(path), path.name, str(path / "c" / "d.parquet")) == (
        "s3://lakes/a/b",
        "b",
        "s3://lakes/a/b/c/d.parquet",
    )
    assert location(str(path / "c")) == path / "c"
    assert (str(parsed("s3://lakes")), location("s3://lakes/x/dt=1/y z")) == (
        "s3://lakes",
        StorePath("lakes", "x/dt=1/y z"),
    )


def test_a_container_of_azure_is_another_place_than_a_bucket_of_the_same_name() -> None:
    path = parsed("az://lakes/a/")
    assert isinstance(path, StorePath)
    assert (path, str(path / "b"), location("az://lakes/a")) == (StorePath("lakes", "a", "az"), "az://lakes/a/b", path)
    assert path != parsed("s3://lakes/a")


@pytest.mark.parametrize(
    "word",
    [
        *(
            "hdfs://nn/lake",
            "s3a://lakes/x",
            "file:///lake",
            "gs://b/x",
            "abfss://b@KEY.dfs.core.windows.net/x",
            "https://KEY:hunter2@host/x",
        ),
        *("hdfs:/lake", "file:/lake", "s3:/lakes/x", "az:/lakes/x"),
        *("s3://KEY:hunter2@lakes/x", "s3://", "s3://Lakes/x", "s3://l", "s3://lakes/a//b", "s3://lakes/../b"),
        *("az://KEY:hunter2@lakes/x", "az://lakes/../b", "az://lakes/a?sig=hunter2"),
        *("s3://lakes/a?secret=hunter2", "s3://lakes/a%2Fb", "s3://lakes/*", "s3://lakes/a b", "s3://lakes/a\nb"),
    ],
)
def test_urls_that_are_not_understood_are_refused_without_repeating_them(word: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parsed(word)
    assert "hunter2" not in refused.value.detail
    wanted = "az://CONTAINER/PREFIX" if word.startswith("az:") else "s3://BUCKET/PREFIX"
    assert wanted in refused.value.detail
