"""A QoS broker with the REST interface of its description: numbers as text, refusals as text, silence where it breaks.

It shares no code with ours. Source: message specification, section 14.
"""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

from tests.support.rest_server import Asked, Said

KINDS = ("audio", "video", "data")


def _json(document: object) -> Said:
    return Said(200, json.dumps(document).encode())


def _text(status: int, text: str) -> Said:
    return Said(status, text.encode(), "text/html; charset=utf-8")


class QosBrokerPeer:
    """Providers with quotas, TURN servers, clients with passwords."""

    def __init__(self, *, knows_put: bool = False) -> None:
        self.quotas: dict[str, dict[str, int]] = {"prov-alpha": {"audio": 1000, "video": 1000, "data": 0}}
        self.usage: dict[str, dict[str, int]] = {"prov-alpha": dict.fromkeys(KINDS, 0)}
        self.servers = {"prov-alpha": "192.0.2.10:3478"}
        self.passwords: dict[str, str] = {}
        self._knows_put = knows_put

    def __call__(self, asked: Asked) -> Said:
        query = asked.query
        match asked.method, asked.parts:
            case "GET", ["getAppropriateTurn"]:
                server = self.servers.get(query["cspId"])
                if server is None:
                    return _text(404, "No appropriate TURN server")
                client = f"c-{query['clientName']}"
                self.passwords.setdefault(client, f"secret of {client}")
                return _json([server, client])
            case "GET", ["getCredentials"]:
                client = query["clientId"]
                known = client in self.passwords
                return _json({"clientId": client, "password": self.passwords[client]}) if known else _text(404, "No")
            case "GET", ["getCspConso"]:
                usage = self.usage.get(query["cspkey"])
                return _text(404, "No") if usage is None else _json({kind: str(usage[kind]) for kind in KINDS})
            case "GET", ["getAllCspInfo"]:
                return _json(
                    [
                        {"csp": key, **{f"{kind}Quota": str(quotas[kind]) for kind in KINDS}}
                        for key, quotas in self.quotas.items()
                    ]
                )
            case "POST", ["provRequest"]:
                form = dict(parse_qsl(asked.body.decode()))
                self._set(form["servicename"], [form["audio"], form["video"], form["qdata"]])
                return Said(302, b"", "", headers=(("Location", "/dashboard"),))
            case "DELETE", ["deleteCSP"]:
                return _text(200, "ok") if self.quotas.pop(query["cspkey"], None) else _text(404, "No")
            case ("PUT" | "GET") as method, ["changeQuotas"] if (method == "PUT") == self._knows_put:
                if query["cspKey"] not in self.quotas:
                    return _text(404, "No")
                self._set(query["cspKey"], [query["audioQuota"], query["videoQuota"], query["dataQuota"]])
                return _text(200, "ok")
            case _:
                return _text(404, "Cannot do that")

    def _set(self, key: str, quotas: list[str]) -> None:
        self.quotas[key] = {kind: int(text) for kind, text in zip(KINDS, quotas, strict=True)}
        self.usage.setdefault(key, dict.fromkeys(KINDS, 0))
