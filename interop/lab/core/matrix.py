"""A matrix: every pair of nodes, in every scene, with every fault.

A scene of a matrix has the domains `a.example` and `b.example`; each pair of nodes plays them.
`docs/lab.md` describes the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from interop.lab.core.scene import (
    NODE_FAULTS,
    Domain,
    DomainKind,
    Fault,
    FaultKind,
    LabScene,
    Seconds,
    Word,
    problems_of,
)
from protofly.errors import SettingsError

LEFT: Final = "a.example"
RIGHT: Final = "b.example"
MOST_CELLS: Final = 1_000
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .-]{0,31}$")]


class MatrixNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of node; members as those of a [[domain]] of a scene."""

    name: Label
    kind: DomainKind
    nodes: Annotated[int, Meta(ge=1, le=4)] = 1
    command: tuple[str, ...] = ()
    runtimes: str = "wss://127.0.0.1:{listen}/ws"
    stub: str = ""
    endpoint: str = ""

    def domain(self, name: str) -> Domain:
        """The domain of a scene that this node plays."""
        members = {field: getattr(self, field) for field in self.__struct_fields__ if field != "name"}
        return Domain(name=name, **members)


class MatrixFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. Those of a line hit the line of the pair, those of a node the second one. Without `does`: none.

    `policy` and `denies` are for does policy, as in a scene; it hits the first node where the second has no policy.
    """

    name: Label
    does: FaultKind | None = None
    at: Seconds = 2.0
    lasts: Annotated[float, Meta(ge=0.0, le=120.0)] = 1.0
    policy: str = ""
    denies: tuple[tuple[Word, Word], ...] = ()

    def fault(self, left: MatrixNode, right: MatrixNode) -> Fault | None:
        """The fault in a scene that two nodes play."""
        if self.does is None:
            return None
        if self.does not in NODE_FAULTS:
            return Fault(does=self.does, at=self.at, lasts=self.lasts, between=(LEFT, RIGHT))
        is_at_left = self.does == "policy" and right.kind != "ours" and left.kind == "ours"
        return Fault(
            does=self.does,
            at=self.at,
            lasts=self.lasts,
            domain=LEFT if is_at_left else RIGHT,
            policy=self.policy,
            denies=self.denies,
        )


class Matrix(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `scene` has names of scenes that come with the program, or files beside this one."""

    title: str
    node: tuple[MatrixNode, ...]
    scene: tuple[str, ...]
    fault: tuple[MatrixFault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One scene with one fault between one pair. `problem`: why this cannot be played, else "".

    `digest` is that of all that is played: a result counts for it alone.
    """

    left: str
    right: str
    scene: str
    fault: str
    played: LabScene
    problem: str
    digest: str

    @property
    def title(self) -> str:
        """Its subject, in a few words."""
        return f"{self.left} – {self.right}, {self.scene}, {self.fault}"


def check_matrix(matrix: Matrix, scenes: Mapping[str, LabScene], source: str) -> None:
    """Raise SettingsError with everything that is wrong with a matrix; `source` names it."""
    problems = list(_problems(matrix, scenes))
    if problems:
        raise SettingsError("\n".join(f"{source}: {problem}" for problem in problems))


def _problems(matrix: Matrix, scenes: Mapping[str, LabScene]) -> Iterator[str]:
    for what, names in (
        ("node", [one.name for one in matrix.node]),
        ("fault", [one.name for one in matrix.fault]),
        ("scene", list(matrix.scene)),
    ):
        if not names:
            yield f"there is no {what}"
        yield from (f"{what} {name} is there twice" for name in sorted({one for one in names if names.count(one) > 1}))
    for fault in matrix.fault:
        if fault.does == "policy" and not (fault.policy and fault.denies):
            yield f"fault {fault.name}: needs `policy`, a file, and `denies`, pairs of runtimes that it keeps apart"
        elif fault.does != "policy" and (fault.policy or fault.denies):
            yield f"fault {fault.name}: `policy` and `denies` are for does policy"
    for name, scene in scenes.items():
        if {one.name for one in scene.domain} != {LEFT, RIGHT}:
            yield f"scene {name}: needs the domains {LEFT} and {RIGHT}, and no other"
    size = len(matrix.node) * (len(matrix.node) + 1) // 2 * len(matrix.scene) * len(matrix.fault)
    if size > MOST_CELLS:
        yield f"{size:,} cells; at most {MOST_CELLS:,} are possible"


def cells(matrix: Matrix, scenes: Mapping[str, LabScene], policies: Mapping[str, bytes] = {}) -> list[Cell]:
    """All cells, by scene, pair and fault. `policies` has what is in the files that they name, for their digests."""
    pairs = list(combinations_with_replacement(matrix.node, 2))
    return [
        _cell((left, right), (name, scenes[name]), fault, policies)
        for name in matrix.scene
        for left, right in pairs
        for fault in matrix.fault
    ]


def _cell(
    pair: tuple[MatrixNode, MatrixNode],
    scene: tuple[str, LabScene],
    fault: MatrixFault,
    policies: Mapping[str, bytes],
) -> Cell:
    left, right = pair
    name, base = scene
    extra = fault.fault(left, right)
    domains = tuple(
        replace(left.domain(LEFT), policy=_policy(base, LEFT))
        if one == LEFT
        else replace(right.domain(RIGHT), policy=_policy(base, RIGHT))
        for one in (LEFT, RIGHT)
    )
    played = replace(base, domain=domains, fault=base.fault if extra is None else (*base.fault, extra))
    tested = played.promise.tests
    if played.fault and "recovery" not in tested:
        played = replace(played, promise=replace(played.promise, tests=(*tested, "recovery")))
    return Cell(
        left=left.name,
        right=right.name,
        scene=name,
        fault=fault.name,
        played=played,
        problem=next(map(str, problems_of(played)), ""),
        digest=_digest(played, policies),
    )


def _digest(played: LabScene, policies: Mapping[str, bytes]) -> str:
    """Digest of all that is played: of a policy its content, and not where its file is."""

    def content(policy: str) -> str:
        return hashlib.sha256(policies.get(policy, policy.encode())).hexdigest() if policy else ""

    domains = tuple(replace(one, policy=content(one.policy)) for one in played.domain)
    faults = tuple(replace(one, policy=content(one.policy)) for one in played.fault)
    whole = replace(played, domain=domains, fault=faults)
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:16]


def _policy(scene: LabScene, domain: str) -> str:
    return next(one.policy for one in scene.domain if one.name == domain)
