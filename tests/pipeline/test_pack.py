"""The archive for clusters: everything that the pipeline imports is in it, and equal environments give equal bytes."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from pipeline.lake.table_log import LakeError
from pipeline.spark import pack
from pipeline.spark.session import is_this_process

_IMPORT_ALL = """
import pkgutil, sys, pipeline
names = [one.name for one in pkgutil.walk_packages(pipeline.__path__, "pipeline.") if not one.name.endswith("__main__")]
for name in names:
    __import__(name)
strange = [one for one in ("trio", "wasmtime", "pytest") if one in sys.modules]
print(len(names), strange, pipeline.__path__[0])
"""


@pytest.mark.long
def test_every_module_of_the_pipeline_imports_with_the_archive_and_spark_alone(tmp_path: Path) -> None:
    for name, file in pack.contents():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(file)
    spark = Path(pyspark.__file__).parent / "python" / "lib"
    path = ":".join(map(str, [tmp_path, *spark.glob("*.zip")]))
    done = subprocess.run(
        [sys.executable, "-S", "-c", _IMPORT_ALL],
        env={"PYTHONPATH": path, "MPLCONFIGDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    count, strange, where = done.stdout.rsplit(maxsplit=2)
    assert (int(count) > 100, strange, where) == (True, "[]", str(tmp_path / "pipeline"))


def test_the_same_environment_gives_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_LIBRARIES", ("idna",))
    counts = {pack.pack(tmp_path / name) for name in ("one.tar.gz", "two.tar.gz")}
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        names = archive.getnames()
    assert counts == {len(names)}
    wanted = {"pipeline/lake/storage.py", "pipeline/report/page.html.j2", "policy/__init__.py", "idna/core.py"}
    assert wanted <= set(names)
    settings = pack.archive_settings(tmp_path / "one.tar.gz")
    assert settings["spark.archives"] == f"{tmp_path}/one.tar.gz#trapezoid"
    assert settings["spark.pyspark.python"] == f"python3.{sys.version_info.minor}", "as machines of a cluster find it"


@pytest.mark.parametrize(
    ("master", "here"),
    [("local", True), ("local[*]", True), ("local[2]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_a_master_with_executors_of_its_own_is_a_cluster(master: str, here: bool) -> None:
    assert is_this_process(master) is here


def test_a_library_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_LIBRARIES", ("no-such-library",))
    with pytest.raises(LakeError, match="no-such-library is not installed"):
        pack.pack(tmp_path / "one.tar.gz")
    assert list(tmp_path.glob("*.gz")) == []
