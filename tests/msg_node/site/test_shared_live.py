"""Two nodes of one domain agree on one live document, over a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from msg_node.cluster.core.published import Published
from msg_node.cluster.names import Names, NodeFacts
from msg_node.site.engine_live import EngineLive
from msg_node.site.publisher import Publisher, make_publisher
from msg_node.storage.engine import Engine
from msg_node.storage.engine_documents import EngineDocuments
from msg_node.storage.engine_errors import FencedError
from protofly.documents import Live
from stubkit.keys import make_keys, save_keys
from tests.msg_node.site.test_site import DOMAIN, NOW, settings_for
from tests.msg_node.site.test_site import Published as Folder
from tests.support.postgres import Postgres


@dataclass
class Member:
    publisher: Publisher
    names: Names
    name: str

    def live(self, now: float) -> Live:
        """What it serves after it has looked."""
        self.publisher.refresh(now=now)
        assert self.publisher.live is not None
        return self.publisher.live.document


class Domain:
    """Nodes n1 and n2 with the same keys, each with a publication and a data folder of its own."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.options = postgres.options(postgres.new_database())
        self.keys = make_keys()
        self.members = [self._member(folder / name, name) for name in ("n1", "n2")]

    def _member(self, folder: Path, name: str) -> Member:
        (folder / "data").mkdir(parents=True)
        save_keys(self.keys, folder / "keys")
        settings = settings_for(folder)
        assert settings.publish is not None
        url = f"wss://{name}.a.example/link"
        settings = msgspec.structs.replace(
            settings, publish=msgspec.structs.replace(settings.publish, endpoint_url=url)
        )
        self.folder_of(folder, settings).publish()
        publisher, key = make_publisher(settings)
        names = Names(Engine(self.options))
        facts = NodeFacts(published=Published(url=url, keys={key.key_id: key.record()}))
        assert names.take(name, None, name, facts) == 1
        documents = EngineDocuments(Engine(self.options), name, 1)
        publisher.shared = EngineLive(DOMAIN, Names(Engine(self.options)), documents)
        return Member(publisher, names, name)

    def folder_of(self, folder: Path, settings: object = None) -> Folder:
        return Folder(folder, self.keys, settings or settings_for(folder))  # type: ignore[arg-type]

    def close(self) -> None:
        for one in self.members:
            one.names.close()
            assert isinstance(one.publisher.shared, EngineLive)
            one.publisher.shared.close()


@pytest.fixture
def domain(tmp_path: Path, postgres: Postgres) -> Iterator[Domain]:
    made = Domain(tmp_path, postgres)
    yield made
    made.close()
    shutil.rmtree(tmp_path)


def test_all_nodes_serve_one_document_with_the_places_of_all(domain: Domain, tmp_path: Path) -> None:
    one, two = domain.members
    first = one.live(NOW)
    assert [(end.url, end.alternates) for end in first.endpoints] == [
        ("wss://n1.a.example/link", ["wss://n2.a.example/link"])
    ]
    assert two.live(NOW + 5) == first
    assert two.publisher.live is not None
    assert one.publisher.live is not None
    assert two.publisher.live.envelope == one.publisher.live.envelope

    # A node that finds it due signs the next one, and the other takes that.
    due = two.live(NOW + 86_400)
    assert due.serial > first.serial
    assert one.live(NOW + 86_401) == due

    # A node that has published something is followed by one that has not.
    folder = domain.folder_of(tmp_path / "n1")
    folder.publish(revoke=["f" * 64])
    os.utime(folder.site / "publication.json", (NOW + 5, NOW + 5))
    newer = one.live(NOW + 86_410)
    assert newer.serial > due.serial
    assert two.live(NOW + 86_411) == newer
    assert one.live(NOW + 86_412) == newer

    # A node that leaves is named no more.
    one.names.leave("n1", 1)
    left = two.live(NOW + 86_420)
    assert [(end.url, end.alternates) for end in left.endpoints] == [("wss://n2.a.example/link", [])]
    assert (left.serial, left.revoked) == (newer.serial + 1, newer.revoked)

    # A process that has lost its name signs nothing any more.
    with pytest.raises(FencedError):
        one.publisher.refresh(now=NOW + 3 * 86_400)
