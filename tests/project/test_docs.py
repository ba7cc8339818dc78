"""The pages say what is there: codes, links, commands, settings, tests, files. And nothing about one machine."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from interop.lab.matrix import load_matrix
from interop.lab.scene_file import load_scene
from msg_node.settings.load import load_settings
from policy.files import read_policies
from protofly.errors import Code
from trapezoid.commands import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        (part.startswith(".") and part != ".github") or part in {"build", "dist"}
        for part in path.relative_to(ROOT).parts
    )
)
PROSE_COLUMNS = 175
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@cache
def text_of(page: Path) -> str:
    """One page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of one language, without the indentation of the list that they stand in."""
    return [
        "\n".join(line.removeprefix(indent) for line in body.splitlines()) + "\n"
        for indent, found, body in FENCE.findall(text_of(page))
        if found == language
    ]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", text_of(page))


def name_of(page: Path) -> str:
    """How a page is called in a report."""
    return page.relative_to(ROOT).as_posix()


def by_page(check: Callable[[Path], None]) -> Callable[[Path], None]:
    """A check of every page, as one test for each folder: there are hundreds of pages, most of them of few lines."""

    def check_folder(folder: Path) -> None:
        findings = []
        for page in PAGES:
            if page.parent == folder:
                try:
                    check(page)
                except AssertionError as exc:
                    findings.append(f"{name_of(page)}: {exc}")
        assert findings == []

    check_folder.__name__, check_folder.__doc__ = check.__name__, check.__doc__
    return pytest.mark.parametrize("folder", sorted({page.parent for page in PAGES}), ids=name_of)(check_folder)


# Codes.


def test_every_code_has_its_row_in_the_troubleshooting_page() -> None:
    rows = Counter(re.findall(r"^\| `(\d{3} [a-z-]+)` \|", text_of(DOCS / "troubleshooting.md"), re.MULTILINE))
    assert rows == Counter(f"{code.status} {code.word}" for code in Code)


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    rows = re.findall(r"^\| `\d{3} [a-z-]+` \|(.*)\|$", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)
    assert all(len(row.split("|")) == 2 and all(cell.strip() for cell in row.split("|")) for row in rows)


# Links.


def slug(heading: str) -> str:
    """Anchor of a heading, as the usual renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@by_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        anchors = (
            {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(other), re.MULTILINE)} if anchor else {""}
        )
        if not other.exists() or (anchor and anchor not in anchors):
            broken.append(target)
    assert broken == []


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [README]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", prose(page))
        waiting += [
            (page.parent / target).resolve()
            for target in targets
            if not re.match(r"[a-z]+:", target) and (page.parent / target).is_file()
        ]
    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in seen] == []


# Commands.


def command_lines(page: Path, *, only_blocks: bool = False) -> Iterator[list[str]]:
    """Words after `trapezoid` of every command that a page shows, or of those in code blocks only."""
    shown = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    shown += [] if only_blocks else re.findall(r"`([^`\n]+)`", prose(page))
    for line in shown:
        match = re.match(r"(?:\./run )?trapezoid ([a-z].*)", line.split("  #")[0].strip())
        if match is not None:
            yield shlex.split(match[1])


