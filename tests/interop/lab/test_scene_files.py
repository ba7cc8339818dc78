from __future__ import annotations

import contextlib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from interop.hostile.zoo import zoo
from interop.lab.core.matrix import MatrixNode
from interop.lab.core.scene import Bars, BrokenStub, Domain, Fault, LabScene, Load, Runtime, problems_of
from interop.lab.scene_file import load_scene, scene_path, shipped_scenes
from protofly.errors import SettingsError

GOOD = """
title = "t"
domain = [{ name = "a.example" }, { name = "b.example" }]
runtime = [{ name = "anna", domain = "a.example", count = 2 }, { name = "bruno", domain = "b.example" }]
load = [{ from = "anna", to = "bruno" }]
fault = [{ does = "kill", domain = "b.example", at = 1 }]
"""


def load(tmp_path: Path, text: str) -> str:
    """What is wrong with a scene."""
    file = tmp_path / "scene.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_scene(file)
    return caught.value.detail


@pytest.mark.parametrize("name", shipped_scenes())
def test_every_scene_that_is_shipped_can_run(name: str) -> None:
    scene = load_scene(scene_path(name))
    assert "genuine" in scene.promise.tests
    assert scene.seconds <= 45


def faulty(domains: str, fault: str) -> str:
    return f"""
title = "t"
domain = [{domains}]
runtime = [{{ name = "anna", domain = "a.example" }}]
load = [{{ from = "anna", to = "anna" }}]
fault = [{{ {fault}, at = 1 }}]
"""


@pytest.mark.parametrize(
    ("domains", "fault", "problem"),
    [
        (
            '{ name = "a.example" }, { name = "v.example", kind = "vertx" }',
            'does = "update", domain = "v.example"',
            "the documents of v.example are not published by a node of ours",
        ),
        (
            '{ name = "a.example" }, { name = "l.example", kind = "link" }',
            'does = "revoked-stub", domain = "a.example"',
            "no other domain of kind ours reads the documents of a.example",
        ),
        (
            '{ name = "a.example" }, { name = "v.example", kind = "vertx" }',
            'does = "dns-lies", domain = "a.example"',
            "another one that is found by its name",
        ),
        (
            '{ name = "a.example" }, { name = "b.example", command = ["older"] }',
            'does = "clock-step", domain = "b.example"',
            "have a clock that can be set",
        ),
        (
            '{ name = "a.example" }, { name = "l.example", kind = "link" }',
            'does = "clock-step", domain = "l.example"',
            "have a clock that can be set",
        ),
        (
            '{ name = "a.example" }, { name = "b.example" }',
            'does = "cut", domain = "a.example", between = ["a.example", "b.example"]',
            "no `domain` or `node`",
        ),
        (
            '{ name = "a.example" }, { name = "b.example", stub = "vertx_peer", endpoint = "ws://127.0.0.1:1/ws" }',
            'does = "kill", domain = "a.example"',
            "`stub` and `endpoint` go together, in domains of kind other",
        ),
    ],
)
def test_a_fault_that_cannot_happen_to_its_domain_is_named(
    tmp_path: Path, domains: str, fault: str, problem: str
) -> None:
    assert problem in load(tmp_path, faulty(domains, fault))


def test_simulated_nodes_and_nodes_behind_a_stub_are_those_that_acknowledge_nothing(tmp_path: Path) -> None:
    file = tmp_path / "scene.toml"
    file.write_text(
        """
title = "t"
domain = [
    { name = "a.example" },
    { name = "l.example", kind = "link" },
    { name = "v.example", kind = "vertx" },
    { name = "o.example", kind = "other", command = ["node"] },
    { name = "p.example", kind = "other", command = ["node"], stub = "s", endpoint = "ws://127.0.0.1:1/ws" },
]
runtime = [{ name = "anna", domain = "a.example" }]
load = [{ from = "anna", to = "anna" }]
"""
    )
    assert load_scene(file).silent == {"v.example", "p.example"}


@pytest.mark.parametrize(
    ("fault", "is_lure", "domains"),
    [
        (Fault(does="dns-lies", domain="b.example"), True, ("b.example",)),
        (Fault(does="dns-lies", domain="b.example", answer="nobody"), False, ("b.example",)),
        (Fault(does="forged-documents", domain="b.example"), True, ("b.example",)),
        (Fault(does="cut", between=("a.example", "b.example")), False, ("a.example", "b.example")),
    ],
)
def test_a_fault_shows_something_false_or_not_to_its_domains(
    fault: Fault, *, is_lure: bool, domains: tuple[str, ...]
) -> None:
    assert (fault.is_lure, fault.domains) == (is_lure, domains)


