"""Why a domain is not reached, in words for operators: once per change, with what to do about it.

Four sides can be the reason: our line to them, what they publish, what our operator wants of their stub, or their
refusal of us. The last comes through their
stub, so it is foreign text: it is cleaned, cut, quoted, and leads to no advice that would lower a guard of ours.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum

from protofly.plain_words import without_types

TEXT_CHARS = 256
REMEMBERED_SECONDS = 600.0
"""How long a trouble counts that nobody has met again since: links that are not needed are not tried."""
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_CLOCKS = "compare both clocks; ours says {now}"


class Side(Enum):
    """The side on which the reason is."""

    LINE = "line"
    DOCUMENTS = "documents"
    REFUSAL = "refusal"
    STUB = "stub"
    OURS = "ours"


_ADVICE = {
    Side.LINE: {
        "dns-failed": "are the name servers right (`discovery.nameservers`), and theirs up?",
        "no-such-domain": "check the name, and ask for their records",
        "service-declined": "they: their records say that this domain has no node (target `.`); ask for the right name",
        "name-invalid": "write the name as in DNS: lower case, with a dot, other letters as `xn--`",
        "own-domain": "`trapezoid check --online` says what other domains find of us",
        "address-refused": "their address is not public; for a network of your own, list its range in "
        "`allow_addresses` of this peer",
        "port-refused": "they: publish port 443, or one above 1023",
        "connect-failed": "is their node running, and does a firewall let you out?",
        "fetch-timeout": "is their node overloaded, or the network slow?",
        "tls-failed": "they: a certificate of a known authority for that name; in a laboratory, list yours in "
        "`discovery.ca_file`. If it is expired or not yet valid, " + _CLOCKS,
        "redirect-refused": "they: serve `/.well-known/rethink-mn` on the domain itself",
        "http-status": "they: is the node's site reachable under that path?",
    },
    Side.DOCUMENTS: {
        "fingerprint-mismatch": "ask them for their fingerprint by another way; never copy it from here",
        "broken-trust": "their new root is not signed by the old keys: ask them by another way, then "
        "`trapezoid peer retrust`",
        "permissions-held": "look at what their update wants, then `trapezoid peer approve`",
        "digest-not-approved": "look at the new code, then `trapezoid peer approve`, or for `unsigned_stub` change "
        "`sha256` in its [[peer]] entry",
        "document-expired": "they: renew with `trapezoid publish`. If it ended a short time ago, " + _CLOCKS,
        "issued-in-future": _CLOCKS,
        "clock-wrong": "set our clock, which says {now}",
        "tls-failed": "see `discovery.ca_file`",
        "revoked": "they took this module back. They: publish another one with `trapezoid publish`",
        "stub-rolled-back": "they: publish a version that passes `trapezoid stub check`; "
        "`trapezoid node stub approve` tries this one again",
        "digest-mismatch": "they: publish again; does a cache or proxy in front of their site serve old files?",
        "mix-and-match": "they: publish all of it again; a cache in front of their site may serve old files",
        "too-few-signatures": "they: sign with keys that their root names (`trapezoid publish`); it may be an attack",
        "rollback": "they: did they restore a backup? Their next `trapezoid publish` repairs it; it may be an attack",
        "wrong-domain": "they: publish documents of their own domain; or their stub is not for ours (`for_domains`)",
        **dict.fromkeys(
            ("abi-unsupported", "module-malformed", "module-imports", "module-exports", "module-limits"),
            "they: run `trapezoid stub check`, and publish a module that passes",
        ),
    },
    Side.REFUSAL: {
        "auth-policy": "they do not admit our domain: ask them for a [[peer]] entry that names us",
        "domain-blocked": "they do not admit our domain: ask them for a [[peer]] entry that names us",
        "auth-unproved": "they could not verify who we are: either they have no [[peer]] entry for our domain, and "
        "then look nothing of it up, or they do not find what we publish. Ask them for the entry; if there is one, "
        "run `trapezoid check --online`",
        "auth-stale": _CLOCKS,
        "issued-in-future": _CLOCKS,
        "document-expired": "what we publish has expired for them: `trapezoid publish`; and " + _CLOCKS,
        "auth-key-unknown": "they do not find the key of this node in what we publish: `trapezoid publish`, and wait "
        "an hour for their cache",
        "auth-key-revoked": "our own documents revoke the key of this node: `trapezoid keys add node`",
        "auth-binding": "something between us ends TLS: the certificate that we see is not the one that their node has",
        "auth-endpoint": "they do not know the endpoint that they publish: they compare `publish.endpoint_url` with "
        "the address in front of their node",
        "auth-audience": "names do not fit: compare `node.domain` here with the peer's name there",
        "fingerprint-mismatch": "they hold another fingerprint of ours: compare it with `trapezoid keys fingerprint` "
        "by telephone",
        "broken-trust": "our root is not signed by keys that they knew: they need `trapezoid peer retrust` with "
        "our fingerprint",
        "tls-failed": "they do not accept the certificate of our site: is it for our domain, and of an authority "
        "that they know?",
        "connect-failed": "their node cannot reach our site: is it reachable from outside, at its address in DNS?",
        "dns-failed": "their node cannot look our domain up: check our DNS records from outside",
        "no-such-domain": "their node does not find our domain in DNS",
        "address-refused": "our site has an address that is not public for them",
        "http-status": "our site does not answer them 200: look at what stands in front of it",
        "fetch-timeout": "our site, or their handshake, is too slow",
        "spoofed-source": "we sent messages in names that they do not take for ours: compare aliases",
        "auth-limit": "they have too many links under proof, or of ours; it is tried again",
        "overload": "they have too much to do; it is tried again",
        "protocol-error": "their node and the stub that they publish do not fit: ask them which version runs",
    },
    Side.STUB: {},
    Side.OURS: {
        "stub-forbidden": "`trapezoid node restrictions` says who has forbidden it, `trapezoid node stub allow` lifts "
        "that",
        "digest-not-approved": "find out who changed it; `trapezoid peer approve` accepts a file, and `sha256` in its "
        "[[peer]] entry an `unsigned_stub`",
        "stub-configuration": "change `configuration` in its [[peer]] entry",
        "stub-needs-more": "its [[peer]] entry bounds it by `grant`, `[sandbox]` bounds all stubs",
    },
}
_GENERAL = {
    Side.LINE: "see docs/troubleshooting.md",
    Side.DOCUMENTS: "see docs/troubleshooting.md",
    Side.REFUSAL: "look for the reason in *their* log",
    Side.OURS: "see docs/troubleshooting.md",
    Side.STUB: "they: run `trapezoid stub check`, and publish one that passes",
}
_BEGINNINGS = {
    Side.LINE: "no line to {domain}: {text}",
    Side.DOCUMENTS: "what {domain} publishes is refused: {text}",
    Side.REFUSAL: '{domain} refuses our link: its word is "{text}"',
    Side.OURS: "our side does not run the stub of {domain}: {text}",
    Side.STUB: "the stub of {domain} fails: {text}",
}
_ORDINARY = frozenset({"", "drained", "draining", "bye", "closed", "timeout"})
_NO_CAUSE = frozenset({"discovery-backoff"})


class ContactTrouble:
    """The trouble that keeps one domain from being reached."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._side: Side | None = None
        self._words: frozenset[str] | str = ""
        self._text = ""
        self._met_at = 0.0

    def met(self, side: Side, text: str, now: float) -> str:
        """Something went wrong; returns the line for the log if it is another trouble than before, else "".

        Args:
            side: Where the reason is.
            text: What was said, by any side.
            now: Seconds since the Unix epoch.
        """
        text = cleaned(without_types(text))
        if side is Side.REFUSAL:
            if text.partition(" ")[0] in _ORDINARY:
                return ""
            if self._side is Side.LINE and _known(Side.LINE, text):  # the stub repeats what we reported about its line
                return ""
        words = _known(side, text) - _NO_CAUSE or _without_numbers(text)
        is_new = (side, words) != (self._side, self._words)
        self._side, self._words, self._met_at = side, words, now
        self._text = f"{_BEGINNINGS[side].format(domain=self._domain, text=text)}; {advice(side, text, now)}"
        return self._text if is_new else ""

    @property
    def is_on_the_way(self) -> bool:
        """True if the domain is not reached at all: nothing is said against what it publishes, nor against its stub."""
        return self._side is Side.LINE

    def over(self) -> None:
        """The domain is reached."""
        self._side, self._words, self._text = None, "", ""

    def text(self, now: float) -> str:
        """The trouble in one line, "" when there is none; `now` as in `met`."""
        return self._text if now - self._met_at < REMEMBERED_SECONDS else ""


def advice(side: Side, text: str, now: float) -> str:
    """Return advice for operators, by the first known code word in `text`, else a general one.

    The advice never contains parts of `text`. `now` is in seconds since the Unix epoch.
    """
    known = known_word(side, text)
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return (_ADVICE[side][known] if known else _GENERAL[side]).format(now=stamp)


def known_word(side: Side, text: str) -> str:
    """The code word in a text by which `advice` goes, "" without one."""
    return min(_known(side, text), default="")


def cleaned(text: str) -> str:
    """Foreign text without what moves a cursor, hides or reorders; cut, and without quotation marks of its own."""
    return "".join(char if char.isprintable() and char != '"' else "." for char in text[:TEXT_CHARS]).strip()


def _known(side: Side, text: str) -> frozenset[str]:
    """Code words in a text that we have advice for."""
    return frozenset(_WORD.findall(text)) & _ADVICE[side].keys()


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)
