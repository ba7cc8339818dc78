"""What a hostile domain says: lies in the name of others, and noise for nobody. And the zoo is what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from interop.hostile.core.misdeeds import MISDEEDS, lie, noise_frames, noise_messages, unknown
from interop.hostile.domain import HostileDomain, switch
from interop.hostile.zoo import hostile_stub, zoo
from interop.lab.kept import KeptLab, make_lab
from interop.partner.cases import CASES
from protofly.errors import SettingsError

from .make_zoo import FOLDER, STUBS, index

US, TARGET = "c.example", "a.example"
ADDRESSES = {"hyperty://a.example/1": "anna", "hyperty://b.example/2": "bruno", "hyperty://a.example/3": "carla"}
LIES = [name for name, one in MISDEEDS.items() if one.way == "lie"]


@pytest.mark.parametrize("name", LIES)
@given(chance=st.integers(0, 1 << 30))
def test_a_lie_goes_to_a_runtime_of_the_target_in_the_name_of_somebody_else(name: str, chance: int) -> None:
    raw = lie(name, US, TARGET, ADDRESSES, chance)
    assert raw is not None
    message = json.loads(raw)
    assert message["to"] in ADDRESSES
    assert message["to"].startswith(f"hyperty://{TARGET}/")
    assert not message["from"].startswith(f"hyperty://{US}/")


def test_without_a_runtime_there_is_nobody_to_lie_to() -> None:
    assert [lie(name, US, TARGET, {}, 0) for name in LIES] == [None] * len(LIES)


def test_what_is_no_lie_and_no_connection_is_noise_for_an_address_that_nobody_has() -> None:
    for name, one in MISDEEDS.items():
        messages, frames = noise_messages(name, US, TARGET), noise_frames(name, bytes(64))
        assert bool(messages or frames) is (one.way == "noise")
        assert all(b"hyperty://a.example/nobody" in raw for _, raw in messages)


def test_every_misdeed_is_explained_and_its_partner_cases_exist() -> None:
    known = {case.id for case in CASES}
    assert unknown([*MISDEEDS, "be-kind"]) == ["be-kind"]
    for one in MISDEEDS.values():
        assert one.does
        assert one.rule
        assert set(one.cases) <= known


def test_the_zoo_is_what_its_texts_assemble_to() -> None:
    """After a change: `python -m tests.interop.hostile.make_zoo`."""
    assert {name: one.module for name, one in zoo().items()} == {name: module for name, (module, _, _) in STUBS.items()}
    assert (FOLDER / "index.json").read_text() == index()
    assert {path.stem for path in FOLDER.glob("*.wasm")} == set(STUBS)


def test_a_stub_that_is_not_in_the_zoo_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="there is no hostile stub lion; there are looping, trapping"):
        hostile_stub("lion")


@pytest.mark.long
async def test_a_domain_that_misbehaves_in_a_laboratory_is_not_believed_and_the_others_go_on(tmp_path: Path) -> None:
    await make_lab(tmp_path / "lab", 3)
    lab = KeptLab(tmp_path / "lab")
    hostile = lab.hostile("c.example", per_second=1)
    assert isinstance(hostile, HostileDomain)
    assert switch(hostile, ["+flood", "garbage", "-flood", "kindness"]) == ["kindness"]
    assert hostile.active == {"garbage"}
    with pytest.raises(SettingsError, match=r"no domain z\.example"):
        lab.hostile("z.example", per_second=1)
    try:
        await lab.up()
        command = [
            sys.executable,
            "-m",
            "trapezoid",
            "lab",
            "misbehave",
            str(lab.path),
            "c.example",
            *MISDEEDS,
            "--json",
        ]
        done = await trio.run_process(
            [*command, "--seconds", "8"],
            stdin=b"-half-open\n",
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        facts = json.loads(done.stdout)
        assert facts["forged"] > 0
        assert facts["welcomed"] > 0
        assert facts["believed"] == facts["unanswered afterwards"] == []
    finally:
        lab.down()


def test_the_misdeeds_are_listed_by_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trapezoid", "lab", "misdeeds", "--json"], capture_output=True, check=True
    )
    listed = json.loads(done.stdout)
    assert [one["name"] for one in listed["misdeeds"]] == list(MISDEEDS)
    assert {one["name"] for one in listed["stubs"]} == set(STUBS)
