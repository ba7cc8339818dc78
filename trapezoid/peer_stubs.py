"""Stubs that the operator chose for foreign domains: the commands and checks that show, verify and pin them."""

from __future__ import annotations

from federation.stubs.chosen_stubs import StubChoice, read_choice
from msg_node.kernel.data_schemas import check_configuration
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from msg_node.wiring.peer_stubs import stub_choice, stub_choices
from protofly.errors import Code, HostError, PeerError, SettingsError
from stubs_cache.store import load_secret
from stubs_cache.stub_pins import StubPins
from trapezoid.admin_client import ask_if_running
from trapezoid.findings import Finding, Level, remark
from trapezoid.output import NOT_RECORDED

Row = dict[str, object]


def pins_of(settings: Settings) -> StubPins:
    """The pinned digests of a node. Raises SettingsError when its secret cannot be read."""
    data_dir = settings.node.data_dir
    return StubPins(data_dir / "pinned_stubs", secret=load_secret(data_dir / "secret"))


def pinned_rows(settings: Settings) -> list[Row]:
    """The pinned stubs, as rows of `peer list`. `held` names a module that waits for approval."""
    pins, rows = pins_of(settings), []
    choices = {one.domain: one for one in stub_choices(settings) if one.file is not None}
    for domain in pins.domains():
        try:
            pinned, level = pins.read(domain), "operator"
        except PeerError as exc:
            pinned, level = "", exc.code.word
        rows.append(_row(domain, level, pinned, _waiting(choices.get(domain), pinned)))
    return rows


def approve_choice(settings: Settings, domain: str) -> Row | None:
    """Pin the module that the settings choose for a domain now, by the node if it runs; None when they choose none.

    Raises:
        HostError: The module cannot be read or breaks the contract, or the pin cannot be written.
    """
    choice = next((one for one in stub_choices(settings) if one.domain == domain), None)
    if choice is not None and choice.script is not None:
        raise SettingsError(f"the [[peer]] entry of {domain} pins its stub: change `sha256` there")
    if choice is None or choice.file is None:
        return None
    stub = read_choice(choice)
    name = f"{stub.name} {stub.version}"
    row: Row = {"domain": domain, "stub": name, "sha256": stub.module_sha256, "approved": True}
    if not ask_if_running(settings.node.data_dir, "stub pin", {"domain": domain, "module": stub.module_sha256}):
        pins_of(settings).write(domain, stub.module_sha256)
        row["recorded"] = NOT_RECORDED
    return row


def check_choice(settings: Settings, peer: PeerSettings) -> str | Finding:
    """Check the stub that one entry chooses: module, settings and pin. Connects to nobody.

    Raises:
        HostError: The module cannot be read, breaks the contract, or does not take these settings.
    """
    choice = stub_choice(settings, peer)
    return _checked(settings, choice)


def check_connector(settings: Settings, service: str) -> str | Finding:
    """Check the module of a connector: kind, settings and pin. Connects to nobody.

    Raises:
        HostError: The module cannot be read, breaks the contract, is no connector, or does not take these settings.
    """
    name = f"{service}.{settings.node.domain}"
    return _checked(settings, next(one for one in stub_choices(settings) if one.domain == name))


def _checked(settings: Settings, choice: StubChoice) -> str | Finding:
    if choice.script is not None:
        text = f"{choice.script.url} to {choice.endpoint}: code that nobody signed, sha256 {choice.script.sha256}"
        return remark(Level.WARNING, "unsigned", text, action="see `trapezoid peer catalogue`")
    stub = read_choice(choice)
    if stub.manifest.configuration:
        try:
            check_configuration(stub.manifest.configuration, choice.configuration)
        except PeerError as exc:
            raise PeerError(Code.STUB_CONFIGURATION, exc.detail, domain=choice.domain) from exc
    is_known = (settings.node.data_dir / "secret").exists()
    pinned = pins_of(settings).read(choice.domain) if is_known else ""
    what = f"{stub.name} {stub.version} to {choice.endpoint}, sha256 {stub.module_sha256}"
    if pinned and pinned != stub.module_sha256:
        text = f"{what}, and {pinned} is pinned"
        action = f"compare, then `trapezoid peer approve {choice.domain} {stub.name}`"
        return remark(Level.WARNING, Code.DIGEST_NOT_APPROVED.word, text, action=action)
    if choice.endpoint.startswith(("ws:", "http:")):
        text = f"{what}: NO TLS, everybody on the way can read and change all messages"
        return remark(Level.WARNING, "insecure", text)
    return f"{what}{'' if pinned else ', pinned at its first use'}"


def _waiting(choice: StubChoice | None, pinned: str) -> str:
    """The name of a module that is not the pinned one, "" if there is none."""
    if choice is None:
        return ""
    try:
        stub = read_choice(choice)
    except HostError as exc:
        return exc.code.word
    return "" if stub.module_sha256 == pinned else stub.name


def _row(domain: str, level: str, sha256: str, held: str) -> Row:
    return {"domain": domain, "level": level, "root": 0, "serial": 0, "fingerprint": sha256, "held": held}
