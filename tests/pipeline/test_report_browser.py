"""The report as a person sees it: sorted, filtered, wide and narrow, light and dark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.report.page import render
from tests.pipeline.test_report import facts
from tests.support.browser import browser

CELLS = "[...document.querySelectorAll('#pairs tr:not([hidden]) td:nth-child(3)')].map(one => one.textContent)"
CUT_OFF = """[...document.querySelectorAll('table, figure svg, pre')]
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth
        || one.scrollWidth > one.clientWidth + 1
        || one.parentElement.scrollWidth > one.parentElement.clientWidth + 1)
    .map(one => one.textContent.slice(0, 40))"""
TILES_IN_ROWS = """Object.values([...document.querySelectorAll('.tile')].map(one => one.offsetTop)
    .reduce((rows, top) => ({...rows, [top]: (rows[top] || 0) + 1}), {}))"""
CHART_COLOURS = """[...document.querySelectorAll('figure svg')]
    .flatMap(one => [getComputedStyle(one).backgroundColor,
        ...[...one.querySelectorAll('[id^="matplotlib.axis"] text')].map(text => getComputedStyle(text).fill)])"""
ROOM_BELOW = """[...new Set([...document.querySelectorAll('summary, p:has(+ details)')].map(one => {
    const room = getComputedStyle(one, '::after');
    return JSON.stringify([getComputedStyle(one).breakInside, room.height, room.marginBottom]);
}))].map(JSON.parse)"""
A4_WITHIN_MARGINS = 703
"""186 mm, at 96 CSS pixels an inch."""


async def test_tables_are_sorted_by_their_values_and_filtered_without_a_server(tmp_path: Path) -> None:
    known = facts()
    pairs = tuple(
        replace(known.pairs[0], src_domain=f"d{number}.example", sent=number * 600) for number in range(1, 10)
    )
    held = "node mn-2.a.example boot 1 segment 4, proved complete until 2026-03-02T13:30:00Z"
    file = tmp_path / "report.html"
    file.write_text(render(replace(known, pairs=pairs, held_by=held)))
    async with browser(tmp_path) as page:
        await page.resize(1200)
        await page.go(file.as_uri())
        assert f"Proofs are held back by {held}" in await page.text()
        await page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        await page.run("document.querySelectorAll('#pairs th button')[2].click()")
        assert await page.run(CELLS) == [f"{number * 600:,}" for number in range(1, 10)]
        await page.run("document.querySelectorAll('#pairs th button')[2].click()")
        assert await page.run(CELLS) == [f"{number * 600:,}" for number in range(9, 0, -1)]
        await page.fill("#pairs input", "d7")
        assert await page.run(CELLS) == ["4,200"]
        assert "1 of 9 rows" in await page.text()
        for width in (1200, 400):
            await page.resize(width)
            assert await page.run("document.documentElement.scrollWidth") <= width
            for scheme in ("light", "dark"):
                await page.picture(tmp_path / f"report-{width}-{scheme}.png", scheme)
        assert page.wrong == []


async def test_printed_page_is_light_cuts_no_column_off_and_repeats_heads_on_every_sheet(tmp_path: Path) -> None:
    known = facts(f"{'long-name.' * 6}b.example")
    statements = known.statements * 50
    file = tmp_path / "report.html"
    file.write_text(render(replace(known, statements=statements, statement_count=len(statements))))
    async with browser(tmp_path) as page:
        await page.resize(A4_WITHIN_MARGINS)
        await page.go(file.as_uri())
        await page.run("dispatchEvent(new Event('beforeprint'))")
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        await page.call("Emulation.setEmulatedMedia", media="print", features=dark)
        assert await page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert await page.run(CUT_OFF) == []
        heads = await page.run("[...document.querySelectorAll('table')].map(one => one.tHead?.rows.length)")
        assert heads == [1] * len(heads)
        assert await page.run("getComputedStyle(document.querySelector('thead')).breakInside") == "avoid"
        assert await page.run("document.querySelectorAll('th button').length") == 0  # with them no head is repeated
        assert await page.run(ROOM_BELOW) == [["avoid", "60px", "-60px"]]  # with less a heading stands alone on a sheet
        await page.run("dispatchEvent(new Event('afterprint'))")
        assert await page.run("document.querySelectorAll('th button').length") > len(heads)
        assert page.wrong == []


@pytest.mark.parametrize("name", ["b.example", f"{'long-name.' * 6}b.example", f"{'a' * 63}.{'b' * 63}.example"])
async def test_tables_need_no_scrolling_in_a_wide_window_whatever_names_are_in_them(tmp_path: Path, name: str) -> None:
    known = facts(name)
    file = tmp_path / "report.html"
    both = replace(known.statements[0], our_domain=name, src_domain=name)
    file.write_text(render(replace(known, statements=(both, *known.statements))))
    async with browser(tmp_path) as page:
        await page.resize(1400)
        await page.go(file.as_uri())
        await page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert await page.run(CUT_OFF) == []


async def test_charts_have_the_colours_of_the_page_and_no_tile_is_alone_in_its_row(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(facts()))
    async with browser(tmp_path) as page:
        for scheme, ink in (("light", "rgb(31, 36, 48)"), ("dark", "rgb(230, 232, 236)")):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            await page.call("Emulation.setEmulatedMedia", features=features)
            for width, in_row in ((1400, 4), (700, 4), (400, 2)):
                await page.resize(width)
                await page.go(file.as_uri())
                assert set(await page.run(TILES_IN_ROWS)) == {in_row}
            assert set(await page.run(CHART_COLOURS)) == {"rgba(0, 0, 0, 0)", ink}