def test_as_many_runtimes_and_nodes_as_are_possible_are_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "scene.toml"
    most = GOOD.replace("count = 2", "count = 50")
    most = most.replace(
        ', { name = "bruno"',
        "".join(f', {{ name = "r{n}", domain = "a.example", count = 50 }}' for n in (1, 2))
        + ', { name = "s", domain = "a.example", count = 49 }, { name = "bruno"',
    )
    most = most.replace('load = [{ from = "anna"', 'load = [{ from = "bruno"')
    file.write_text(most)
    assert len(load_scene(file).runtimes) == 200
    assert "201 runtimes; at most 200" in load(tmp_path, most.replace("count = 49", "count = 50"))


def test_the_stubs_of_broken_updates_are_those_of_the_zoo() -> None:
    assert set(get_args(BrokenStub)) == set(zoo())


def test_a_runtime_with_a_count_is_that_many(tmp_path: Path) -> None:
    file = tmp_path / "scene.toml"
    file.write_text(GOOD)
    scene = load_scene(file)
    assert scene.runtimes == {"anna-1": "a.example", "anna-2": "a.example", "bruno": "b.example"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "t"', 'title = "t"\nspeed = 3', "scene.toml:3: speed: unknown; known here: "),
        ('to = "bruno"', 'to = "carla"', "load: there is no runtime carla; there are anna, bruno"),
        (
            'domain = "b.example" }]\nload',
            'domain = "z.example" }]\nload',
            "no domain z.example; there are a.example",
        ),
        (", at = 1 }", " }", "needs either `at` or `after`"),
        ('domain = "b.example", at', 'between = ["a.example", "a.example"], at', "needs `domain`"),
        ('"kill", domain = "b.example"', '"cut", between = ["a.example", "z.example"]', "needs `between`"),
        ('{ name = "b.example" }]', '{ name = "b.example", kind = "hostile" }]', "at least two domains that talk"),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example" }, { name = "a.example" }]',
            "domain a.example is there twice",
        ),
        ('to = "bruno" }', 'to = "bruno", per_second = 2000, seconds = 600 }', "at most 200,000 can be judged"),
        ('title = "t"', f"title = {'[' * 5000}", "nested too deep"),
        ('title = "t"', 'title = "t"\npromise = { tests = [] }', "this scene cannot fail"),
        ('title = "t"', 'title = "t"\npromise = { tests = ["history"] }', "cannot fail without an action"),
        (
            'title = "t"',
            'title = "t"\npromise = { tests = ["history"] }\naction = [{ at = 1, runtime = "anna", does = "leave" }]',
            "cannot fail without an action besides leave and return",
        ),
        ('title = "t"', 'title = "t"\npromise = { tests = ["answered"] }', "cannot fail without a load of requests"),
        ('title = "t"', "title = [", "scene.toml"),
        ('{ name = "b.example" }]', '{ name = "b.example", kind = "other" }]', "kind other needs the `command`"),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example", kind = "vertx", nodes = 2 }]',
            "are for domains of kind ours",
        ),
        ('{ name = "b.example" }]', '{ name = "b.example", kind = "link", command = ["x"] }]', "kind ours or other"),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example", stub = "vertx_peer" }]',
            "`stub` and `endpoint` go together",
        ),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example" }, { name = "c.example", kind = "hostile" }]',
            "needs `does`, or a [[misdeed]]",
        ),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example" }, { name = "c.example", kind = "hostile", does = ["smile"] }]',
            "there is no misdeed smile",
        ),
        (
            'title = "t"',
            'title = "t"\nmisdeed = [{ domain = "a.example", does = "flood", at = 1 }]',
            "a.example is no hostile domain",
        ),
        ('{ name = "b.example" }]', '{ name = "b.example", does = ["garbage"] }]', "is for domains of kind hostile"),
        ('"kill", domain = "b.example"', '"kill", domain = "b.example", node = 2', "has no node 2"),
        ('"kill", domain = "b.example"', '"reorder", domain = "b.example"', "needs `between`"),
        (
            '"kill", domain = "b.example"',
            '"clock-step", domain = "b.example", hours = 2',
            "fault[0].hours: unknown; known here: ",
        ),
        (
            '"kill", domain = "b.example"',
            '"dns-lies", domain = "b.example", answer = "maybe"',
            "scene.toml:6: fault[0].answer: 'maybe': expected one of impostor, nobody, silence",
        ),
        ('to = "bruno" }', 'to = "bruno", per_secnd = 3 }', "load[0].per_secnd: unknown; did you mean `per_second`?"),
        ('to = "bruno" }', 'to = "bruno", bytes = "3" }', "load[0].bytes: Expected a whole number, got a text"),
        ('"kill", domain = "b.example"', '"kill", domain = "b.example", milliseconds = 9', "is for delay, reorder"),
        (", at = 1 }", ', after = { runtime = "bruno", messages = 101 } }', "never begins: bruno hears 100 messages"),
        (", at = 1 }", ', after = { runtime = "carla", messages = 1 } }', "there is no runtime carla"),
        (
            ", at = 1 }",
            ', after = { runtime = "anna", messages = 1 } }',
            "name one of its runtimes, anna-1 for example",
        ),
        (
            'title = "t"',
            'title = "t"\npromise = { tests = ["neighbours"] }',
            "scene.toml:3: promise neighbours: cannot fail without a load between domains that no fault hits",
        ),
        ('{ name = "b.example" }]', '{ name = "b.example", policy = "none.toml" }]', "none.toml is no file"),
        (
            '{ name = "b.example" }]',
            '{ name = "b.example", kind = "other", command = ["x", "{port}"] }]',
            "domain b.example: there is no {port}; there are {ca_file}, {certificate}",
        ),
        ('"kill", domain = "b.example"', '"broken-update", domain = "b.example", stub = "smiling"', "smiling"),
        ('"kill", domain = "b.example"', '"update", between = ["a.example", "b.example"]', "needs `domain`"),
        (
            'title = "t"',
            'title = "t"\npromise = { tests = ["stubs"] }',
            "cannot fail without an update or a revocation",
        ),
        (
            'fault = [{ does = "kill", domain = "b.example", at = 1 }]',
            'fault = [{ does = "update", domain = "b.example", at = 1 }]\npromise = { tests = ["stubs"] }',
            "has to last for `stub_seconds`",
        ),
        ('"kill", domain = "b.example"', '"partition", domain = "b.example"', "nothing that is shared"),
        ('title = "t"', 'title = "t"\naction = [{ at = 1, runtime = "anna", does = "find" }]', "`whom` is for find"),
        (
            'title = "t"',
            'title = "t"\naction = [{ at = 1, runtime = "anna", does = "find", whom = "zoe" }]',
            "there is no runtime zoe",
        ),
    ],
)
def test_what_is_wrong_with_a_scene_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    assert problem in load(tmp_path, GOOD.replace(old, new, 1))


