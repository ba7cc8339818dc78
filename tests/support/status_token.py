"""The token that opens `/status` of the nodes under test: their sites have no TLS, so that nobody has it for free."""

from __future__ import annotations

import hashlib

STATUS_TOKEN = "a token of the tests"
STATUS_TOKEN_SHA256 = hashlib.sha256(STATUS_TOKEN.encode()).hexdigest()
AS_OPERATOR = {"Authorization": f"Bearer {STATUS_TOKEN}"}
