"""Posts to sites of others, which may answer slowly, without end, or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread

import pytest

from pipeline.partners.bounded_post import post
from pipeline.partners.post import NotTakenError, hand_over
from pipeline.partners.settings import Partner
from protofly.signatures import SigningKey

KEY = SigningKey.from_seed("live", b"k" * 32)
_HEAD = b"HTTP/1.1 200 OK\r\n"
Say = Callable[[Callable[[bytes], object], Event], None]


@contextmanager
def site(say: Say) -> Iterator[tuple[str, Event]]:
    """A server that answers whatever it is asked with what `say` writes; its URL, and an event for when it is over."""
    over = Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.connection.recv(1 << 16)
                say(self.wfile.write, over)

    class Server(ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", over
        finally:
            over.set()
            server.shutdown()
            thread.join()


def endless_body(write: Callable[[bytes], object], over: Event) -> None:
    write(_HEAD + b"\r\n")
    while not over.is_set():
        write(b"x" * 65_536)


def bomb(write: Callable[[bytes], object], over: Event) -> None:
    packed = gzip.compress(bytes(64 << 20))
    write(_HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed)


def steering(write: Callable[[bytes], object], over: Event) -> None:
    write(b"HTTP/1.1 403 No\r\ncontent-length: 8\r\n\r\n\x1b[2J\xff no")


def redirect(write: Callable[[bytes], object], over: Event) -> None:
    write(b"HTTP/1.1 307 No\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")


def silent(write: Callable[[bytes], object], over: Event) -> None:
    over.wait()


def drop_by_drop(write: Callable[[bytes], object], over: Event) -> None:
    write(_HEAD)
    while not over.wait(0.05):  # each comes in time; their number has no end
        write(b"x: y\r\n")


def body_by_drops(write: Callable[[bytes], object], over: Event) -> None:
    write(_HEAD + b"\r\n")
    while not over.wait(0.05):
        write(b"x")


@pytest.mark.parametrize(
    ("say", "status", "said"),
    [(endless_body, 200, "x" * 200), (bomb, 200, None), (steering, 403, "[2J\ufffd no"), (redirect, 307, "")],
)
def test_of_an_answer_the_beginning_is_kept_as_it_came(say: Say, status: int, said: str | None) -> None:
    with site(say) as (url, _):
        found, text = post(url, b"report", {}, limit_s=60.0)
    assert found == status
    assert len(text) <= 200
    assert said in {None, text}
    assert text.isprintable()


@pytest.mark.parametrize("say", [silent, drop_by_drop, body_by_drops])
def test_a_site_that_answers_too_slowly_is_left(say: Say) -> None:
    with site(say) as (url, _), pytest.raises(TimeoutError, match="no whole answer within 1 s"):
        post(url, b"report", {}, limit_s=1.0)


def test_a_partner_that_is_slow_has_not_taken_the_file_and_gets_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.partners.post.WHOLE_S", 1.0)
    path = tmp_path / "2026-03-02.totals"
    path.write_bytes(b"extract")
    with site(drop_by_drop) as (url, _):
        partner = Partner(domain="b.example", url=url, keys=(KEY.record().pub,))
        with pytest.raises(NotTakenError, match="no whole answer within 1 s") as caught:
            hand_over(path, partner, domain="a.example", key=KEY)
    assert not caught.value.is_lasting
