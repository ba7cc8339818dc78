"""The word that a node answered everything before it stopped holds once, and not where it cannot be taken back."""

from __future__ import annotations

from pathlib import Path

from msg_node.storage.stop_mark import StopMark


def test_the_word_holds_for_one_start(tmp_path: Path) -> None:
    assert not StopMark(tmp_path).take()
    StopMark(tmp_path).put()
    assert StopMark(tmp_path).take()
    assert not StopMark(tmp_path).take()


def test_a_word_that_cannot_be_given_or_taken_back_does_not_count(tmp_path: Path) -> None:
    StopMark(tmp_path / "missing").put()
    assert not StopMark(tmp_path / "missing").take()
    (tmp_path / "answered-all").mkdir()
    assert not StopMark(tmp_path).take()