@cache
def program() -> Any:
    """The whole program as a tree of commands, which takes some time to make."""
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the rest of them. Raises LookupError."""
    command = program()
    words = list(words)
    while hasattr(command, "commands") and words:
        if words[0] not in command.commands:
            if not hasattr(command, "default_command"):
                raise LookupError(words[0])
            words.insert(0, command.default_command)
        command = command.commands[words.pop(0)]
    return command, words


def options_of(words: list[str]) -> tuple[list[str], set[str]]:
    """What is left of the words of a command when its names are gone, and the options that the command knows."""
    command, rest = command_of(words)
    return rest, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@by_page
def test_every_command_and_option_exists(page: Path) -> None:
    for words in command_lines(page):
        try:
            rest, options = options_of(words)
        except LookupError as error:
            pytest.fail(f"trapezoid {' '.join(words)}: no command {error}")
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= options, f"trapezoid {' '.join(words)}"


@by_page
def test_every_command_in_a_block_has_what_it_needs(page: Path) -> None:
    for words in command_lines(page, only_blocks=True):
        command, rest = command_of(words)
        required = [parameter for parameter in command.params if parameter.required]
        options = [one.opts[0] for one in required if one.param_type_name == "option"]
        places = sum(one.param_type_name == "argument" for one in required)
        if "…" in rest:
            continue
        assert set(options) <= set(rest), f"trapezoid {' '.join(words)}"
        assert sum(not word.startswith("-") for word in rest) >= places + len(options), f"trapezoid {' '.join(words)}"


def test_commands_are_found_at_all() -> None:
    assert ["serve", "--config", "node.toml"] in list(command_lines(README))


@by_page
def test_every_run_command_is_one_of_the_script(page: Path) -> None:
    known = set(re.findall(r"^([a-z]+)\)", (ROOT / "run").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\./run ([a-z]+)", text_of(page))) <= known


# Settings and code that a page shows.


def test_settings_of_the_readme_can_be_loaded(tmp_path: Path) -> None:
    node, partner, policy = blocks(README, "toml")
    (tmp_path / "node.toml").write_text(node + partner, encoding="utf-8")
    (tmp_path / "border.toml").write_text(policy, encoding="utf-8")
    settings = load_settings(tmp_path / "node.toml")
    assert [peer.domain for peer in settings.peer] == ["b.example"]
    assert len(read_policies(settings.policy.files).sets) == 1


def test_scenes_and_the_matrix_of_the_laboratory_page_can_run(tmp_path: Path) -> None:
    scene, other, matrix = blocks(DOCS / "lab.md", "toml")
    (tmp_path / "b.policy.toml").touch()
    for text in (scene, scene + other):
        (tmp_path / "scene.toml").write_text(text, encoding="utf-8")
        assert load_scene(tmp_path / "scene.toml").fault[0].after is not None
    (tmp_path / "matrix.toml").write_text(matrix, encoding="utf-8")
    assert not [cell.problem for cell in load_matrix(str(tmp_path / "matrix.toml"))[1] if cell.problem]


def test_settings_of_the_installation_page_can_be_loaded(tmp_path: Path) -> None:
    node, cluster, partner = blocks(DOCS / "installation.md", "toml")
    (tmp_path / "node.toml").write_text(node + partner, encoding="utf-8")
    assert load_settings(tmp_path / "node.toml").publish is not None
    named = cluster.replace("[node]\n", node[: node.index("[listen]")])
    (tmp_path / "node.toml").write_text(named + node[node.index("[listen]") :], encoding="utf-8")
    assert load_settings(tmp_path / "node.toml").cluster.listen == "10.0.0.1:8450"


def test_python_of_the_readme_is_python() -> None:
    [source] = blocks(README, "python")
    ast.parse(source)


def test_every_setting_on_the_page_is_read_by_somebody() -> None:
    renamed = {"class": "trust_class"}  # no attribute of Python can have this name
    found = re.findall(r"^\| `([a-z_0-9]+)` \|", text_of(DOCS / "configuration.md"), re.MULTILINE)
    named = {renamed.get(name, name) for name in found}
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    sources = [path.read_text(encoding="utf-8") for package in packages for path in package.rglob("*.py")]
    read = {node.attr for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    assert named
    assert sorted(named - read) == []


def insecure_settings() -> set[tuple[str, str]]:
    """Section and name of every switch that weakens something."""
    page, found = text_of(DOCS / "configuration.md"), set[tuple[str, str]]()
    for section, body in re.findall(r"^## `(\[.*?\]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        found |= {(section, name) for name in re.findall(r"^\| `(insecure_\w+)` \|", body, re.MULTILINE)}
    return found


def test_every_insecure_switch_is_on_the_security_page() -> None:
    switches = insecure_settings()
    assert len(switches) >= 4
    page = text_of(DOCS / "security.md")
    assert [switch for switch in sorted(switches) if f"| `{switch[0]} {switch[1]}` |" not in page] == []


# Tests, files, dependencies.


@by_page
def test_every_named_test_exists(page: Path) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text_of(page)):
        assert (ROOT / path).is_file(), path
        assert not name or re.search(rf"def {name}\(", text_of(ROOT / path)), f"{path}::{name}"


@cache
def names_of_tests() -> frozenset[str]:
    """Names of all tests."""
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for source in tests for name in re.findall(r"def (test_\w+)\(", source))


@by_page
def test_every_test_that_is_named_alone_exists(page: Path) -> None:
    assert set(re.findall(r"`(test_\w+)`", prose(page))) <= names_of_tests()


@by_page
def test_every_named_file_exists(page: Path) -> None:
    if page.parent == DOCS / "adr":
        return  # decisions are history: they name files that did not come to be
    packages = "|".join(path.parent.name for path in ROOT.glob("*/__init__.py"))
    named = re.findall(rf"`((?:{packages}|docs|examples|newsfragments)/[\w./*-]*)`", prose(page))
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert missing == []


def test_every_dependency_has_its_row_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [
        *project["dependencies"],
        *(name for names in project["optional-dependencies"].values() for name in names),
    ]
    wanted = {re.split(r"[\[=<>~]", requirement)[0] for requirement in required} - {project["name"]}
    cells = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", text_of(DOCS / "dependencies.md"), re.MULTILINE)
    rows = Counter(name for cell in cells for name in re.findall(r"`([a-z0-9-]+)`", cell))
    assert rows == Counter(wanted)


# What no page may say.


@by_page
def test_no_page_knows_about_one_machine(page: Path) -> None:
    assert re.findall(r"(?<![\w.*])/(?:tmp|home|root|work|Users|opt|mnt)/\S*", text_of(page)) == []


@by_page
def test_lines_of_prose_can_be_compared(page: Path) -> None:
    long = [line for line in prose(page).splitlines() if len(line) > PROSE_COLUMNS and not line.startswith("|")]
    assert long == []


def test_every_news_fragment_has_a_kind() -> None:
    kinds = "feature|fix|change|removal|security"
    others = {"README.md", "template.md.jinja"}
    fragments = [path.name for path in (ROOT / "newsfragments").iterdir() if path.name not in others]
    assert [name for name in fragments if not re.fullmatch(rf"\d+(\.[a-z-]+)?\.({kinds})\.md", name)] == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    pages = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert [name[:4] for name in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    listed = text_of(DOCS / "adr" / "README.md")
    assert [name for name in pages if f"({name})" not in listed] == []
