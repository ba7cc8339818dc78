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


def said(name: str, chance: int) -> tuple[str, str, list[object]]:
    """Sender, receiver and key of a lie, all but the constant parts of which are checked here."""
    message = json.loads(lie(name, US, TARGET, ADDRESSES, chance) or b"{}")
    assert message["type"] == "create"
    assert message["body"]["value"]["pad"] == "forged"
    assert message["body"]["via"] == [f"runtime://{message['from'].split('/')[2]}/mn-1"]
    return message["from"], message["to"], message["body"]["value"]["key"]


ANNA, BRUNO, CARLA = ADDRESSES


@pytest.mark.parametrize(
    ("name", "chance", "expected"),
    [
        ("forge-ours", 0, (ANNA, ANNA, ["anna", "anna", 1])),
        ("forge-ours", 1, (ANNA, CARLA, ["anna", "carla", 2])),
        ("forge-ours", 2, (CARLA, ANNA, ["carla", "anna", 3])),
        ("forge-ours", 49, (ANNA, CARLA, ["anna", "carla", 50])),
        ("forge-ours", 50, (CARLA, ANNA, ["carla", "anna", 1])),
        ("forge-third", 0, (BRUNO, ANNA, ["bruno", "anna", 1])),
        ("forge-third", 3, (BRUNO, CARLA, ["bruno", "carla", 4])),
        ("forge-services", 0, ("domain://msg-node.a.example/sm", ANNA, ["nobody", "anna", 1])),
        ("forge-services", 2, ("runtime://a.example/mn-1", ANNA, ["nobody", "anna", 3])),
        ("forge-services", 4, ("domain://registry.a.example/", ANNA, ["nobody", "anna", 5])),
        ("forge-look-alikes", 0, ("hyperty://sub.c.example/eve", ANNA, ["nobody", "anna", 1])),
        ("forge-look-alikes", 2, ("hyperty://evil-c.example/eve", ANNA, ["nobody", "anna", 3])),
        ("forge-look-alikes", 4, ("hyperty://c.example.evil.example/eve", ANNA, ["nobody", "anna", 5])),
        ("forge-look-alikes", 6, ("hyperty://c.example:443/eve", ANNA, ["nobody", "anna", 7])),
        ("forge-look-alikes", 8, ("hyperty://a.example@c.example/eve", ANNA, ["nobody", "anna", 9])),
        ("forge-look-alikes", 10, ("hyperty://c.example@a.example/eve", ANNA, ["nobody", "anna", 11])),
    ],
)
def test_a_lie_follows_from_its_chance(name: str, chance: int, expected: tuple[str, str, list[object]]) -> None:
    assert said(name, chance) == expected


def test_a_third_is_neither_the_target_nor_the_liar() -> None:
    only = {ANNA: "anna", "hyperty://c.example/eve": "eve"}
    assert lie("forge-third", US, TARGET, only, 0) is None
    assert lie("forge-ours", US, "b.example", {ANNA: "anna"}, 0) is None


def test_noise_is_as_large_as_the_list_says() -> None:
    [(number, deep)] = noise_messages("deep-json", US, TARGET)
    head = b'{"type": "create", "from": "hyperty://c.example/eve", "to": "hyperty://a.example/nobody","body":'
    assert (number, deep) == (0, head + b"[" * 40_000 + b"]" * 40_000 + b"}")
    [(number, huge)] = noise_messages("huge-message", US, TARGET)
    assert (number, json.loads(huge)["body"]["value"]) == (0, "x" * (3 << 20))
    repeated = [
        (number, json.loads(raw)["body"]["value"]) for number, raw in noise_messages("repeat-numbers", US, TARGET)
    ]
    assert repeated == [(1, value) for value in range(10)]
    flood = [(number, json.loads(raw)["body"]["value"]) for number, raw in noise_messages("flood", US, TARGET)]
    assert flood == [(0, value) for value in range(500)]


def test_frames_of_noise_are_of_random_bytes_or_break_a_rule_each() -> None:
    entropy = bytes(range(64))
    assert noise_frames("garbage", entropy) == [entropy]
    unknown_kind, long_message, short_head = noise_frames("broken-frames", entropy)
    assert unknown_kind == bytes([0x63]) + entropy[:11]
    assert long_message == bytes([5, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 127]) + b"{}"
    assert short_head == bytes([5, 0, 0])


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
