"""`trapezoid policy`: test policies before they are deployed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from collections.abc import Collection

    from policy.core.gate import Gate
    from policy.core.model import Hook
    from protofly.message import Message

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_CLASS = "class="
CLASS_OPTION = "class=WORD: anonymous, proved, user, guest, operator"

app = typer.Typer(help="Test and sign policies.", no_args_is_help=True)


@app.callback()
def policy() -> None:
    """Test and sign policies."""


@app.command("test")
def try_policies(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Policy files. Default: what is in force with --config.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration file, for peers and policy files.")
    ] = None,
    message: Annotated[str, typer.Option(help="Message to judge: JSON text, @FILE, or - for standard input.")] = "",
    hook: Annotated[str, typer.Option(help="Gate that judges: peer, out, in or local.")] = "out",
    role: Annotated[
        list[str] | None, typer.Option(help=f"Role of the sender's session, or {CLASS_OPTION}. Repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the tests in policy files; with --message, also explain how a gate decides.

    Exits with 0 if permitted or without a message, 1 if denied, 2 if files or message are invalid.
    """
    with errors_reported(as_json=json):
        gate = _load(files or [], config)
        if not message:
            loaded = gate.policies
            print_facts({"revision": loaded.revision, "sets": len(loaded.sets), "tests": "passed"}, as_json=json)
            return
        import time

        from msg_node.admin.evaluation import explained, facts_at
        from policy.core.session_class import asked_about

        roles, class_ = session_of(role or ())
        facts = facts_at(gate, read_message(message), _hook(hook), asked_about(roles, class_), now=time.time())
        explanation = gate.explain(facts)
        print_facts(explained(explanation), as_json=json)
    raise typer.Exit(0 if explanation.verdict.permitted else FOUND_WANTING)


@app.command()
def sign(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Policy files of the bundle, in order.")],
    keys: Annotated[Path, typer.Option("--keys", metavar="DIR", help="Folder with the key of `keys policy`.")],
    domain: Annotated[str, typer.Option("--domain", help="Domain whose nodes may use the bundle.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the signature goes, a .sig file.")],
    json: Json = False,
) -> None:
    """Sign a bundle of policy files, for `node policy add`. The files stay as they are."""
    with errors_reported(as_json=json):
        from policy.core.signed_bundle import sign_bundle
        from policy.files import SIGNATURE_SUFFIX, digest_of_files, read_bundle
        from protofly.address import valid_domain
        from protofly.errors import SettingsError
        from stubkit.keys import load_keys

        if output.suffix != SIGNATURE_SUFFIX:
            raise SettingsError(f"{output}: the name of a signature ends in {SIGNATURE_SUFFIX}")
        ring = load_keys(keys).policy
        if not ring:
            raise SettingsError(f"{keys}: no key of the role policy; make one with `trapezoid keys policy`")
        digest = digest_of_files(read_bundle(files))
        try:
            output.write_bytes(sign_bundle(valid_domain(domain), digest, ring))
        except OSError as exc:
            raise SettingsError(f"{output}: {exc.strerror}") from exc
        public = [key.record().pub for key in ring]
        print_facts({"bundle": digest, "domain": domain, "keys": public, "file": str(output)}, as_json=json)


def _load(files: list[Path], config: Path | None) -> Gate:
    """Build the gates of the settings, with the policies of `files` if there are any. Raises SettingsError."""
    from policy.core.gate import Gate
    from policy.core.model import Mode
    from policy.files import read_policies
    from protofly.errors import SettingsError

    if config is None:
        if not files:
            raise SettingsError("give policy files or --config")
        return Gate(read_policies(files))
    from msg_node.settings.load import load_settings
    from msg_node.storage.policy_store import PolicyStore
    from msg_node.wiring.meaning import build_gate

    settings = load_settings(config)
    if not files:
        return build_gate(settings)
    groups = PolicyStore(settings.node.data_dir).groups()
    return build_gate(settings, read_policies(files, mode=Mode(settings.policy.mode), groups=groups))


def _hook(text: str) -> Hook:
    from policy.core.model import HOOKS
    from protofly.errors import SettingsError

    for hook in HOOKS:
        if hook == text:
            return hook
    raise SettingsError(f"--hook {text}: expected one of {', '.join(HOOKS)}")


def session_of(words: Collection[str]) -> tuple[frozenset[str], str]:
    """Split what an operator says of a session into its roles and its class, "" without one. Raises SettingsError."""
    from policy.core.session_class import SESSION_CLASSES
    from protofly.errors import SettingsError

    roles = {word for word in words if not word.startswith(_CLASS)}
    classes = {word.removeprefix(_CLASS) for word in words if word.startswith(_CLASS)}
    if len(classes) > 1 or not classes <= set(SESSION_CLASSES):
        raise SettingsError(f"class={', '.join(sorted(classes))}: expected one of {', '.join(SESSION_CLASSES)}")
    return frozenset(roles), "".join(classes)


def read_message(text: str) -> Message:
    """Read a message: JSON text, `@FILE`, or `-` for standard input. Raises HostError."""
    import sys

    from protofly.codec import decode
    from protofly.errors import SettingsError

    try:
        if text == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    except OSError as exc:
        raise SettingsError(f"{text[1:]}: {exc.strerror}") from exc
    return decode(raw)[0]
