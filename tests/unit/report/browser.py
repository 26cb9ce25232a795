"""A headless Chromium, spoken to over two pipes: no port, no web socket, no further package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_LIMIT_S = 60.0


class Browser:
    """One tab.

    Every request that it makes is kept in ``requests``, every complaint of the page in ``said``.
    """

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.said: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _LIMIT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def open(
        self,
        path: Path,
        width: int,
        *,
        height: int = 900,
        dark: bool = False,
        scripts: bool = True,
        media: str = "",
    ) -> None:
        """Show a file and wait until it is laid out."""
        self.requests.clear()
        self.said.clear()
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._loaded = False
        self.ask("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + _LIMIT_S
        while not self._loaded:
            self._next(deadline)

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Store a picture of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """Return the page as it prints on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False, **size)["data"])

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            if not ready:
                raise TimeoutError("Chromium did not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise ConnectionError(f"Chromium ended: {self._process.poll()}")
            self._buffer += part
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        parameters = message.get("params", {})
        if message.get("method") == "Page.loadEventFired":
            self._loaded = True
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message.get("method") == "Log.entryAdded":
            self.said.append(parameters["entry"]["text"])
        return message


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a Chromium that cannot reach anything, and end it with all of its processes."""
    assert CHROMIUM
    to_read, to_write = os.pipe(), os.pipe()

    def descriptors() -> None:
        # It reads from 3 and writes to 4.
        os.dup2(to_read[0], 100)
        os.dup2(to_write[1], 101)
        os.dup2(100, 3)
        os.dup2(101, 4)
        os.set_inheritable(3, True)
        os.set_inheritable(4, True)

    with tempfile.TemporaryDirectory(prefix="pp4-chromium-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={home}",
                "--remote-debugging-pipe",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=descriptors,
            start_new_session=True,
        )
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            browser = Browser(process, to_read[1], to_write[0])
            yield browser
            with contextlib.suppress(ConnectionError, TimeoutError, BrokenPipeError):
                browser._session = None
                browser.ask("Browser.close")
            process.wait(_LIMIT_S)
        finally:
            os.close(to_read[1])
            os.close(to_write[0])
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                process.wait(_LIMIT_S)