FOREIGN = GOOD.replace('{ name = "b.example" }]', '{ name = "b.example", kind = "vertx" }]')


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"kill"', '"pause"', "can only be killed"),
        ('title = "t"', 'title = "t"\naction = [{ at = 1, runtime = "bruno", does = "park" }]', "has no such service"),
        (
            'domain = [{ name = "a.example" }, {',
            'domain = [{ name = "a.example" }, { name = "c.example" }, { name = "d.example", kind = "link" }, {',
            "do not reach each other",
        ),
    ],
)
def test_what_a_node_in_memory_cannot_do_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = FOREIGN.replace(old, new, 1)
    if "d.example" in new:
        text = text.replace('domain = "a.example", count = 2', 'domain = "d.example"')
    assert problem in load(tmp_path, text)


@pytest.mark.parametrize(("seconds", "is_possible"), [(100.0, True), (100.001, False)])
def test_so_many_messages_can_be_judged_and_not_one_more(tmp_path: Path, seconds: float, is_possible: bool) -> None:
    text = f"""
title = "t"
domain = [{{ name = "a.example" }}, {{ name = "b.example" }}]
runtime = [{{ name = "anna", domain = "a.example", count = 2 }}, {{ name = "bruno", domain = "b.example" }}]
load = [{{ from = "anna", to = "bruno", per_second = 1000, seconds = {seconds}, bytes = 0 }}]
"""
    file = tmp_path / "scene.toml"
    file.write_text(text)
    if is_possible:
        assert [one.bytes for one in load_scene(file).load] == [0]
    else:
        assert "can be judged" in load(tmp_path, text)


