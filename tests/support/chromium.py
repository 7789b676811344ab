"""A real Chromium without a window, driven by the DevTools protocol.

    async with running_chromium(tmp_path) as browser:
        page = await browser.open("http://127.0.0.1:9644/")
        await page.until("document.querySelector('h1')?.textContent === 'Topics'")
        await page.press("/")
        assert page.troubles == []

It comes from Debian's package, as other programs of the tests do (`tests/support/debian.py`).
"""

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.debian import UnpackedProgram, unpacked_program
from tests.support.processes import stop_group

START_S: Final = 60.0
CALL_S: Final = 30.0
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
FONTS: Final = ("fonts-inter", "fonts-jetbrains-mono")
KEY_CODES: Final[Mapping[str, int]] = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "Backspace": 8,
}


class Page:
    """One tab. `troubles`: errors of scripts, and what the browser refused, such as by a policy."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._reading = asyncio.create_task(self._read(), name="devtools")
        self.troubles: list[str] = []

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()

    async def call(self, method: str, **parameters: object) -> Any:
        """A command of the DevTools protocol."""
        self._number += 1
        number = self._number
        answered = asyncio.get_running_loop().create_future()
        self._pending[number] = answered
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(CALL_S):
            return await answered

    async def evaluate(self, script: str) -> Any:
        """The value of an expression; of a promise, what it becomes."""
        found = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def until(self, script: str, timeout_s: float = 20.0) -> None:
        """Wait until the expression is true."""
        deadline = time.monotonic() + timeout_s
        while not await self.evaluate(f"Boolean({script})"):
            if time.monotonic() > deadline:
                text = await self.evaluate("document.body.innerText")
                raise AssertionError(f"never true: {script}\n{text}\n{self.troubles}")
            await asyncio.sleep(0.05)

    async def press(self, *keys: str) -> None:
        for key in keys:
            is_text = len(key) == 1
            fields: dict[str, object] = {"key": key, "windowsVirtualKeyCode": KEY_CODES.get(key, 0)}
            if is_text or key == "Enter":
                fields["text"] = key if is_text else "\r"
            await self.call("Input.dispatchKeyEvent", type="keyDown", **fields)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    async def write(self, text: str) -> None:
        """Into the field that has the focus."""
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        await self.until(f"document.querySelector({json.dumps(selector)})")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def text(self, selector: str = "body") -> str:
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def resize(self, width: int, height: int, scale: float = 1) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    async def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system of the user would say."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def screenshot(self, path: Path) -> None:
        """A PNG of what is in view."""
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            answered = self._pending.pop(event.get("id", 0), None)
            if answered is not None and not answered.done():
                if "error" in event:
                    answered.set_exception(AssertionError(str(event["error"])))
                else:
                    answered.set_result(event["result"])
            elif event.get("method") == "Runtime.exceptionThrown":
                self.troubles.append(str(event["params"]["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                self.troubles.append(str(event["params"]["entry"]["text"]))


class Browser:
    """A process of Chromium with a profile of its own."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address
        self._pages: list[Page] = []

    async def open(self, url: str) -> Page:
        """A new tab with this page."""
        async with self._session.put(f"http://{self._address}/json/new?about:blank") as response:
            target = await response.json(content_type=None)
        socket = await self._session.ws_connect(
            target["webSocketDebuggerUrl"], max_msg_size=MAX_MESSAGE_BYTES
        )
        page = Page(socket)
        self._pages.append(page)
        for domain in ("Page", "Runtime", "Log"):
            await page.call(f"{domain}.enable")
        await page.call("Page.navigate", url=url)
        await page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    async def close(self) -> None:
        for page in self._pages:
            await page.close()


def chromium() -> UnpackedProgram:
    """Errors: PackageMissing."""
    return unpacked_program("chromium", "chromium", "usr/lib/chromium")


@asynccontextmanager
async def running_chromium(directory: Path, *flags: str) -> AsyncIterator[Browser]:
    """Profile and log are in the directory. Errors: PackageMissing."""
    program = await asyncio.to_thread(chromium)
    profile = directory / "profile"
    profile.mkdir()
    environment = {**program.environment, "HOME": str(directory), "FONTCONFIG_FILE": str(_fonts(directory))}
    command = [str(program.path), *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
    process = _started(command, environment, directory / "chromium.log")
    try:
        address = await _address(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            browser = Browser(session, address)
            try:
                yield browser
            finally:
                await browser.close()
    finally:
        await asyncio.to_thread(stop_group, process, 10.0)


def _started(
    command: Sequence[str], environment: Mapping[str, str], log_path: Path
) -> "subprocess.Popen[bytes]":
    with log_path.open("wb") as log:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


async def _address(file: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + START_S
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= 2:
            return f"127.0.0.1:{lines[0]}"
        if process.poll() is not None or time.monotonic() > deadline:
            log = (file.parent.parent / "chromium.log").read_text(errors="replace")
            raise RuntimeError(f"Chromium did not start (exit code {process.poll()}): {log[-2000:]}")
        await asyncio.sleep(0.05)


def _fonts(directory: Path) -> Path:
    """A configuration of fonts that is the same on every machine: those that the page names first."""
    folders = [unpacked_program(name, "", "usr/share/fonts").path for name in FONTS]
    file = directory / "fonts.conf"
    file.write_text(
        "<?xml version='1.0'?><!DOCTYPE fontconfig SYSTEM 'fonts.dtd'><fontconfig>"
        + "".join(f"<dir>{folder}</dir>" for folder in folders)
        + f"<cachedir>{directory / 'fonts'}</cachedir></fontconfig>"
    )
    return file
