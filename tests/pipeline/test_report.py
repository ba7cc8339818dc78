from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.report import charts
from pipeline.report.facts import (
    DOMAINS_SHOWN,
    AlertLine,
    Band,
    BandHour,
    ClockOffset,
    LatencyHour,
    PairCases,
    PairTraffic,
    Reconciled,
    ReplayHeader,
    ReportFacts,
    RuleFlips,
    SegmentGroup,
    StatementLine,
    StubVerdict,
    StubVersion,
)
from pipeline.report.page import render
from tests.pipeline.rows import HOUR_US, MONDAY_US

HOSTILE = "<script>alert(1)</script>&$\\frac{1}{2}$\"'\x00\u202e.example"
NAMES = st.text(max_size=40)


HOURS = tuple(range(MONDAY_US, MONDAY_US + 30 * HOUR_US, HOUR_US))
RECONCILED = Reconciled(
    sent=12_345,
    received=12_300,
    matched=12_000,
    pending=200,
    lost=100,
    altered=40,
    size=1,
    outcome=2,
    skewed=1,
    duplicated=1,
    orphan=3,
    pairs=2,
    complete_until_us=HOURS[-1],
)
REPLAY = ReplayHeader(
    run="1", old_rev="0123", new_rev="4567", messages=12_345, self_check_differed=0, not_replayable=5, is_valid=True
)


def cases(name: str) -> PairCases:
    return PairCases(
        src_domain=name,
        dst_domain="a.example",
        sent=10,
        received=9,
        matched=8,
        pending=0,
        lost=1,
        orphan=0,
        duplicated=0,
        altered=1,
        other=0,
    )


def worse_stub(name: str) -> StubVerdict:
    return StubVerdict(
        peer_domain=name,
        baseline="a" * 64,
        candidate="b" * 64,
        measure="traps",
        ratio=3.0,
        low=2.0,
        high=4.5,
        messages=1_000,
        verdict="worse",
    )


def alert(name: str) -> AlertLine:
    return AlertLine(
        hour_us=HOURS[5],
        our_domain="a.example",
        peer_domain=name,
        pattern="fan-out",
        subject=name,
        severity="severe",
        observed=220.0,
        threshold=100.0,
        explanation=f"One sender: {name}",
        proposed_policy=f'id = "{name}"',
        evidence=(name,),
    )


def rejected_segment(name: str) -> SegmentGroup:
    return SegmentGroup(
        node=name,
        kind="mdr",
        verdict="rejected",
        severity="fatal",
        findings="hash",
        segments=1,
        records=100,
        lost_records=0,
        detail="ask for the segment again",
    )


def statement(name: str) -> StatementLine:
    return StatementLine(
        dt="2026-03-02",
        our_domain="a.example",
        src_domain="a.example",
        dst_domain=name,
        role="out",
        messages=10_000,
        delivered=9_990,
        denied=0,
        bytes_wire=123_456,
        p50_us=1_500,
        p99_us=None,
        status="final",
        version=1,
    )


def facts(name: str = "b.example") -> ReportFacts:
    """A report with something in every part; `name` stands wherever a foreign domain could have written."""
    return ReportFacts(
        records=12_345,
        nodes=2,
        domains=2,
        from_us=HOURS[0],
        until_us=HOURS[-1] + HOUR_US,
        complete_until_us=HOURS[-1],
        lost_records=0,
        traffic=(
            PairTraffic(src_domain="a.example", dst_domain=name, messages=10_000, denied=0),
            PairTraffic(src_domain=name, dst_domain="a.example", messages=2_345, denied=17, refused=5),
        ),
        latency=tuple(
            LatencyHour(hour_us=hour, messages=400, p50_us=1_500, p95_us=4_000, p99_us=9_000) for hour in HOURS
        ),
        reconciled=RECONCILED,
        pairs=(cases(name),),
        pair_count=1,
        offsets=(ClockOffset(domain=name, offset_us=2_500_000, error_us=60, messages=900),),
        clock_findings=(f"clock of {name} was set",),
        clock_finding_count=1,
        replay=REPLAY,
        flips=(RuleFlips(rule_id=name, denied_now=30, permitted_now=4),),
        stubs=(
            StubVersion(
                peer_domain=name, stub_ver="a" * 64, measure="latency", messages=500, points=((1, 0.1), (900, 1.0))
            ),
            StubVersion(peer_domain=name, stub_ver="b" * 64, measure="fuel", messages=500, points=((50_000, 1.0),)),
        ),
        verdicts=(worse_stub(name),),
        verdict_count=1,
        band=Band(
            our_domain="a.example",
            peer_domain=name,
            hours=tuple(
                BandHour(hour_us=hour, observed=100.0, expected=90.0, threshold=300.0, is_alert=hour == HOURS[5])
                for hour in HOURS
            ),
        ),
        alerts=(alert(name),),
        alert_count=1,
        segments=(rejected_segment(name),),
        segment_group_count=1,
        refused_segments=1,
        statements=(statement(name),),
        statement_count=1,
        versions={"silver_mdr": 3},
    )


