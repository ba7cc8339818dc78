"""Another policy while a scene runs: what nodes have in force, and what is noted of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.lab.actors import Notes
from interop.lab.core.scene import Domain, Fault, LabScene, Runtime
from interop.lab.policy_change import change_policy
from protofly.errors import Code, TransportError

SCENE = LabScene(
    title="t",
    domain=(Domain(name="a.example"), Domain(name="b.example")),
    runtime=(Runtime(name="anna", domain="a.example", count=2), Runtime(name="bruno", domain="b.example")),
)


class Node:
    """Takes its file over, except for the reload of a number."""

    def __init__(self, file: Path, refuses: int = 0) -> None:
        self.file, self.refuses, self.had = file, refuses, list[str]()

    async def have_reloaded(self) -> None:
        self.had.append(self.file.read_text())
        if len(self.had) == self.refuses:
            raise TransportError(Code.BAD_REPLY, "reload: refused")


async def changed(folder: Path, notes: Notes, refuses: int = 0) -> Node:
    """A node whose policy was `former`, after a fault that puts `other` in force."""
    node, other = Node(folder / "policy.toml", refuses), folder / "other.toml"
    node.file.write_text("former")
    other.write_text("other")
    pairs = (("anna", "bruno"),)
    fault = Fault(does="policy", at=0, domain="b.example", policy=str(other), denies=pairs, lasts=0.0)
    try:
        await change_policy(fault, SCENE, node.file, node.have_reloaded, notes)
    finally:
        assert node.file.read_text() == "former"
    return node


async def test_a_node_has_the_other_policy_and_then_the_former_one_again(tmp_path: Path) -> None:
    notes = Notes()
    assert (await changed(tmp_path, notes)).had == ["other", "former"]
    [denial] = notes.seen.denials
    assert denial.pairs == {("anna-1", "bruno"), ("anna-2", "bruno")}
    assert denial.asked <= denial.since <= denial.until <= denial.ended


@pytest.mark.parametrize(("refused", "denials"), [(1, 0), (2, 1)])
async def test_a_policy_that_a_node_does_not_take_leaves_the_file_as_it_was(
    tmp_path: Path, refused: int, denials: int
) -> None:
    notes = Notes()
    with pytest.raises(TransportError, match="refused"):
        await changed(tmp_path, notes, refused)
    assert len(notes.seen.denials) == denials
