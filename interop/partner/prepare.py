"""A folder for a partner and a node under test: keys, certificates, ports, and settings for a node of ours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from interop.domain_files import HOST, PeerEntry
from interop.domain_folders import DomainFolders, Preparation
from interop.free_ports import free_ports
from interop.lab.kept import check_empty
from interop.partner.cases import CASES
from interop.partner.terms import BARRED, TERMS_FILE, case_domain

DOMAIN: Final = "a.example"
_TERMS: Final = """# What a partner and the node under test have to know of each other. See docs/partner.md.

name_server_port = {names}      # UDP and TCP, on {host}: the node asks this name server and no other
site_port = {site}              # sites of all domains of the partner
link_port = {link}              # their link endpoints
authority = "authority"         # development-ca.pem: the node trusts it; certificates of {domain} are there

[node]                          # the node under test
domain = "{domain}"
runtimes = "wss://{host}:{listen}/ws"
link = "wss://mn.{domain}:{listen}/link"
site_port = {own_site}
command = {command}
data = "{domain}/data"          # emptied before `command`: the node must not know the partner
refresh_seconds = 61.0          # how long it keeps documents although a token is signed by a key that they do not name
"""


async def make_partner_folder(path: Path, on_prepared: Callable[[Preparation], None] = lambda _: None) -> Path:
    """Make the folder, which is empty or missing. Returns it, absolute.

    Raises:
        SettingsError: The folder holds something, or a command failed; what was made is removed then.
    """
    check_empty(path)
    try:
        folders = DomainFolders(path, [DOMAIN], on_prepared=on_prepared)
        await folders.make()
        names, site, link = free_ports(3)
        peers = [PeerEntry(domain=name) for name in partner_domains() if name != BARRED]
        folders.write_settings({DOMAIN: names}, {DOMAIN: peers})
        ports = folders.ports[DOMAIN]
        command = [sys.executable, "-m", "trapezoid", "serve", "--config", f"{DOMAIN}/node.toml"]
        terms = _TERMS.format(
            host=HOST,
            domain=DOMAIN,
            names=names,
            site=site,
            link=link,
            listen=ports.listen,
            own_site=ports.site,
            command="[" + ", ".join(f'"{word}"' for word in command) + "]",
        )
        (folders.path / TERMS_FILE).write_text(terms, encoding="utf-8")
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return folders.path


def partner_domains() -> list[str]:
    """All domains that the partner plays, each once, in the order of the cases."""
    return list(dict.fromkeys(case.domain or case_domain(case.id) for case in CASES))
