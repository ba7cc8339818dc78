from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.settings.load import load_settings, places_of_settings
from protofly.errors import SettingsError

SMALLEST = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
insecure_plaintext = true
port = 1000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(SMALLEST)
    return path


def problem(file: Path, **variables: str) -> str:
    with pytest.raises(SettingsError) as refused:
        load_settings(file, environment=variables)
    return str(refused.value)


def test_variables_come_over_what_files_say(file: Path) -> None:
    (file.parent / "conf.d").mkdir()
    (file.parent / "conf.d" / "name.toml").write_text('[node]\nname = "from-file"')
    settings = load_settings(
        file,
        environment={
            "TRAPEZOID__LISTEN__PORT": "2000",
            "TRAPEZOID__NODE__NAME": "from-environment",
            "TRAPEZOID__NODE__ALIASES": '["x.example", "y.example"]',
            "TRAPEZOID__NODE__DATA_DIR": "elsewhere",
            "TRAPEZOID_VENV": "no setting",
            "PATH": "/bin",
        },
    )
    assert (settings.listen.port, settings.node.name) == (2000, "from-environment")
    assert settings.node.aliases == ("x.example", "y.example")
    assert settings.node.data_dir == file.parent / "elsewhere"


def test_a_table_that_no_file_has_is_made(file: Path) -> None:
    variables = {"TRAPEZOID__SITE__PORT": "0", "TRAPEZOID__SITE__INSECURE_PLAINTEXT": "true"}
    settings = load_settings(file, environment=variables)
    assert settings.site is not None
    assert (settings.site.port, settings.site.insecure_plaintext) == (0, True)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_value_is_read_from_a_file_without_the_end_of_its_last_line(file: Path, end: str) -> None:
    secret = file.parent / "secret"
    secret.write_bytes(b"b" + end.encode())
    settings = load_settings(file, environment={"TRAPEZOID__NODE__NAME_FILE": str(secret)})
    assert settings.node.name == "b"


def test_a_setting_that_is_called_a_file_is_meant_itself(file: Path) -> None:
    settings = load_settings(file, environment={"TRAPEZOID__DISCOVERY__CA_FILE": "ca.pem"})
    assert settings.discovery.ca_file == file.parent / "ca.pem"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("TRAPEZOID__LISTN__PORT", "1", "TRAPEZOID__LISTN__PORT: listn.port: unknown setting; did you mean `listen`?"),
        ("TRAPEZOID__SANDBOX__MODE", "none", "sandbox.mode: a setting of an older version, removed: stubs always run"),
        ("TRAPEZOID__LISTEN__PROT", "1", "unknown setting; did you mean `port`?"),
        ("TRAPEZOID__LISTEN", "1", "a table, not a setting"),
        ("TRAPEZOID__", "1", "unknown setting"),
        ("TRAPEZOID__LISTEN____PORT", "1", "unknown setting"),
        ("TRAPEZOID__LISTEN__PORT__X", "1", "unknown setting"),
        ("TRAPEZOID__PEER__DOMAIN", "b.example", "write a file into conf.d"),
        ("TRAPEZOID__LISTEN__PORT", "eight", "write the value as in TOML"),
        ("TRAPEZOID__LISTEN__PORT", "1\nkey = 2", "TRAPEZOID__LISTEN__PORT"),
        ("TRAPEZOID__LISTEN__PORT", "70000", "TRAPEZOID__LISTEN__PORT: listen.port: "),
        ("TRAPEZOID__LISTEN__PORT", '"x"', "TRAPEZOID__LISTEN__PORT: listen.port: "),
        ("TRAPEZOID__NODE__DOMAIN", "not a name", "TRAPEZOID__NODE__DOMAIN: node.domain: "),
        ("TRAPEZOID__NODE__NAME_FILE", "/nowhere/secret", "/nowhere/secret: No such file"),
    ],
)
def test_what_is_wrong_names_the_variable(file: Path, name: str, text: str, words: str) -> None:
    assert words in problem(file, **{name: text})


def test_a_file_that_is_too_long_or_no_text_is_refused(file: Path) -> None:
    for content, words in ((b"x" * 70_000, "longer than"), (b"\xff", "not UTF-8")):
        (file.parent / "secret").write_bytes(content)
        assert words in problem(file, TRAPEZOID__NODE__NAME_FILE=str(file.parent / "secret"))


def test_each_setting_that_is_given_has_its_place(file: Path) -> None:
    places = places_of_settings(file, environment={"TRAPEZOID__LISTEN__PORT": "2000"})
    assert places["listen.port"] == "TRAPEZOID__LISTEN__PORT"
    assert places["node.domain"] == f"{file}:3"
    assert "node.name" not in places
