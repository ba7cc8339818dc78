"""Adapting published scripts: packages that nodes take, and refusals that name the file and the reason."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from msg_node.kernel.data_schemas import check_configuration
from protofly.errors import Code, PeerError, SettingsError
from sandbox.core.module_check import inspect_module
from sandbox.core.script_package import Script, is_module
from sandbox.core.scripts import code_of, script_of
from stubkit.adapt import adapt, name_of, packaged, read_json_object, read_published
from tests.examples_stubs.javascript import SCRIPTS
from trapezoid.commands.stub import _by_url

SESSIONS = SCRIPTS / "sessions.js"


def script(text: bytes = b"export default () => ({});", **more: object) -> Script:
    return Script(**{"text": text, "file": "mine.js", "name": "mine", **more})  # type: ignore[arg-type]


def test_package_holds_the_script_as_it_was_published() -> None:
    text = SESSIONS.read_bytes()
    module = packaged(script(text, version="2.1.0", configuration={"maxBuffer": 5}, http=("api",)))
    facts = inspect_module(module)
    assert (facts.name, facts.version, facts.events) == ("mine", "2.1.0", ["addresses"])
    about, _, kept = script_of(module).partition(b"\n")
    assert kept == text
    assert json.loads(about) == {
        "file": "mine.js", "isModule": True, "configuration": {"maxBuffer": 5}, "endpoints": {}, "http": ["api"]
    }  # fmt: skip


def test_connector_hears_of_no_addresses_subscribes_to_nothing_and_no_operator_changes_that() -> None:
    module = packaged(script(kind="connector", configuration={"depth": 2}))
    facts = inspect_module(module)
    assert (facts.kind, facts.events) == ("connector", [])
    about, _, _ = script_of(module).partition(b"\n")
    assert json.loads(about)["configuration"] == {"depth": 2, "adapter": {"subscriptions": "none"}}
    check_configuration(facts.configuration, {"depth": 3})
    with pytest.raises(PeerError):
        check_configuration(facts.configuration, {"adapter": {"subscriptions": "new"}})


def test_packages_of_all_scripts_are_compiled_once() -> None:
    assert code_of(packaged(script())) == code_of(packaged(script(b"var activate;", name="other")))


def test_adapted_script_is_written_with_what_its_operator_pins(tmp_path: Path) -> None:
    facts = adapt(script(SESSIONS.read_bytes(), name="sessions", file="sessions.js"), tmp_path / "new" / "folder")
    assert Path(str(facts["module"])).read_bytes() == packaged(
        script(SESSIONS.read_bytes(), name="sessions", file="sessions.js")
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"export default (;", "mine.js: SyntaxError: "),
        (b"for (;;);", "mine.js: stub-"),
        (b"var nothing;", "mine.js: Error: the script exports neither a function `activate` nor a class"),
    ],
    ids=["syntax error", "endless loop", "nothing exported"],
)
@pytest.mark.long
def test_script_that_no_node_could_start_is_refused_and_nothing_is_written(
    tmp_path: Path, text: bytes, why: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        adapt(script(text), tmp_path)
    assert why in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["default", "", "a/b", "a.b", "x" * 65])
def test_name_that_no_stub_may_have_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a stub"):
        packaged(script(name=name))


@pytest.mark.parametrize(
    ("file", "name"),
    [("VertxProtoStub.js", "VertxProtoStub"), ("slack.com.ps.js", "slack"), ("default.ps.js", "catalogue-default")],
)
def test_stub_is_called_as_its_file_or_as_of_a_catalogue(file: str, name: str) -> None:
    assert name_of(file) == name
    packaged(script(name=name))


@pytest.mark.parametrize("version", ["", "1 0", "1/0", "1" * 33])
def test_version_that_no_stub_may_have_is_refused(version: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a version"):
        packaged(script(version=version))


def test_script_too_large_for_a_module_is_refused() -> None:
    with pytest.raises(PeerError) as caught:
        packaged(script(b"//" + b"x" * (1 << 20)))
    assert caught.value.code is Code.MODULE_LIMITS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"export default class {}", True),
        (b"var a=1;export{a as default};", True),
        (b"/* c */\nimport x from 'y';", True),
        (b"class A {}\n  export function activate() {}", True),
        (b"exports.default = 1; // export default", False),
        (b"System.register([],function(e){return{execute:function(){}}})", False),
        (b"module.exports = require('x');", False),
    ],
)
def test_module_is_known_by_its_statements(text: bytes, expected: bool) -> None:
    assert is_module(text) is expected


def test_catalogue_entries_give_script_and_configuration(tmp_path: Path) -> None:
    text = b"export default () => ({});"
    source = {"sourceCode": base64.b64encode(text).decode(), "encoding": "base64", "sourceCodeClassname": "X"}
    entries = [
        source,
        {"sourceCode": text.decode(), "encoding": "UTF-8"},
        {"objectName": "X", "configuration": {"url": "wss://b.example/ws"}, "sourcePackage": source},
        {"objectName": "X", "configuration": '{"url": "wss://b.example/ws"}', "sourcePackage": source},
    ]
    found = []
    for entry in entries:
        (tmp_path / "entry.json").write_text(json.dumps(entry))
        published = read_published(tmp_path / "entry.json")
        assert published.text == text
        found.append(published.configuration)
    assert found == [{}, {}, *[{"url": "wss://b.example/ws"}] * 2]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "no descriptor or source package"),
        ("{", "no descriptor or source package"),
        ('{"objectName": "X"}', "there is no `sourceCode` in it; fetch what `sourcePackageURL` names"),
        ('{"sourceCode": "***", "encoding": "base64"}', "`sourceCode` is no Base64"),
        ('{"sourceCode": "x", "configuration": "{"}', "no descriptor or source package"),
    ],
)
def test_file_that_is_no_entry_with_a_script_is_refused(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "entry.json"
    path.write_text(content)
    with pytest.raises(SettingsError) as caught:
        read_published(path)
    assert str(path) in str(caught.value)
    assert why in str(caught.value)


def test_configuration_and_endpoints_of_the_wrong_form_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "configuration.json"
    path.write_text("[1]")
    with pytest.raises(SettingsError, match="no JSON object"):
        read_json_object(path)
    for option in ("mn", "=wss://x", "mn="):
        with pytest.raises(SettingsError, match="expected NAME=URL"):
            _by_url([option])
    assert _by_url(["mn=wss://x/?a=b"]) == {"wss://x/?a=b": "mn"}


@pytest.mark.parametrize(
    "adapter", [5, {"msg_node": "b.example"}, {"msg_node": 'domain://x"y'}, {"subscriptions": "some"}, {"nodes": 1}]
)
def test_wrong_settings_of_the_adapter_do_not_fit_the_schema_of_the_package(adapter: object) -> None:
    schema = inspect_module(packaged(script())).configuration
    check_configuration(schema, {"adapter": {"subscriptions": "old"}, "anything": 1})
    with pytest.raises(PeerError):
        check_configuration(schema, {"adapter": adapter})