NOTHING = ReportFacts(
    records=0, nodes=0, domains=0, from_us=None, until_us=None, complete_until_us=None, lost_records=0
)


class _Seen(HTMLParser):
    """Which tags a page has, and where they point."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@pytest.fixture(scope="module")
def page() -> str:
    """The page with something in every part; drawing takes its time."""
    return render(facts())


def test_page_has_every_chart_and_needs_nothing_from_anywhere(page: str) -> None:
    seen = _Seen(page)
    assert seen.tags.count("svg") == 7
    assert seen.tags.count("figcaption") == 7
    assert all(source.startswith("#") for source in seen.sources)
    assert not {"img", "link", "iframe", "object"} & set(seen.tags)
    assert seen.tags.count("script") == 1  # ours, by its hash


def test_page_of_an_empty_lake_says_what_to_run() -> None:
    page = render(NOTHING)
    assert "<svg" not in page
    assert "trapezoid pipeline settle" in page
    assert "No alerts." in page


def test_captions_give_sample_sizes_and_how_far_the_records_reach(page: str) -> None:
    text = " ".join(page.split())
    assert "12,345 messages over 2 pairs, 17 denied by the sender" in text
    assert "gate, 5 by the receiver" in text
    assert "Complete up to 2026-03-03 05:00:00 UTC" in text
    assert "messages on either side (12,345 sent, 12,300 received) over 2 pairs of domains" in text


@pytest.mark.parametrize(
    ("pattern", "observed", "threshold", "words"),
    [
        ("fan-out", 1_220.0, 100.0, "1,220 recipients in five minutes, threshold 100"),
        ("flood", 610.0, 103.956, "610 messages in the hour, threshold 104"),
        ("flood", 9.5, 2.25, "9.50 messages in the hour, threshold 2.25"),
        ("scanning", 0.96, 0.5, "96 % of the messages to nobody, threshold 50 %"),
        ("spoofing", 25.0, 1.0, "25 messages with senders of others, threshold 1"),
        ("of a later version", 3.0, 2.0, "3, threshold 2"),
    ],
)
def test_alert_says_in_which_unit_and_zone_it_was_observed(
    pattern: str, observed: float, threshold: float, words: str
) -> None:
    shown = replace(alert("b.example"), pattern=pattern, observed=observed, threshold=threshold)
    page = render(replace(NOTHING, alerts=(shown,), alert_count=1))
    assert f"2026-03-02 05:00 UTC · b.example → a.example · {words}</summary>" in page


def test_days_and_axes_of_time_name_their_zone(page: str) -> None:
    assert page.count(">time, UTC</text>") == 2
    assert "<th>day, UTC</th>" in page


def test_equal_facts_give_equal_bytes(page: str) -> None:
    assert render(facts()) == page


def test_replay_that_failed_its_self_check_is_not_shown_as_sound(page: str) -> None:
    failed = ReplayHeader(
        run="1", old_rev="0", new_rev="1", messages=5, self_check_differed=2, not_replayable=0, is_valid=False
    )
    assert "Do not rely on this replay." in render(replace(NOTHING, replay=failed))
    assert "Do not rely on this replay." not in page


def test_names_that_are_markup_or_mathematics_stay_text() -> None:
    page = render(facts(HOSTILE))
    seen = _Seen(page)
    assert seen.tags.count("script") == 1
    assert seen.handlers == []
    assert "&lt;script&gt;" in page


@settings(max_examples=8, deadline=None)
@given(NAMES)
@example(HOSTILE)
def test_any_name_is_drawn_as_well_formed_xml(name: str) -> None:
    svg = charts.flips_by_rule([RuleFlips(rule_id=name, denied_now=1, permitted_now=0)])
    assert ET.fromstring(svg).tag.endswith("svg")


def test_map_of_very_many_domains_stays_small_and_loses_no_message() -> None:
    names = [f"d{number}.example" for number in range(200)]
    traffic = [PairTraffic(src_domain=one, dst_domain=names[0], messages=10, denied=0) for one in names[1:]]
    svg = charts.traffic_map(traffic)
    assert svg.count("example") <= 2 * DOMAINS_SHOWN
    assert "all others" in svg


@pytest.mark.parametrize("hours", [1, 2, 400])
def test_latency_of_any_number_of_hours_is_drawn(hours: int) -> None:
    rows = [
        LatencyHour(hour_us=MONDAY_US + number * HOUR_US, messages=1, p50_us=1, p95_us=2, p99_us=3)
        for number in range(hours)
    ]
    assert ET.fromstring(charts.latency_bands(rows)) is not None


@pytest.mark.parametrize(("hours", "lines"), [((0, 1, 2), 1), ((0, 1, 9, 10), 2), ((0, 9, 10), 2)])
def test_no_line_goes_over_hours_without_messages(hours: tuple[int, ...], lines: int) -> None:
    us = [MONDAY_US + hour * HOUR_US for hour in hours]
    latency = charts.latency_bands([LatencyHour(hour_us=one, messages=1, p50_us=1, p95_us=2, p99_us=3) for one in us])
    sent = [BandHour(hour_us=one, observed=9.0, expected=1.0, threshold=20.0, is_alert=False) for one in us]
    band = charts.baseline_band(Band(our_domain="a.example", peer_domain="b.example", hours=tuple(sent)))
    in_legend = 1
    assert latency.count("stroke-width: 1.8") == lines + in_legend
    assert band.count("stroke-width: 1.2") == lines + in_legend


def test_axis_of_a_single_hour_shows_hours_and_not_years() -> None:
    hour = LatencyHour(hour_us=MONDAY_US, messages=1, p50_us=1, p95_us=2, p99_us=3)
    labels = re.findall(r">([0-9:]+)</text>", charts.latency_bands([hour]))
    assert any(":" in label for label in labels)


def test_axis_of_a_single_count_has_whole_numbers() -> None:
    svg = charts.waterfall(Reconciled(sent=5, matched=4, lost=1, received=4, pairs=1))
    texts = re.findall(r">([^<>\n]+)</text>", svg[: svg.index(">lost</text>")])
    assert all(text != before for before, text in pairwise(texts))


def test_what_only_the_receiver_has_yet_is_pending_and_no_negative_number() -> None:
    total = Reconciled(sent=10, received=40, matched=8, pending=31, lost=1, orphan=2, pairs=1)
    svg = charts.waterfall(total)
    counts = re.findall(r">(-?[0-9,]+)</text>", svg[svg.index("on either side") :])
    assert not [count for count in counts if count.startswith("-")]
    assert total.known == 42
    assert {"42", "31", "3", "8"} <= set(counts)


def test_every_caption_has_its_sample_size_and_how_far_the_records_are_complete() -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", render(facts()), re.DOTALL)
    assert len(captions) == 7
    for caption in captions:
        assert re.search(r"[0-9,]+ (matched |recorded )?messages", caption) or "number of messages" in caption
        assert "omplete up to 2026-03-" in caption


def test_versions_that_nothing_was_compared_with_get_no_empty_panel() -> None:
    stubs = [
        StubVersion(
            peer_domain="b.example", stub_ver="v1", measure="latency", messages=3, points=((100, 0.5), (200, 1.0))
        )
    ]
    assert "candidate against baseline" not in charts.stub_versions(stubs, [])


def test_sides_without_any_difference_are_drawn_too() -> None:
    assert "none" in charts.waterfall(Reconciled(sent=5, matched=5, received=5, pairs=1))
    assert "none" in charts.waterfall(Reconciled(pairs=1))


def test_lists_that_are_cut_say_how_long_they_are() -> None:
    whole, cut = facts(), replace(facts(), pair_count=180, verdict_count=60, segment_group_count=70, alert_count=90)
    assert " shown)" not in render(whole)
    page = render(cut)
    for said in (
        "Pairs that differ (180, the 1 that differ most shown)",
        "Verdicts (60, the 1 worst shown)",
        "70 groups by node, kind and verdict, the 1 gravest shown",
        "90 alerts, the 1 gravest shown",
    ):
        assert said in page


def test_every_cell_of_the_traffic_map_has_its_number() -> None:
    many = [
        PairTraffic(src_domain=f"d{row}.example", dst_domain=f"d{row + 1}.example", messages=1_000 + row, denied=0)
        for row in range(3 * DOMAINS_SHOWN)
    ]
    assert charts.traffic_map(many).count("k</text>") >= DOMAINS_SHOWN // 2


def test_facts_survive_json_so_that_programs_can_have_them() -> None:
    assert msgspec.json.decode(msgspec.json.encode(facts()))["records"] == 12_345
