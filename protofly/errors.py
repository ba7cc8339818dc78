"""Every reason for which this project refuses something, and the exceptions that carry one.

One closed set, `Code`, is the vocabulary of the operator, the log and the peer alike: a refusal is named here once
and keeps its word everywhere. `status` is what `body.code` says on the wire, `word` is `body.reason`.

Exceptions say whom to blame first: the peer, the line, the guest, the operator, ourselves.

Source: message specification, section 4; trust and hosts, sections 2.7, 3.6 and 6.3.
"""

from __future__ import annotations

from enum import Enum

DESCRIPTIONS = {
    100: "Trying",
    183: "Session Progress",
    200: "OK",
    202: "Accepted",
    207: "Multi-Status",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    508: "Loop Detected",
}
"""Default `body.description` for each `body.code`. Source: message specification, section 4."""


class Code(Enum):
    """One reason for refusing: `(status, word)`, unique as a pair.

    Source: message specification, section 4 (message codes); trust and hosts, section 2.7 (authentication codes).
    """

    # Messages.
    BAD_HEADER = (400, "bad-header")
    BAD_BODY = (400, "bad-body")
    BROKEN_JSON = (400, "broken-json")
    TOO_DEEP = (400, "too-deep")
    NO_CREDENTIALS = (401, "no-credentials")
    BAD_TOKEN = (401, "bad-token")
    BAD_ASSERTION = (401, "bad-assertion")
    POLICY = (403, "policy")
    CONSENT = (403, "consent")
    NOT_OWNER = (403, "not-owner")
    SECOND_PERSON = (403, "second-person")
    DOMAIN_BLOCKED = (403, "domain-blocked")
    RUNTIME_BARRED = (403, "runtime-barred")
    TRANSIT = (403, "transit")
    INTERWORKING_OFF = (403, "interworking-off")
    SPOOFED_SOURCE = (403, "spoofed-source")
    NO_ROUTE = (404, "no-route")
    NO_SUCH_SERVICE = (404, "no-such-service")
    NOT_REGISTERED = (404, "not-registered")
    NO_SUCH_DOMAIN = (404, "no-such-domain")
    NO_SUCH_REQUEST = (404, "no-such-request")
    NO_SUCH_BUNDLE = (404, "no-such-bundle")
    BAD_TYPE = (405, "bad-type")
    TIMEOUT = (408, "timeout")
    TEMPORARILY_UNAVAILABLE = (408, "temporarily-unavailable")
    ADDRESS_TAKEN = (409, "address-taken")
    DUPLICATE = (409, "duplicate")
    ALREADY_FINAL = (409, "already-final")
    IN_USE = (409, "in-use")
    RECORD_OUTDATED = (409, "outdated")
    EXPIRED = (410, "expired")
    CANCELLED = (410, "cancelled")
    RECORD_REVOKED = (410, "revoked")
    RECORD_INACTIVE = (410, "inactive")
    TOO_LARGE = (413, "too-large")
    SCHEMA = (422, "schema")
    POLICY_INVALID = (422, "policy-invalid")
    POLICY_UNSIGNED = (422, "policy-unsigned")
    RATE = (429, "rate")
    QUOTA = (429, "quota")
    TOO_MANY_ATTEMPTS = (429, "too-many-attempts")
    INTERNAL = (500, "internal")
    FLOW_DIFFERS = (500, "flow-differs")
    STORAGE = (500, "storage")
    CONNECTOR_OFF = (501, "connector-off")
    CRITERIA_SYNTAX = (501, "criteria-syntax")
    BAD_REPLY = (502, "bad-reply")
    NOT_CONNECTED = (503, "not-connected")
    DRAINING = (503, "draining")
    OVERLOAD = (503, "overload")
    POLICY_UNAVAILABLE = (503, "policy-unavailable")
    STATE_UNAVAILABLE = (503, "state-unavailable")
    POOL_EMPTY = (503, "pool-empty")
    GATEWAY_TIMEOUT = (504, "timeout")
    DEPLOY_TIMEOUT = (504, "deploy-timeout")
    LINK_LOST = (502, "link-lost")
    LINK_ELSEWHERE = (503, "link-elsewhere")
    LOOP = (508, "loop")
    HOP_LIMIT = (508, "hop-limit")

    # Finding a domain.
    NAME_INVALID = (404, "name-invalid")
    OWN_DOMAIN = (404, "own-domain")
    DNS_FAILED = (504, "dns-failed")
    SERVICE_DECLINED = (404, "service-declined")
    ADDRESS_REFUSED = (502, "address-refused")
    PORT_REFUSED = (502, "port-refused")
    CONNECT_FAILED = (504, "connect-failed")
    TLS_FAILED = (502, "tls-failed")
    REDIRECT_REFUSED = (502, "redirect-refused")
    HTTP_STATUS = (502, "http-status")
    DOCUMENT_TOO_LARGE = (502, "document-too-large")
    FETCH_TIMEOUT = (504, "fetch-timeout")
    DISCOVERY_BACKOFF = (503, "discovery-backoff")

    # Signed documents.
    ENVELOPE_MALFORMED = (502, "envelope-malformed")
    PAYLOAD_TYPE = (502, "payload-type")
    TOO_FEW_SIGNATURES = (502, "too-few-signatures")
    DOCUMENT_MALFORMED = (502, "document-malformed")
    WRONG_DOMAIN = (502, "wrong-domain")
    ROLLBACK = (502, "rollback")
    FAST_FORWARD = (502, "fast-forward")
    DOCUMENT_EXPIRED = (502, "document-expired")
    ISSUED_IN_FUTURE = (502, "issued-in-future")
    VALIDITY_TOO_LONG = (502, "validity-too-long")
    MIX_AND_MATCH = (502, "mix-and-match")
    ROOT_CHAIN = (502, "root-chain")
    FINGERPRINT_MISMATCH = (502, "fingerprint-mismatch")
    BROKEN_TRUST = (502, "broken-trust")
    CLOCK_WRONG = (502, "clock-wrong")
    STUB_KIND = (502, "stub-kind")
    UNSIGNED_REFUSED = (502, "unsigned-refused")

    # Packages and modules.
    DIGEST_MISMATCH = (502, "digest-mismatch")
    REVOKED = (502, "revoked")
    STUB_FORBIDDEN = (502, "stub-forbidden")
    STUB_ROLLED_BACK = (502, "stub-rolled-back")
    ABI_UNSUPPORTED = (502, "abi-unsupported")
    PERMISSIONS_HELD = (502, "permissions-held")
    MODULE_MALFORMED = (502, "module-malformed")
    MODULE_IMPORTS = (502, "module-imports")
    MODULE_EXPORTS = (502, "module-exports")
    MODULE_LIMITS = (502, "module-limits")
    COMPILE_LIMITS = (502, "compile-limits")
    CACHE_TAMPERED = (502, "cache-tampered")

    # Recordings.
    RECORDING_KEY = (502, "recording-key")
    RECORDING_CHANGED = (502, "recording-changed")

    # The running stub.
    STUB_CONFIGURATION = (502, "stub-configuration")
    DIGEST_NOT_APPROVED = (502, "digest-not-approved")
    STUB_NEEDS_MORE = (502, "stub-needs-more")
    STUB_FAILED = (502, "stub-failed")
    STUB_REFUSED = (502, "stub-refused")
    STUB_TRAPPED = (502, "stub-trapped")
    STUB_OUT_OF_FUEL = (502, "stub-out-of-fuel")
    STUB_TIMEOUT = (502, "stub-timeout")
    STUB_OUTPUT = (502, "stub-output")
    STUB_DENIED = (502, "stub-denied")
    STUB_DIED = (502, "stub-died")
    STUB_THROTTLED = (503, "stub-throttled")
    QUARANTINED = (502, "quarantined")
    CIRCUIT_OPEN = (503, "circuit-open")

    # Proving who is at the other end.
    AUTH_MALFORMED = (401, "auth-malformed")
    AUTH_STALE = (401, "auth-stale")
    AUTH_AUDIENCE = (401, "auth-audience")
    AUTH_ENDPOINT = (401, "auth-endpoint")
    AUTH_BINDING = (401, "auth-binding")
    AUTH_NONCE = (401, "auth-nonce")
    AUTH_REPLAY = (401, "auth-replay")
    AUTH_KEY_UNKNOWN = (401, "auth-key-unknown")
    AUTH_KEY_REVOKED = (401, "auth-key-revoked")
    AUTH_SIGNATURE = (401, "auth-signature")
    AUTH_UNPROVED = (401, "auth-unproved")
    AUTH_POLICY = (403, "auth-policy")
    AUTH_LIMIT = (429, "auth-limit")

    # Frames and settings.
    PROTOCOL_ERROR = (400, "protocol-error")
    PROXY_HEADER = (400, "proxy-header")
    SETTINGS = (400, "settings")
    NEEDS_RESTART = (409, "needs-restart")

    # The data pipeline.
    LAKE = (500, "lake")
    NOT_INSTALLED = (501, "not-installed")

    @property
    def status(self) -> int:
        """HTTP-like number for `body.code`."""
        return self.value[0]

    @property
    def word(self) -> str:
        """Short stable word for `body.reason`, logs and metrics."""
        return self.value[1]

    @property
    def description(self) -> str:
        """Text for `body.description`."""
        return DESCRIPTIONS[self.value[0]]


