"""Bundles on the disk: bounds of what is taken in, and what is left of it after faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.storage.policy_store import (
    Activation,
    ActivePolicies,
    Bundle,
    BundleFacts,
    PolicyStore,
    compile_files,
)
from policy.files import digest_of_files
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import POLICY_BUNDLE_BYTES, POLICY_BUNDLE_FILES, POLICY_ROLL_BACKS

OPEN = 'id = "open-{}"\n[[rules]]\nid = "all"\neffect = "permit"\ntarget = {{ actionType = {{ equals = "x{}" }} }}\n'


def opening(number: int) -> str:
    return OPEN.format(number, number)


def bundle_of(text: str, at: float = 0.0) -> Bundle:
    files = {"p.toml": text}
    facts = BundleFacts(digest=digest_of_files(files), revision="r" * 16, rules=1, by="ops", at=at)
    return Bundle(facts=facts, files=files)


@pytest.mark.parametrize(
    "files",
    [
        {"p.toml": "#" * (POLICY_BUNDLE_BYTES + 1)},
        {"p.toml": "#" * (10 << 20)},
        {f"p{number}.toml": "#" * (POLICY_BUNDLE_BYTES // 2) for number in range(3)},
        {f"p{number}.toml": opening(number) for number in range(POLICY_BUNDLE_FILES + 1)},
    ],
)
def test_more_than_a_bundle_holds_is_refused_before_it_is_read(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msg_node.storage.policy_store.load_policies", None)
    with pytest.raises(PeerError) as caught:
        compile_files(files)
    assert caught.value.code is Code.TOO_LARGE


@pytest.mark.parametrize("text", ["{" * 100_000, '{"sets":' * 20_000 + "1" + "}" * 20_000, "[" * 50_000])
def test_nesting_without_end_is_no_policy(text: str) -> None:
    with pytest.raises(PeerError) as caught:
        compile_files({"p.json": text})
    assert caught.value.code is Code.POLICY_INVALID


def test_names_of_files_never_become_paths(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    files = {"../../escape.toml": opening(1)}
    compile_files(files)
    facts = BundleFacts(digest=digest_of_files(files), revision="r" * 16, rules=1, by="ops", at=0.0)
    store.add(Bundle(facts=facts, files=files))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [f"{facts.digest}.json"]
    assert store.read(facts.digest).files == files
    for name in ("../policies/" + facts.digest, "active", "", "*" * 8):
        with pytest.raises(PeerError):
            store.find(name)


def test_what_is_in_force_survives_and_the_oldest_activations_are_forgotten(tmp_path: Path) -> None:
    store, active = PolicyStore(tmp_path), ActivePolicies()
    assert store.active() == active
    for number in range(POLICY_ROLL_BACKS + 5):
        active = active.with_newest(Activation(bundle=f"digest-{number}", by="ops", at=float(number)))
    store.set_active(active)
    again = PolicyStore(tmp_path).active()
    assert (again, len(again.activations)) == (active, POLICY_ROLL_BACKS)
    steps = 0
    while again.before is not None:
        again, steps = again.rolled_back(), steps + 1
    assert steps == POLICY_ROLL_BACKS - 1
    assert again.bundle == "digest-5"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"activations": [{"bundle": 7}]}'])
def test_a_broken_note_of_what_is_in_force_is_named_and_not_taken_for_none(text: str, tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    store.set_active(ActivePolicies())
    store.active_file.write_text(text)
    with pytest.raises(SettingsError, match=r"active\.json.*remove it"):
        store.active()


def test_a_bundle_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    store.add(good := bundle_of(opening(1)))
    (tmp_path / "policies" / ("0" * 64 + ".json")).write_text("broken")
    assert store.bundles() == [good.facts]
    with pytest.raises(SettingsError, match="0000"):
        store.read("0" * 64)
