"""A hyperty and a room as runtimes register them, and every form of asking for them."""

from __future__ import annotations

DOMAIN = "alpha.example"
HYPERTY = f"hyperty://{DOMAIN}/h-ana"
ROOM = f"comm://{DOMAIN}/room-51"
USER = f"user://{DOMAIN}/ana"
RUNTIME = f"runtime://{DOMAIN}/rt-ana"


def hyperty(url: str = HYPERTY, **members: object) -> dict[str, object]:
    return {
        "url": url,
        "user": USER,
        "guid": "user-guid://kS3Qd0x",
        "descriptor": "hyperty-catalogue://catalogue.alpha.example/.well-known/hyperty/Chat",
        "runtime": RUNTIME,
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 3600,
        "p2pHandler": f"{RUNTIME}/p2phandler/6f1",
        **members,
    }


def room(url: str = ROOM, **members: object) -> dict[str, object]:
    return {
        "url": url,
        "name": "Room 51",
        "schema": "hyperty-catalogue://catalogue.alpha.example/.well-known/dataschema/Communication",
        "reporter": HYPERTY,
        "runtime": RUNTIME,
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        **members,
    }


QUERIES: list[tuple[str, dict[str, object], list[str]]] = [
    (f"/hyperty/user/{USER}", {}, [HYPERTY]),
    (USER, {}, [HYPERTY]),
    ("user://ALPHA.example/ana", {}, [HYPERTY]),
    ("user-guid://kS3Qd0x", {}, [HYPERTY]),
    ("/hyperty/guid/kS3Qd0x", {}, [HYPERTY]),
    ("/hyperty/idp-identifier/ana@alpha.example", {}, [HYPERTY]),
    ("/hyperty/email/ana@alpha.example", {}, [HYPERTY]),
    ("/hyperty/idp-identifier/ana", {}, [HYPERTY]),
    ("/hyperty/idp-identifier/ana@alpha.example.evil", {}, []),
    (f"/comm/user/{USER}", {}, [ROOM]),
    (f"/dataObject/user/{USER}", {}, [ROOM]),
    (f"/ctxt/user/{USER}", {}, []),
    ("Room 51", {}, [ROOM]),
    ("/dataObject/name/Room 51", {}, [ROOM]),
    ("room 51", {}, []),
    ("anything", {"criteria": {"reporter": HYPERTY}}, [ROOM]),
    ("", {"criteria": {"reporter": HYPERTY}}, [ROOM]),
    (f"/dataObject/reporter/{HYPERTY}", {}, [ROOM]),
    (USER, {"criteria": {}}, [HYPERTY]),
    (USER, {"criteria": {"resources": ["chat"], "dataSchemes": ["comm"]}}, [HYPERTY]),
    (USER, {"criteria": {"resources": ["chat", "audio"]}}, []),
    (USER, {"criteria": {"dataSchemes": ["ctxt"]}}, []),
    (USER, {"criteria": {"scheme": "hyperty", "domain": DOMAIN}}, [HYPERTY]),
    (USER, {"criteria": {"scheme": "comm"}}, [ROOM]),
    (USER, {"criteria": {"filter": "idp-identifier"}}, [HYPERTY]),
    ("ana@alpha.example", {"criteria": {"filter": "idp-identifier", "scheme": "hyperty"}}, [HYPERTY]),
]
"""Resource, further members of the body, and the addresses that are found."""