class HostError(Exception):
    """Root of everything this project raises on purpose; `code` is what we answer with."""

    def __init__(self, code: Code, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code.word}: {detail}" if detail else code.word)


class PeerError(HostError):
    """A foreign party broke a rule. `domain` is the one to blame ("" while it is not known).

    `msg_id` is that of the record of what was refused, in hex; "" without one.
    """

    def __init__(self, code: Code, detail: str = "", *, domain: str = "", msg_id: str = "") -> None:
        super().__init__(code, detail)
        self.domain = domain
        self.msg_id = msg_id


class TransportError(HostError):
    """The line failed. `phase` is one of "resolve", "connect", "tls", "read", "write"."""

    def __init__(self, code: Code, detail: str = "", *, phase: str = "read") -> None:
        super().__init__(code, detail)
        self.phase = phase


class StubFaultError(HostError):
    """The guest trapped, overspent or answered nonsense. `fault` is the engine's word for it."""

    def __init__(self, code: Code, detail: str = "", *, domain: str = "", fault: str = "") -> None:
        super().__init__(code, detail)
        self.domain = domain
        self.fault = fault


class SettingsError(HostError):
    """The operator's settings or files cannot be used; `detail` says which line and what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.SETTINGS, detail)


class RestartNeededError(SettingsError):
    """The settings are right, but a node that runs cannot take them over; `detail` names them with the reasons."""

    def __init__(self, detail: str) -> None:
        HostError.__init__(self, Code.NEEDS_RESTART, detail)


class MisuseError(HostError):
    """Our own bug."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.INTERNAL, detail)
