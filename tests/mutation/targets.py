"""What is changed, which tests may notice, and how many changes must be noticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Group:
    """Modules with one target.

    Attributes:
        name: Of the group; a folder, unless `folders` says otherwise.
        target: Share of the changes that tests must notice.
        homes: Patterns of test files that may notice, if they import something of the group, by others as well.
        asks_importers: Whether all other test files may that import something of the group themselves.
        folders: Patterns of where its modules are.
        begins_with: What the names of its modules begin with.
        excludes: Names of modules that are not changed, or belong to another group.
        preloaded: Libraries that its tests need and that take long to import.
    """

    name: str
    target: float
    homes: tuple[str, ...]
    folders: tuple[str, ...] = ()
    begins_with: str = ""
    excludes: tuple[str, ...] = ()
    preloaded: tuple[str, ...] = ()
    asks_importers: bool = True

    def paths(self) -> list[Path]:
        """Its modules, by name; those that only list names have nothing to change."""
        return [
            path
            for folder in self.folders or (self.name,)
            for path in sorted(ROOT.glob(f"{folder}/*.py"))
            if path.name != "__init__.py"
            and path.stem.startswith(self.begins_with)
            and not any(path.stem.startswith(one) for one in self.excludes)
        ]


def groups() -> list[Group]:
    """All groups whose modules are there."""
    return [group for group in _GROUPS if group.paths()]


def module_name(path: Path) -> str:
    """The dotted name of a module of ours."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def chosen(words: Sequence[str]) -> Iterator[tuple[Group, list[Path]]]:
    """Groups with those of their modules that are asked for; all of them for no words.

    Args:
        words: Names of groups, folders or modules, with dots or slashes.

    Raises:
        KeyError: There is no such group or module.
    """
    wanted = {word.removesuffix(".py").strip("/").replace("/", ".") for word in words}
    known: set[str] = set()
    for group in groups():
        names = {path: _names_of(group, path) for path in group.paths()}
        paths = [path for path in names if not wanted or wanted & names[path]]
        known.update(*names.values())
        if paths:
            yield group, paths
    if wanted - known:
        raise KeyError(", ".join(sorted(wanted - known)))


def _names_of(group: Group, path: Path) -> set[str]:
    """What a module can be asked for by."""
    return {group.name.replace("/", "."), module_name(path.parent), module_name(path)}


ELSEWHERE: Final = frozenset(
    {"conformance", "delivery", "examples_stubs", "fuzz", "interop"}
    | {"mutation", "peers", "project", "support", "system"}
)
"""Folders of tests that start programs, or of no tests: what runs elsewhere is not changed."""

_NUMBERS_ONLY: Final = "limits"
"""A table of chosen numbers: nothing in it is logic."""

_DOCUMENTS: Final = "attacks/test_documents_*.py"
_GROUPS: Final = (
    Group(
        "protofly",
        0.97,
        (
            *(
                "protofly/test_*.py",
                _DOCUMENTS,
                "catalogue_client/test_[dt]*.py",
            ),
            *("msg_node/records/test_*.py", "msg_node/registries/test_thing_events.py"),
            *("pipeline/test_histogram.py", "pipeline/test_segments.py"),
        ),
        excludes=(_NUMBERS_ONLY,),
        asks_importers=False,  # everybody imports its words
    ),
    Group("sandbox/core", 0.97, ("sandbox/test_*.py",)),
    Group("catalogue_client/core", 0.97, ("catalogue_client/test_*.py", _DOCUMENTS)),
    Group("stubs_cache/core", 0.97, ("stubs_cache/test_*.py", "attacks/test_documents_cache.py")),
    Group("policy/core", 0.97, ("policy/test_*.py", "attacks/test_policy_*.py")),
    Group("interop/hostile/core", 0.97, ("interop/hostile/*.py",)),
    Group("interop/lab/core", 0.93, ("interop/lab/*.py", "interop/lab/*/*.py")),
    Group("interop/partner/core", 0.93, ("interop/partner/*.py",)),
    Group("wire/core", 0.97, ("wire/test_*.py", "federation/test_egress_http.py", "msg_node/connectors/test_https.py")),
    Group(
        "federation/core",
        0.97,
        (
            "federation/test_*.py",
            "attacks/test_authentication.py",
            "attacks/test_*tokens.py",
        ),
    ),
    Group(
        "msg_node",
        0.93,
        (
            "msg_node/**/test_*.py",
            "contradictions/test_*.py",
            "attacks/test_bearer_tokens.py",
            "attacks/test_*theft*.py",
        ),
        folders=("msg_node/kernel", "msg_node/*/core"),
    ),
    Group(
        "pipeline",
        0.93,
        ("pipeline/test_*.py",),
        folders=("pipeline/core", "pipeline/columns"),
        preloaded=("numpy", "pandas", "pyarrow", "pyspark.sql", "pyspark.testing", "deltalake"),
    ),
)
