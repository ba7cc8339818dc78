"""What a stub hears of our addresses: a snapshot, then changes, only what its domain may see, and not without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.core.address_news import CHUNK_BYTES, AddressNews
from sandbox.core.exchange import FLAG_SNAPSHOT, Event, GuestEvent

ADDRESSES = [f"hyperty://a.example/{number}" for number in range(6)]


def everything(_address: str) -> bool:
    return True


def heard(events: list[GuestEvent], known: set[str]) -> set[str]:
    """What a stub knows that has heard these events."""
    for event in events:
        assert event.op == Event.ADDRESSES
        if event.flags & FLAG_SNAPSHOT:
            known = set()
        for line in event.payload.decode().splitlines():
            sign, address = line[0], line[1:]
            assert (address in known) == (sign == "-")
            known = known ^ {address}
    return known


def test_first_news_are_a_snapshot_also_of_nothing_and_later_ones_are_changes() -> None:
    news = AddressNews(10, everything)
    assert news.left_out == 0
    assert news.news([]) == [GuestEvent(Event.ADDRESSES, 0, b"", FLAG_SNAPSHOT)]
    added = f"+{ADDRESSES[0]}\n+{ADDRESSES[1]}\n".encode()
    assert news.news(ADDRESSES[:2]) == [GuestEvent(Event.ADDRESSES, 0, added)]
    [event] = news.news(ADDRESSES[1:3])
    assert event.payload == f"-{ADDRESSES[0]}\n+{ADDRESSES[2]}\n".encode()
    assert news.news(ADDRESSES[1:3]) == []


def test_after_a_restart_all_is_said_again() -> None:
    news = AddressNews(10, everything)
    news.news(ADDRESSES)
    news.restart()
    [event] = news.news(ADDRESSES)
    assert event.flags == FLAG_SNAPSHOT
    assert heard([event], {"hyperty://a.example/gone"}) == set(ADDRESSES)


def test_what_may_not_be_seen_is_never_named_and_is_judged_once() -> None:
    judged: list[str] = []

    def may_see(address: str) -> bool:
        judged.append(address)
        return address != ADDRESSES[1]

    news = AddressNews(10, may_see)
    assert heard(news.news(ADDRESSES[:2]), set()) == {ADDRESSES[0]}
    assert news.news(ADDRESSES[:2]) == []
    assert judged == ADDRESSES[:2]
    assert news.news(ADDRESSES[:1]) == []  # it is gone, and the stub never knew of it
    assert news.news(ADDRESSES[:2]) == []
    assert judged == [*ADDRESSES[:2], ADDRESSES[1]]  # what went is forgotten, and judged when it comes again


def test_beyond_the_bound_addresses_wait_until_others_are_gone() -> None:
    news = AddressNews(2, everything)
    known = heard(news.news(ADDRESSES[:4]), set())
    assert (len(known), news.left_out) == (2, 2)
    known = heard(news.news(ADDRESSES[1:4]), known)
    assert (known, news.left_out) == (set(ADDRESSES[1:3]), 1)


def test_many_addresses_come_in_pieces_of_whole_lines() -> None:
    many = [f"comm://a.example/{number:08}" for number in range(5_000)]
    news = AddressNews(10_000, everything)
    events = news.news(many)
    assert len(events) > 2
    assert all(len(event.payload) < CHUNK_BYTES + 64 for event in events)
    assert [event.flags for event in events] == [FLAG_SNAPSHOT] + [0] * (len(events) - 1)
    assert heard(events, set()) == set(many)


def test_a_piece_that_is_full_to_the_byte_ends_there() -> None:
    line = len(f"+{ADDRESSES[0]}\n")
    filler = "comm://a.example/" + "x" * (CHUNK_BYTES - line - len("+comm://a.example/\n"))
    first, second = AddressNews(10, everything).news([filler, ADDRESSES[0], ADDRESSES[1]])
    assert (len(first.payload), second.payload) == (CHUNK_BYTES, f"+{ADDRESSES[1]}\n".encode())


@given(st.lists(st.one_of(st.none(), st.lists(st.sampled_from(ADDRESSES), unique=True)), max_size=20))
def test_stub_knows_at_every_moment_what_there_is(steps: list[list[str] | None]) -> None:
    news, known = AddressNews(10, everything), set[str]()
    for now in steps:
        if now is None:
            news.restart()
        else:
            known = heard(news.news(now), known)
            assert known == set(now)
