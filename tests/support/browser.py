"""A real headless browser over its DevTools protocol: pages are loaded, looked at, clicked and typed into.

Everything that the browser reports as wrong (exceptions, refused resources, violations of policies) is collected.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

LIMIT_SECONDS = 60.0
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
)


class Page:
    """The one page of a browser."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self.wrong: list[str] = []
        self._loads = 0

    async def begin(self) -> None:
        """Have everything reported that tests look at."""
        for part in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{part}.enable")
        await self.call("Emulation.setScrollbarsHidden", hidden=True)

    async def call(self, method: str, **parameters: object) -> Any:
        """Call one method of the protocol."""
        number = next(self._numbers)
        await self._connection.send_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = await self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._connection.get_message())
        match message.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                self.wrong.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.wrong.append(str(message["params"]["entry"]))
        return message

    async def _loaded(self, loads: int) -> None:
        while self._loads <= loads:
            await self._next()

    async def go(self, url: str) -> None:
        """Load a page."""
        loads = self._loads
        await self.call("Page.navigate", url=url)
        await self._loaded(loads)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def text(self) -> str:
        """What a reader of the page sees."""
        return str(await self.run("document.body.innerText"))

    async def submit(self, selector: str) -> None:
        """Press a button that leads to another page."""
        loads = self._loads
        assert await self.run(f"document.querySelector({json.dumps(selector)}) !== null"), selector
        await self.run(f"document.querySelector({json.dumps(selector)}).click()")
        await self._loaded(loads)

    async def fill(self, selector: str, text: str) -> None:
        """Type into a field as a person does."""
        await self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key."""
        code = {"windowsVirtualKeyCode": 13, "text": "\r"} if key == "Enter" else {"text": key}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def send(self) -> None:
        """Press Enter in a field, and wait for the page that it leads to."""
        loads = self._loads
        await self.press("Enter")
        await self._loaded(loads)

    async def resize(self, width: int) -> None:
        """Give the window another width."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )

    async def picture(self, file: Path, scheme: str) -> None:
        """Keep a picture of the whole page, light or dark."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        taken = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await trio.Path(file).write_bytes(base64.b64decode(taken["data"]))


@asynccontextmanager
async def browser(folder: Path, *options: str) -> AsyncIterator[Page]:
    """Run a browser with a fresh profile in `folder`; skips the test where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs a browser: apt-get install -y --no-install-recommends chromium")
    profile = folder / "browser"
    command = [program, *_OPTIONS, *options, f"--user-data-dir={profile}", "about:blank"]
    quiet = partial(trio.run_process, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    with trio.fail_after(LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quiet)
            url = await _page_url(profile)
            async with open_websocket_url(url, max_message_size=64 << 20) as connection:
                page = Page(connection)
                await page.begin()
                yield page
            nursery.cancel_scope.cancel()


async def _page_url(profile: Path) -> str:
    """Where the protocol of the first page is spoken, once the browser has written down its port."""
    file = trio.Path(profile / "DevToolsActivePort")
    while not await file.exists() or "\n" not in (text := await file.read_text()):  # noqa: ASYNC110 - its only sign
        await trio.sleep(0.05)
    port = text.partition("\n")[0]
    async with httpx.AsyncClient(trust_env=False) as client:
        pages = (await client.get(f"http://127.0.0.1:{port}/json")).json()
    return str(next(one["webSocketDebuggerUrl"] for one in pages if one["type"] == "page"))