def test_policies_are_found_beside_their_scene(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("")
    file = tmp_path / "scene.toml"
    file.write_text(GOOD.replace('{ name = "b.example" }', '{ name = "b.example", policy = "b.toml" }', 1))
    assert [one.policy for one in load_scene(file).domain] == ["", str(tmp_path / "b.toml")]


POLICY = '"policy", domain = "b.example", policy = "b.toml", denies = [["anna", "bruno"]]'


def test_the_policy_of_a_fault_is_beside_its_scene_or_comes_with_the_program(tmp_path: Path) -> None:
    file, ours = tmp_path / "scene.toml", "policies/nothing-in.policy.toml"
    (tmp_path / "b.toml").write_text("")
    file.write_text(GOOD.replace('"kill", domain = "b.example"', POLICY))
    assert [one.policy for one in load_scene(file).fault] == [str(tmp_path / "b.toml")]
    file.write_text(GOOD.replace('"kill", domain = "b.example"', POLICY.replace("b.toml", ours)))
    assert [Path(one.policy) for one in load_scene(file).fault] == [scene_path("policies-change").parent / ours]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", "scene.toml:6: fault policy b.example: "),
        (', policy = "b.toml"', "", "needs `policy`, a file, and `denies`"),
        (', denies = [["anna", "bruno"]]', "", "needs `policy`, a file, and `denies`"),
        ('"b.example"', '"b.example", node = 1', "all nodes of a domain have one policy: needs no `node`"),
        ('["anna", "bruno"]', '["bruno", "anna"]', "there is no load from bruno to anna that it could deny"),
        ('"policy", ', '"kill", ', "`denies` is for policy"),
        ('domain = "b.example"', 'between = ["a.example", "b.example"]', "needs `domain`"),
        ('domain = "b.example"', 'domain = "c.example"', "anna sends to bruno does not cross the border of c.example"),
        ('domain = "b.example"', 'domain = "v.example"', "only domains of kind ours have a policy"),
    ],
)
def test_a_policy_that_cannot_be_put_in_force_or_changes_nothing_is_named(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    domains = '{ name = "b.example" }, { name = "c.example" }, { name = "v.example", kind = "vertx" }]'
    text = GOOD.replace('{ name = "b.example" }]', domains, 1)
    assert problem in load(tmp_path, text.replace('"kill", domain = "b.example"', POLICY.replace(old, new, 1)))


@pytest.mark.parametrize("who", ["anna-2", "bruno"])
def test_as_many_messages_as_a_runtime_hears_may_be_waited_for(tmp_path: Path, who: str) -> None:
    file = tmp_path / "scene.toml"
    there_and_back = '[{ from = "anna", to = "bruno" }, { from = "bruno", to = "anna", per_second = 20 }]'
    text = GOOD.replace('[{ from = "anna", to = "bruno" }]', there_and_back)
    file.write_text(text.replace(", at = 1 }", f', after = {{ runtime = "{who}", messages = 100 }} }}'))
    assert load_scene(file).fault[0].after is not None


def test_a_missing_file_names_the_scenes_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="honest-pair"):
        load_scene(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("kind", "given", "left_out"),
    [
        (Domain, {"name": "a.example"}, {"kind": "ours", "nodes": 1, "per_second": 5.0}),
        (MatrixNode, {"name": "a", "kind": "ours"}, {"nodes": 1}),
        (Runtime, {"name": "a", "domain": "a.example"}, {"count": 1}),
        (
            Load,
            {"from": "a", "to": "b"},
            {"kind": "event", "per_second": 10.0, "bytes": 100, "start": 0.0, "seconds": 5.0},
        ),
        (
            Fault,
            {"does": "kill", "at": 1.0},
            {"lasts": 1.0, "node": 0, "milliseconds": 200, "bytes_per_second": 10_000, "clock_seconds": 60.0},
        ),
        (Fault, {"does": "kill", "at": 1.0}, {"answer": "impostor", "stub": "trapping"}),
        (
            Bars,
            {},
            {"recovery_seconds": 20.0, "stub_seconds": 10.0, "neighbours_p99_ms": 1_000.0, "settle_seconds": 20.0},
        ),
        (Bars, {}, {"tests": ("once", "order", "kept", "genuine")}),
    ],
)
def test_what_a_scene_leaves_out_means_the_same_in_every_version(
    kind: type, given: dict[str, object], left_out: dict[str, object]
) -> None:
    members = msgspec.to_builtins(msgspec.convert(given, kind))
    assert {name: members[name] for name in left_out} == left_out


@pytest.mark.parametrize(("size", "is_possible"), [(-1, False), (0, True), (200_000, True), (200_001, False)])
def test_messages_of_a_load_may_be_empty_and_have_a_bound(*, size: int, is_possible: bool) -> None:
    with contextlib.nullcontext() if is_possible else pytest.raises(msgspec.ValidationError):
        msgspec.convert({"from": "a", "to": "b", "bytes": size}, Load)


@pytest.mark.parametrize(("nodes", "lasts", "is_refused"), [(2, 4.1, True), (2, 4.0, False), (1, 60.0, False)])
def test_a_node_of_several_is_paused_for_less_than_its_lease(nodes: int, lasts: float, is_refused: bool) -> None:
    scene = LabScene(
        title="t",
        domain=(Domain(name="a.example", nodes=nodes), Domain(name="b.example")),
        runtime=(),
        fault=(Fault(does="pause", domain="a.example", at=1.0, lasts=lasts),),
    )
    assert is_refused == any("has lost its lease" in problem.text for problem in problems_of(scene))
