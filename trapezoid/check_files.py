"""Checks of folders, addresses and certificates."""

from __future__ import annotations

import errno
import math
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from msg_node.admin.admin_token import read_token
from msg_node.kernel.expiry import judge
from msg_node.running import LOCK_NAME, running_node
from msg_node.settings.model import Settings
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.listeners import ListenSettings, SiteSettings
from msg_node.storage.certificates import CertificateFile, check_key_of, check_names, read_certificate
from msg_node.storage.file_checks import FileError, check_private_folder, check_state_file, check_writable_folder
from msg_node.storage.sealing import read_state_keys
from trapezoid.findings import Finding, Level, remark

_STATE_FILES = (
    "secret",
    "state.sqlite",
    "trust.sqlite",
    "tokens.sqlite",
    "guids.sqlite",
    "users.sqlite",
    "clients.sqlite",
    LOCK_NAME,
)


def check_data_dir(folder: Path) -> str | Finding:
    """Check that the node can write its state there, and others cannot. Raises FileError."""
    text = check_spool(folder)
    warning = check_private_folder(folder)
    for name in _STATE_FILES:
        check_state_file(folder / name)
    return remark(Level.WARNING, "folder-readable", warning, file=str(folder)) if warning else text


def check_spool(folder: Path) -> str:
    """Check that files can be written there. Raises FileError."""
    return f"{folder}{'' if check_writable_folder(folder) else ' (will be created)'}"


def check_state_keys(file: Path, data_dir: Path) -> str | Finding:
    """Check the keys that encrypt the state, and that they are not kept beside it. Raises FileError."""
    keys = read_state_keys(file)
    if file.resolve().is_relative_to(data_dir.resolve()):
        text = "lies in `node.data_dir`, beside what it encrypts: who copies the folder has both"
        return remark(Level.WARNING, "state-key-beside", text, file=str(file), action="move it elsewhere")
    return f"state encrypted with the key {keys.ids[0]}, of {len(keys.ids)}"


def check_recording_key(file: Path, data_dir: Path) -> str | Finding:
    """Check the key that encrypts recordings, and that it is not kept beside them. Raises FileError."""
    keys = read_state_keys(file)
    if file.resolve().is_relative_to(data_dir.resolve()):
        text = "lies in `node.data_dir`, beside the recordings: who copies the folder has both"
        return remark(Level.WARNING, "recording-key-beside", text, file=str(file), action="move it elsewhere")
    return f"operators may record, encrypted with the key {keys.ids[0]}"


def check_bind(settings: Settings, bound: ListenSettings | SiteSettings | AdminSettings) -> str:
    """Check that the address can be bound, or is bound by this very node. Raises FileError."""
    host, port = bound.host, bound.port
    sections = {"listen": settings.listen, "site": settings.site, "admin": settings.admin}
    for name, one in sections.items():
        if one is bound:
            break
        if port and one is not None and (host, port) == (one.host, one.port):
            raise FileError("port-in-use", f"{host} port {port}", f"is also that of [{name}]", "choose another port")
    text = f"{host}:{port}{'' if bound.certificate is not None else ', without TLS'}"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as exc:
        running = running_node(settings.node.data_dir)
        if exc.errno == errno.EADDRINUSE and running is not None and port in running.ports:
            return f"{text}, in use by this node (process {running.pid})"
        word = "port-in-use" if exc.errno == errno.EADDRINUSE else "address-unusable"
        action = "stop the program that listens there, or choose another port" if exc.errno == errno.EADDRINUSE else ""
        raise FileError(word, f"{host} port {port}", f"cannot be bound: {exc.strerror or exc}", action) from exc
    return text


def check_certificate(settings: Settings, bound: ListenSettings | SiteSettings | AdminSettings) -> str | Finding:
    """Check the certificate that is served there: key, validity, names and pins. Raises FileError."""
    assert bound.certificate is not None
    assert bound.key is not None
    found = check_own_certificate(bound.certificate, bound.key)
    if isinstance(bound, AdminSettings):
        return found
    certificate = read_certificate(bound.certificate)
    publish = settings.publish
    if bound is settings.listen:
        if publish is not None:
            host = urlsplit(publish.endpoint_url).hostname or ""
            check_names(certificate, [host], asked_by="nodes of other domains (publish.endpoint_url)")
            _check_pins(certificate, publish.endpoint_spki)
        return found
    if publish is not None:
        hosts = [settings.node.domain, urlsplit(settings.site_url).hostname or ""]
        check_names(certificate, hosts, asked_by="nodes of other domains (node.domain, site.public_url)")
        uncovered = [alias for alias in settings.node.aliases if not certificate.covers(alias)]
        if uncovered and not isinstance(found, Finding):
            text = f"does not cover the aliases {', '.join(uncovered)}"
            action = "use a certificate that includes them, or publish them at another site"
            return remark(Level.WARNING, "certificate-foreign", text, file=str(bound.certificate), action=action)
    return found


def check_token(file: Path) -> str:
    """Check the file with the token of the admin site. Raises FileError."""
    if not file.exists():
        return f"{file} (will be made)"
    read_token(file)
    return str(file)


def check_own_certificate(path: Path, key: Path) -> str | Finding:
    """Check that key and certificate match, the key is private, and both are valid now. Raises FileError."""
    certificate = read_certificate(path)
    check_key_of(path, key)
    now = time.time()
    one = judge(certificate.term(str(path)), now)
    if one.is_failing:
        raise FileError(one.code, path, one.text.removeprefix(f"{one.term.title} "), one.action)
    if one.is_warning:
        text = one.text.removeprefix(f"{one.term.title} ")
        return remark(Level.WARNING, one.code, text, file=str(path), action=one.action)
    if certificate.chain_ends_at - now <= 0:
        text = "an issuer certificate in its chain has expired"
        return remark(
            Level.WARNING, "chain-expired", text, file=str(path), action="replace it by the current chain of the issuer"
        )
    left = "" if math.isinf(one.left_seconds) else f", {one.days_left} days left"
    return f"certificate {path} until {time.strftime('%Y-%m-%d', time.gmtime(certificate.ends_at))}{left}"


def _check_pins(certificate: CertificateFile, pins: tuple[str, ...]) -> None:
    if pins and certificate.spki_sha256 not in pins:
        raise FileError(
            "certificate-not-pinned",
            certificate.path,
            f"has the key {certificate.spki_sha256}, which publish.endpoint_spki does not name",
            "other nodes will refuse it: add that pin, or use the pinned key",
        )
