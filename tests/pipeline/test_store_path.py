from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lake.store_path import StorePath, location, parsed
from protofly.errors import SettingsError


def test_a_path_is_a_path_and_a_url_of_a_store_is_bucket_and_key() -> None:
    assert parsed("spool/mn-1") == Path("spool/mn-1")
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


@pytest.mark.parametrize(
    "word",
    [
        *("hdfs://nn/lake", "s3a://lakes/x", "file:///lake", "gs://b/x", "https://KEY:hunter2@host/x"),
        *("s3://KEY:hunter2@lakes/x", "s3://", "s3://Lakes/x", "s3://l", "s3://lakes/a//b", "s3://lakes/../b"),
        *("s3://lakes/a?secret=hunter2", "s3://lakes/a%2Fb", "s3://lakes/*", "s3://lakes/a b", "s3://lakes/a\nb"),
    ],
)
def test_urls_that_are_not_understood_are_refused_without_repeating_them(word: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parsed(word)
    assert "hunter2" not in refused.value.detail
    assert "s3://BUCKET/PREFIX" in refused.value.detail
