"""Stubs that the operator chose: pinned at their first use, refused when they change, given the settings they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalogue_client.core.operator_stub import ModuleStatement, make_operator_stub
from federation.core.stub_status import StepTimes
from federation.stubs.chosen_stubs import ChosenStubs, StubChoice
from msg_node.kernel.data_schemas import check_configuration
from protofly.documents import TrustLevel
from protofly.errors import Code, PeerError, SettingsError
from stubs_cache.stub_pins import StubPins
from tests.examples_stubs.guest import STUBS
from tests.federation.test_stub_provider import Rig
from tests.support.guests import custom_section
from tests.support.repository import MODULE, SECRET, World

VERTX = STUBS / "vertx_peer" / "vertx_peer.wasm"


class Chosen:
    """One chosen stub over a folder of pins."""

    def __init__(self, folder: Path, **members: object) -> None:
        self.file = folder / "stub.wasm"
        self.file.write_bytes(VERTX.read_bytes())
        choice = StubChoice(domain="p.example", file=self.file, endpoint="wss://p.example/ws", **members)  # type: ignore[arg-type]
        self.choice = choice
        self.pins = StubPins(folder / "pins", secret=SECRET)
        self.stubs = ChosenStubs([choice], self.pins, check=check_configuration)


async def test_chosen_stub_is_of_level_operator_has_one_endpoint_and_no_way_to_prove_anything(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path)
    stub = await chosen.stubs.load("p.example")
    assert (stub.name, stub.domain, stub.level) == ("vertx_peer", "p.example", TrustLevel.OPERATOR)
    assert {name: one.url for name, one in stub.endpoints.items()} == {"mn": "wss://p.example/ws"}
    assert (stub.serial, stub.manifest.serial) == (1, 1)
    assert not stub.manifest.permissions.auth
    assert not stub.manifest.interworking


def test_a_stub_of_the_operator_asks_for_no_tokens_unless_that_is_said() -> None:
    said = ModuleStatement(name="s", version="1")
    assert not make_operator_stub("p.example", MODULE, said).manifest.permissions.auth
    assert make_operator_stub("p.example", MODULE, said, auth=True).manifest.permissions.auth


@pytest.mark.parametrize(
    ("module", "code"),
    [(b"\0asm\x0d\0\1\0", Code.MODULE_MALFORMED), (b"", Code.MODULE_MALFORMED)],
    ids=["component", "empty"],
)
def test_what_is_no_core_module_is_no_stub_of_the_operator(module: bytes, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        make_operator_stub("p.example", module, ModuleStatement(name="s", version="1"))


async def test_digest_is_pinned_at_first_use_and_another_module_refused_until_it_is_approved(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path)
    first = await chosen.stubs.load("p.example")
    assert chosen.pins.read("p.example") == first.module_sha256
    chosen.file.write_bytes(VERTX.read_bytes() + custom_section("x", b"1"))
    for _ in range(2):
        with pytest.raises(PeerError, check=lambda error: error.code is Code.DIGEST_NOT_APPROVED):
            await chosen.stubs.load("p.example")
    chosen.pins.forget("p.example")
    second = await chosen.stubs.load("p.example")
    assert second.module_sha256 != first.module_sha256


def test_settings_that_are_taken_over_name_the_domains_they_change(tmp_path: Path) -> None:
    def choice(domain: str, **configuration: object) -> StubChoice:
        return StubChoice(domain=domain, configuration=configuration)

    pins = StubPins(tmp_path / "pins", secret=SECRET)
    chosen = ChosenStubs([choice("b.example", room=1), choice("c.example")], pins, check=lambda *_: None)
    assert chosen.choose([choice("b.example", room=1)]) == frozenset()
    assert chosen.choose([choice("b.example", room=2), choice("d.example", room=1)]) == {"b.example", "d.example"}
    assert chosen.choose([]) == {"b.example", "d.example"}


async def test_pin_that_somebody_else_changed_is_not_believed(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path)
    stub = await chosen.stubs.load("p.example")
    pin = tmp_path / "pins" / "p.example"
    pin.write_text(pin.read_text().replace(stub.module_sha256[:8], "00000000"))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.CACHE_TAMPERED):
        await chosen.stubs.load("p.example")


async def test_pin_of_one_domain_does_not_serve_for_another(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path)
    await chosen.stubs.load("p.example")
    pin = tmp_path / "pins" / "p.example"
    pin.rename(pin.with_name("q.example"))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.CACHE_TAMPERED):
        chosen.pins.read("q.example")


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"\0asm\1\0\0\0", Code.ABI_UNSUPPORTED), (b"no module", Code.MODULE_MALFORMED), (b"", Code.MODULE_MALFORMED)],
)
async def test_file_that_is_no_stub_is_refused_and_not_pinned(tmp_path: Path, content: bytes, code: Code) -> None:
    chosen = Chosen(tmp_path)
    chosen.file.write_bytes(content)
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        await chosen.stubs.load("p.example")
    assert chosen.pins.read("p.example") == ""


async def test_missing_file_is_a_matter_of_the_settings(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path)
    chosen.file.unlink()
    with pytest.raises(SettingsError):
        await chosen.stubs.load("p.example")


@pytest.mark.parametrize(
    ("configuration", "is_good"),
    [
        ({}, True),
        ({"runtime": "runtime://p.example/gateway"}, True),
        ({"runtime": 7}, False),
        ({"runtime": 'runtime://p.example/"x'}, False),
        ({"rnutime": "runtime://p.example/gateway"}, False),
    ],
)
async def test_configuration_has_to_fit_the_schema_that_the_stub_states(
    tmp_path: Path, configuration: dict[str, object], is_good: bool
) -> None:
    chosen = Chosen(tmp_path, configuration=configuration)
    stub = await chosen.stubs.load("p.example")
    if is_good:
        assert chosen.stubs.terms(stub).configuration == configuration
    else:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.STUB_CONFIGURATION):
            chosen.stubs.terms(stub)


async def test_chosen_stub_wins_over_what_the_domain_publishes_and_nobody_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    rig = Rig(tmp_path, world)
    rig.choices = [StubChoice(domain="b.example", file=VERTX, endpoint="wss://b.example/ws")]
    rig.start()
    package = await rig.provider.package("b.example", StepTimes())
    assert (package.stub.name, package.stub.level) == ("vertx_peer", TrustLevel.OPERATOR)
    assert rig.requests == []
    assert rig.names.asked == []
    world.close()


async def test_configuration_reaches_a_published_stub_as_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    rig = Rig(tmp_path, world)
    rig.choices = [StubChoice(domain="b.example", configuration={"colour": "red"})]
    rig.start()
    package = await rig.provider.package("b.example", StepTimes())
    assert package.stub.domain == "b.example"
    assert package.stub.level is TrustLevel.WEB
    assert package.terms.configuration == {"colour": "red"}
    world.close()
