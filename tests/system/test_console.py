"""The console in a real browser, at a node that talks with another domain: what operators see, and how they cut off."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import trio

from interop.free_ports import free_ports
from interop.talker import Talker
from tests.support.browser import Page, browser
from trapezoid.admin_client import ask_node

from .systems import System, running_system

ADMIN = "\n[admin]\nport = {port}\ncertificate = {certificate}\nkey = {key}\n"
OPEN = 'id = "new"\n[[rules]]\nid = "everything"\neffect = "permit"\n'
WIDTHS = (1280, 390)


async def admin_url(system: System) -> str:
    """Give node A an admin site with the certificate of its listener; its address."""
    [port] = free_ports(1)
    text = await trio.Path(system.a.folder.settings).read_text()
    certificate, key = (
        next(line.partition(" = ")[2] for line in text.splitlines() if line.startswith(f"{name} = "))
        for name in ("certificate", "key")
    )
    more = ADMIN.format(port=port, certificate=certificate, key=key)
    await system.change_settings(system.a, old="\n[[peer]]", new=f"{more}[[peer]]")
    return f"https://127.0.0.1:{port}"


async def looked_at(page: Page, name: str) -> None:
    """Look for what does not fit into a window; pictures are kept in the folder that the environment names."""
    folder = os.environ.get("TRAPEZOID_PICTURES")
    for width in WIDTHS:
        await page.resize(width)
        assert await page.run("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        for scheme in ("light", "dark") if folder is not None else ():
            await page.picture(Path(folder or "") / f"{name}-{width}-{scheme}.png", scheme)


async def log_in(page: Page, url: str, system: System) -> None:
    await page.go(f"{url}/partners")
    assert "Log in" in await page.text()
    await page.fill("#token", "not the token of this node at all")
    await page.submit("button.main")
    assert "not the token" in await page.text()
    page.wrong.clear()  # a browser takes every 401 for an error
    token = await trio.Path(system.a.folder.data / "admin-token").read_text()
    await page.fill("#token", token.strip())
    await page.send()
    assert "Nothing is wrong" in await page.text()


@pytest.mark.long
async def test_operators_look_at_a_partner_and_cut_it_off_in_a_browser(tmp_path: Path) -> None:
    async with running_system(tmp_path / "system") as system, browser(tmp_path, "--ignore-certificate-errors") as page:
        url = await admin_url(system)
        anna, bruno = await system.couple()
        await _is_denied(anna, bruno)
        await log_in(page, url, system)
        await _pages_show_what_is_so(page, url)
        await _audit_records_are_searched(page, url)
        await _any_record_is_found_by_its_sender(page, url, anna.hyperty)
        await _a_question_is_answered(page, url)
        await _policies_are_changed_and_rolled_back(page, url)
        await _a_gate_is_set_and_ended(page, url)
        await _blocked_stranger_has_a_page(page, url, system)
        await _cut_off(page, url)
        assert not (await anna.ask(bruno.hyperty)).is_ok
        await page.go(f"{url}/")
        assert "their key is stolen" in await page.text()
        await page.submit("tbody button")
        await page.submit("button.bad")
        assert (await anna.ask(bruno.hyperty)).is_ok
        await page.submit("header button:not([id])")
        assert "Log in" in await page.text()
        await page.go(f"{url}/sessions")
        assert "Log in" in await page.text()
        assert page.wrong == []


@pytest.mark.long
async def test_second_person_confirms_and_rejects_proposals_in_a_browser_after_a_restart(tmp_path: Path) -> None:
    async with running_system(tmp_path / "system") as system, browser(tmp_path, "--ignore-certificate-errors") as page:
        url = await admin_url(system)
        await system.change_settings(system.a, old="\n[policy]\n", new="\n[policy]\ntwo_persons = true\n")
        for name in ("staff", "friends"):
            await _proposed(system, "group create", group=name)
        gate = {"from": "a.example", "to": "c.example", "effect": "deny", "for": 600, "reason": '"><b>trial</b>'}
        await _proposed(system, "gate set", **gate)
        await system.a.stop()
        await system.start(system.a)
        await log_in(page, url, system)
        await page.go(f"{url}/policies")
        text = await page.text()
        assert text.count("Confirm …") == 3, text
        assert await page.run("document.querySelectorAll('main b').length") == 0
        await looked_at(page, "proposals")
        await _rows_button(page, "staff", "confirm")
        assert "group create" in await page.text()
        await looked_at(page, "confirm-proposal")
        await page.submit("button.bad")
        assert await _groups(system) == ["staff"]
        await _rows_button(page, "friends", "withdraw")
        assert "would be forgotten" in await page.text()
        await page.submit("button.bad")
        await _rows_button(page, "gate set", "confirm")
        await page.submit("button.bad")
        text = await page.text()
        assert "Waiting for a second person" not in text
        assert "c.example" in text
        assert await _groups(system) == ["staff"]
        assert page.wrong == []


async def _proposed(system: System, operation: str, **arguments: object) -> None:
    """Ask as the user of this machine."""
    said = await trio.to_thread.run_sync(partial(ask_node, system.a.folder.data, operation, arguments))
    assert said["proposal"], said


async def _groups(system: System) -> list[str]:
    groups = await trio.to_thread.run_sync(partial(ask_node, system.a.folder.data, "groups", {}))
    return [row["group"] for row in groups["rows"]]


async def _rows_button(page: Page, words: str, change: str) -> None:
    """Press a button of the proposal with these words."""
    found = f"[...document.querySelectorAll('#proposals tbody tr')].find(row => row.innerText.includes({words!r}))"
    await page.run(f"{found}.id = 'chosen'")
    await page.submit(f"#chosen button{'[formaction]' if change == 'withdraw' else ':not([formaction])'}")


async def _is_denied(anna: Talker, bruno: Talker) -> None:
    answer = await anna.ask(bruno.hyperty.replace("b.example", "c.example"))
    assert answer.code == 403


async def _pages_show_what_is_so(page: Page, url: str) -> None:
    for name, words in (
        ("", ["a.example", "Live sessions", "b.example", "Operators have forbidden nothing"]),
        ("partners", ["b.example", "live", "web", "known"]),
        ("partners/b.example", ["Steps of the last contact", "resolve", "Signature", "valid", "Cut off"]),
        ("stubs", ["b.example", "live", "1.0.0", "KiB"]),
        ("sessions", ["runtime://a.example/anna", "live"]),
        ("decisions", ["hyperty://c.example", "domain-blocked"]),
        ("records", ["Sender", "Recipient", "Search"]),
        ("policies", ["Would this pass?", "Rules in force"]),
    ):
        await page.go(f"{url}/{name}")
        text = await page.text()
        assert all(word.lower() in text.lower() for word in words), (name, words, text)
        assert " object at 0x" not in text, (name, text)
        await looked_at(page, name.replace("/", "-") or "overview")
    await page.go(f"{url}/partners")
    await page.press("/")
    assert await page.run("document.activeElement.id") == "where"
    await page.run("document.getElementById('theme').click()")
    assert await page.run("document.documentElement.dataset.theme") == "light"
    await page.go(f"{url}/partners/nobody.example")
    assert "nothing is known about nobody.example" in await page.text()
    page.wrong.clear()  # the 404


@pytest.mark.long
async def test_operators_sort_tables_with_mouse_and_keyboard_and_refreshed_pages_stay_sorted(tmp_path: Path) -> None:
    async with running_system(tmp_path / "system") as system, browser(tmp_path, "--ignore-certificate-errors") as page:
        url = await admin_url(system)
        await system.couple()
        more = {"domain": "c10.example"}, {"domain": "c9.example"}
        for arguments in more:
            await trio.to_thread.run_sync(partial(ask_node, system.a.folder.data, "peer block", arguments))
        await log_in(page, url, system)
        as_served = await _column(page, "Restrictions", 1)
        assert sorted(as_served) == ["c10.example", "c9.example"]
        await page.run(f"{_head('Restrictions', 1)}.click()")
        assert await _column(page, "Restrictions", 1) == ["c9.example", "c10.example"]
        assert await _sorted_heads(page) == ["Subject ascending"]
        await looked_at(page, "sorted")
        await _refreshed(page)
        assert await _column(page, "Restrictions", 1) == ["c9.example", "c10.example"]
        assert await _sorted_heads(page) == ["Subject ascending"]
        await page.run(f"{_head('Restrictions', 1)}.focus()")
        await page.press("Enter")
        assert await _column(page, "Restrictions", 1) == ["c10.example", "c9.example"]
        assert await _sorted_heads(page) == ["Subject descending"]
        await page.press("Enter")
        assert await _column(page, "Restrictions", 1) == as_served
        assert await _sorted_heads(page) == []
        await _figures_are_sorted_by_value(page, url)
        assert page.wrong == []


async def _figures_are_sorted_by_value(page: Page, url: str) -> None:
    """Times are shown in several units, and some rows have none; the next refresh brings such a table."""
    await page.go(f"{url}/sessions")
    assert await page.run("document.querySelector('tbody td.number').dataset.sort") is not None
    cells = {"a": ' data-sort="7300">2 h', "b": ">–", "c": ' data-sort="600">10 min', "d": ' data-sort="59">59 s'}
    rows = "".join(f'<tr><th>{name}</th><td colspan="2"></td><td{cell}</td></tr>' for name, cell in cells.items())
    head = '<tr><th>Runtime</th><th>State</th><th></th><th class="number">Silent</th></tr>'
    table = f'<div aria-label="Sessions"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    answer = json.dumps(f"<div data-live>{table}</div>")
    await page.run(f"void (window.fetch = async () => new Response({answer}))")
    await _refreshed(page)
    orders = []
    for _ in range(3):
        await page.run(f"{_head('Sessions', 3)}.click()")
        orders.append("".join(await _column(page, "Sessions", 0)))
        await looked_at(page, f"sorted-{orders[-1]}")
    assert orders == ["acdb", "dcab", "abcd"]
    assert await page.run("document.querySelectorAll('thead button').length") == 3


async def _refreshed(page: Page) -> None:
    """Wait until the page has refreshed itself."""
    await page.run("window.old = document.querySelector('[data-live]').firstElementChild")
    await page.run("new Promise(done => setInterval(() => old.isConnected || done(), 50))")


async def _column(page: Page, table: str, column: int) -> list[str]:
    """What a reader finds in a column, from above."""
    rows = f"[...document.querySelectorAll('[aria-label={table}] tbody tr')]"
    return list(await page.run(f"{rows}.map(row => row.cells[{column}].innerText)"))


def _head(table: str, column: int) -> str:
    return f"document.querySelectorAll('[aria-label={table}] thead th')[{column}].querySelector('button')"


async def _sorted_heads(page: Page) -> list[str]:
    """Heads that say how their column is sorted."""
    heads = "[...document.querySelectorAll('[aria-sort]')]"
    return list(await page.run(f"{heads}.map(head => `${{head.innerText.trim()}} ${{head.ariaSort}}`)"))


async def _audit_records_are_searched(page: Page, url: str) -> None:
    await page.go(f"{url}/decisions")
    for rule, words in (("", "domain-blocked"), ("no-such-rule", "hold no such denial")):
        await page.run("document.querySelector('[name=since]').value = '2020-01-01T00:00'")
        await page.fill("[name=rule]", rule)
        await page.submit("#search button")
        text = await page.text()
        assert "from the audit records" in text
        assert words in text
        await looked_at(page, f"records-{rule or 'found'}")
    assert await page.run("document.querySelector('[name=since]').value") == "2020-01-01T00:00"


async def _any_record_is_found_by_its_sender(page: Page, url: str, sender: str) -> None:
    await page.go(f"{url}/records")
    await page.run("document.querySelector('[name=since]').value = '2020-01-01T00:00'")
    await page.fill("[name=from]", sender)
    await page.submit("#search button")
    text = await page.text()
    assert "delivered (out)" in text
    assert "denied (peer)" in text
    assert "stub_event" not in text
    await looked_at(page, "records-of-a-sender")
    await page.run("document.querySelector('[name=refused]').value = '1'")
    await page.submit("#search button")
    text = await page.text()
    assert "denied (peer)" in text
    assert "delivered" not in text
    await page.run("document.querySelector('[name=from]').value = 'hyperty://a.example/nobody'")
    await page.submit("#search button")
    assert "hold nothing like that" in await page.text()


async def _blocked_stranger_has_a_page(page: Page, url: str, system: System) -> None:
    ask = partial(ask_node, system.a.folder.data)
    await trio.to_thread.run_sync(ask, "peer block", {"domain": "stranger.example", "reason": "spam"})
    await page.go(f"{url}/")
    await page.submit("a[href='/partners/stranger.example']")
    text = await page.text()
    assert "spam" in text
    assert "Lift the block" in text
    assert "Look it up again" not in text
    await trio.to_thread.run_sync(ask, "peer unblock", {"domain": "stranger.example"})


async def _a_question_is_answered(page: Page, url: str) -> None:
    await page.go(f"{url}/policies")
    await page.fill("[name=from]", "hyperty://a.example/ana")
    await page.fill("[name=to]", "hyperty://c.example/eve")
    await page.fill("[name=roles]", '"><b>operator</b>')
    await page.submit("section button.main")
    text = await page.text()
    assert "It would be denied" in text
    assert "domain-blocked" in text
    assert await page.run("document.querySelectorAll('main b').length") == 0
    assert "<b>" in await page.run("document.querySelector('[name=roles]').value")
    await looked_at(page, "verdict")


async def _policies_are_changed_and_rolled_back(page: Page, url: str) -> None:
    await page.go(f"{url}/policies")
    await page.run("document.querySelector('section details').open = true")
    await page.fill("[name=note]", '"><b>everything</b>')
    await page.fill("[name=text]", OPEN)
    await page.submit("section details button")
    text = await page.text()
    assert "not in force" in text
    assert 'effect = "permit"' in text
    assert await page.run("document.querySelectorAll('main b').length") == 0
    await looked_at(page, "bundle")
    await page.submit("button.main")
    assert "Nothing has changed yet" in await page.text()
    await looked_at(page, "confirm-policies")
    await page.submit("button.bad")
    text = await page.text()
    assert "activated by console at" in text
    assert "new/everything" in text
    await looked_at(page, "policies-bundle")
    await page.submit("form[action='/policies/roll-back'] button")
    await page.submit("button.bad")
    text = await page.text()
    assert "The files of the settings." in text
    assert "new/everything" not in text


async def _a_gate_is_set_and_ended(page: Page, url: str) -> None:
    await page.go(f"{url}/policies")
    await page.run("document.querySelector('#gates details').open = true")
    await page.fill("#gates [name=from]", "a.example")
    await page.fill("#gates [name=to]", "*.c.example")
    await page.fill("#gates [name=reason]", '"><b>trial</b>')
    await page.submit("#gates details button")
    assert "no gate for a time" in await page.text()
    await page.submit("button.bad")
    assert "*.c.example" in await page.text()
    assert await page.run("document.querySelectorAll('main b').length") == 0
    await looked_at(page, "gates")
    await page.submit("#gates tbody button")
    await page.submit("button.bad")
    assert "There are none" in await page.text()


async def _cut_off(page: Page, url: str) -> None:
    await page.go(f"{url}/partners/b.example")
    await page.fill("#reason", "their key is stolen")
    await page.submit("form.danger button")
    text = await page.text()
    assert "Nothing has changed yet" in text
    assert "links that end\tb.example" in text
    await looked_at(page, "confirm")
    await page.submit("button.bad")
    assert "is forbidden" in await page.text()
    await looked_at(page, "blocked")
