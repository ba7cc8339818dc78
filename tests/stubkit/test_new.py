"""New stubs, in every language: what `stub new` writes can be built, keeps the contract and does what its cases say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sandbox.core.module_check import inspect_module
from stubkit.build import build
from stubkit.cases import load_script
from stubkit.new import LANGUAGES
from stubkit.rust import find_compiler
from stubkit.scripted_run import play_script
from trapezoid.commands import app

ROOT = Path(__file__).parents[2]
SDK_TESTS = Path(__file__).parent / "sdk"
SUFFIXES = [
    pytest.param(".c", id="c"),
    pytest.param(".zig", id="zig", marks=pytest.mark.long),
    pytest.param(".ts", id="assemblyscript", marks=pytest.mark.long),
    pytest.param(".rs", id="rust", marks=pytest.mark.long),
]
JS = pytest.param(".js", id="js", marks=pytest.mark.long)


def needs_compiler(suffix: str) -> None:
    if suffix == ".ts" and not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("needs Node.js 20 and npm: apt-get install -y nodejs npm")
    if suffix == ".rs" and not find_compiler():
        missing = pytest.fail if os.environ.get("TRAPEZOID_REQUIRE_BROKER") else pytest.skip
        missing("needs Rust: apt-get install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14")


def trapezoid(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (arguments, done.output)
    return done.output


def commands_of(page: Path, heading: str) -> list[list[str]]:
    """The commands of the first block of shell lines behind a heading, without comments."""
    text = page.read_text(encoding="utf-8")
    [block] = re.findall(rf"^#+ {heading}\n.*?```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [line[line.index("trapezoid") + 1 :] for line in lines if "trapezoid" in line]


@pytest.mark.parametrize("suffix", [*SUFFIXES, JS])
def test_every_command_of_the_guide_works_from_new_to_published(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler(suffix)
    [language] = [name for name, one in LANGUAGES.items() if one == suffix]
    commands = commands_of(ROOT / "docs" / "writing-a-stub.md", "Ten minutes")
    assert [" ".join(words[:2]) for words in commands][:2] == ["stub new", "stub build"]
    monkeypatch.chdir(tmp_path)
    for words in commands:
        words += ["--no-auth"] if suffix == ".js" and words[0] == "publish" else []
        trapezoid(*[word.replace("my-stub.c", f"my-stub{suffix}") if word != "c" else language for word in words])
    assert (tmp_path / "site" / "manifest" / "my-stub.json").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_kit_of_each_language_reads_and_writes_json_and_gathers_lines(suffix: str, tmp_path: Path) -> None:
    needs_compiler(suffix)
    module = tmp_path / "text.wasm"
    build(SDK_TESTS / f"text{suffix}", module)
    facts = inspect_module(module.read_bytes())
    assert (facts.name, facts.version, facts.configuration) == ("text", "1", {"type": "object"})
    assert facts.kind == "connector"
    results = play_script(module, load_script(SDK_TESTS / "cases.json"))
    assert [result.problem for result in results] == ["", ""]


def code_of(module: bytes) -> bytes:
    """The code section of a module."""
    at = 8
    while at < len(module):
        kind, size, shift = module[at], 0, 0
        at += 1
        while True:
            byte = module[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        if kind == 10:
            return module[at : at + size]
        at += size
    raise AssertionError("no code")


@pytest.mark.parametrize(
    ("suffix", "function"), [(".c", b"stub_json_path"), pytest.param(".ts", b"jsonMember", marks=pytest.mark.long)]
)
def test_names_come_along_without_a_change_of_the_code(suffix: str, function: bytes, tmp_path: Path) -> None:
    needs_compiler(suffix)
    plain, named = tmp_path / "plain.wasm", tmp_path / "named.wasm"
    build(SDK_TESTS / f"text{suffix}", plain)
    build(SDK_TESTS / f"text{suffix}", named, has_names=True)
    assert code_of(plain.read_bytes()) == code_of(named.read_bytes())
    assert function in named.read_bytes()
    assert function not in plain.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--lang", "cobol"], "no templates for 'cobol'; there are some for c, zig, assemblyscript, rust, js"),
        (["X"], "cannot be the name"),
        (["../x"], "cannot be the name"),
        (["default"], "cannot be the name"),
        (["there"], "exists already"),
    ],
)
def test_stub_that_cannot_be_begun_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    done = CliRunner().invoke(app, ["stub", "new", *arguments, "--folder", str(tmp_path)])
    assert done.exit_code == 2
    assert said in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("x.py", "", "the source of a stub ends in .c, .zig, .ts, .rs, .js"),
        ("x.ts", "export function onEvent() {}", 'the line `export const STUB_NAME: string = "…";` is missing'),
        (
            "x.ts",
            "export const STUB_NAME = 'x'; export const STUB_VERSION = '1'; export const STUB_EVENTS = '[';",
            "STUB_EVENTS is not JSON",
        ),
    ],
)
def test_source_that_no_compiler_is_asked_about_is_refused(file: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    done = CliRunner().invoke(app, ["stub", "build", str(tmp_path / file)])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.long
def test_complaint_of_the_assemblyscript_compiler_is_shown(tmp_path: Path) -> None:
    needs_compiler(".ts")
    source = tmp_path / "bad.ts"
    source.write_text('export const STUB_NAME = "bad"; export const STUB_VERSION = "1"; let x: nothing = 1;')
    done = CliRunner().invoke(app, ["stub", "build", str(source)])
    assert done.exit_code == 2
    assert "Cannot find name 'nothing'" in done.output
    assert not source.with_suffix(".wasm").exists()


def test_rust_without_a_compiler_for_the_target_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "rustc"
    compiler.write_text("#!/bin/sh\necho /nowhere\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("RUSTC", str(compiler))
    (tmp_path / "x.rs").touch()
    done = CliRunner().invoke(app, ["stub", "build", str(tmp_path / "x.rs")])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "apt-get install --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14" in said
