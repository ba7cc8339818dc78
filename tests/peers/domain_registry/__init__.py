"""A domain registry with the published REST interface, written from its description alone; it shares no code with ours.

Source: data formats, sections 5.1 to 5.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from tests.support.rest_server import Asked, Said

Record = dict[str, Any]
EXPIRES_MAX = 3600
HYPERTY_MEMBERS = ("descriptor", "expires", "resources", "dataSchemes", "runtime", "status")
OBJECT_MEMBERS = ("schema", "name", "reporter", "resources", "dataSchemes", "status", "expires", "runtime")


def _said(status: int, document: object) -> Said:
    return Said(status, json.dumps(document).encode())


def _message(status: int, text: str, **more: str) -> Said:
    return _said(status, {"message": text, **more})


NOT_FOUND = _message(404, "Not Found")
BAD = _message(400, "Bad Request")


class DomainRegistryPeer:
    """The registry of one domain; `clock` gives seconds since the Unix epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.hyperties: dict[str, Record] = {}
        self.objects: dict[str, Record] = {}
        self._users: dict[str, list[str]] = {}
        self._user_of_guid: dict[str, str] = {}
        self._updated: dict[str, None] = {}

    def __call__(self, asked: Asked) -> Said:  # noqa: C901 - the table of routes
        match asked.method, asked.parts:
            case "GET", ["live"]:
                return _said(200, {"status": "up"})
            case "GET", ["registry" | "hyperty", "updated"]:
                changed, self._updated = self._updated, {}
                self._sweep()
                changed |= self._updated
                self._updated = {}
                everything = {**self.hyperties, **self.objects}
                return _said(200, {url: everything[url] for url in changed})
            case "GET", ["hyperty", "user", user, *rest]:
                return self._list(self._of_user(user), rest, asked)
            case "GET", ["hyperty", "guid", guid]:
                return self._list(self._of_user(self._user_of_guid.get(guid, "")), [], asked)
            case "GET", ["hyperty", "email", name, *rest]:
                users = [user for user in self._users if user.rpartition("/")[2] == name]
                return self._list([one for user in users for one in self._of_user(user)], rest, asked)
            case "GET", ["hyperty", "url", url]:
                return self._single(self.hyperties.get(url))
            case "GET", ["hyperty", "dataobject", "url", url]:
                return self._single(self.objects.get(url))
            case "GET", ["hyperty", "dataobject", ("name" | "reporter") as member, text, *rest]:
                found = [one for one in self.objects.values() if one[member] == text]
                return self._list(found, rest, asked)
            case "PUT", ["hyperty", "user", user, url]:
                return self._create_hyperty(user, url, json.loads(asked.body or b"{}"))
            case "PUT", ["hyperty", "url", url]:
                return self._update(self.hyperties.get(url), json.loads(asked.body or b"{}"))
            case "PUT", ["hyperty", "dataobject", url]:
                return self._create_object(url, json.loads(asked.body or b"{}"))
            case "PUT", ["dataobject", "url", url]:
                return self._update(self.objects.get(url), json.loads(asked.body or b"{}"))
            case "DELETE", ["hyperty", "user", user, url]:
                return self._delete(user, url)
            case _:
                return NOT_FOUND

    # Reads.

    def _of_user(self, user: str) -> list[Record]:
        return [self.hyperties[url] for url in self._users.get(user, ())]

    def _single(self, record: Record | None) -> Said:
        if record is None:
            return NOT_FOUND
        self._expire([record])
        return _said(200 if record["status"] != "disconnected" else 408, record)

    def _list(self, records: list[Record], rest: list[str], asked: Asked) -> Said:
        self._expire(records)
        query = asked.query
        if rest and (not query or set(query) - {"resources", "dataSchemes"}):
            return NOT_FOUND
        for member, wanted in query.items():
            records = [one for one in records if set(wanted.split(",")) <= set(one[member])]
        if not records:
            return NOT_FOUND
        is_there = any(one["status"] != "disconnected" for one in records)
        return _said(200 if is_there else 408, {_url_of(one): one for one in records})

    # Writes.

    def _create_hyperty(self, user: str, url: str, members: Record) -> Said:
        if any(name not in members for name in HYPERTY_MEMBERS):
            return BAD
        known = self.hyperties.get(url)
        if known is not None and known["userID"] != user:
            return NOT_FOUND
        self._put(self.hyperties, url, {**members, "hypertyID": url, "userID": user}, known)
        if url not in self._users.setdefault(user, []):
            self._users[user].append(url)
        if "guid" in members:
            self._user_of_guid[members["guid"]] = user
        return _message(200, "Hyperty created")

    def _create_object(self, url: str, members: Record) -> Said:
        if any(name not in members for name in OBJECT_MEMBERS):
            return BAD
        self._put(self.objects, url, {**members, "url": url}, self.objects.get(url))
        return _message(200, "Data object created")

    def _put(self, table: dict[str, Record], url: str, record: Record, known: Record | None) -> None:
        now = self._instant()
        record["expires"] = min(int(record["expires"]), EXPIRES_MAX)
        record["startingTime"] = known["startingTime"] if known else now
        record["lastModified"] = now
        table[url] = record
        if known is not None and known["status"] != record["status"]:
            self._updated[url] = None

    def _update(self, record: Record | None, members: Record) -> Said:
        if record is None:
            return NOT_FOUND
        before = record["status"]
        record.update(members or {"status": "live"})
        record["lastModified"] = self._instant()
        has_changed = record["status"] != before
        if has_changed:
            self._updated[_url_of(record)] = None
        return _message(200, "Updated", statusChanged="true" if has_changed else "false")

    def _delete(self, user: str, url: str) -> Said:
        record = self.hyperties.get(url)
        if record is None or record["userID"] != user:
            return NOT_FOUND
        return self._update(record, {"status": "disconnected"})

    # Soft state.

    def _sweep(self) -> None:
        self._expire([*self.hyperties.values(), *self.objects.values()])

    def _expire(self, records: Iterable[Record]) -> None:
        for record in records:
            last = datetime.fromisoformat(record["lastModified"]).timestamp()
            if record["status"] != "disconnected" and self._clock() - last > record["expires"]:
                record["status"] = "disconnected"
                self._updated[_url_of(record)] = None

    def _instant(self) -> str:
        return datetime.fromtimestamp(self._clock(), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _url_of(record: Record) -> str:
    return str(record.get("hypertyID") or record["url"])
