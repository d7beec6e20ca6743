"""Headless Chromium, driven over a pair of pipes, as ``--remote-debugging-pipe`` offers.

Its DevTools protocol, JSON between NUL bytes, needs no other package.
"""

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason=f"no browser ({', '.join(NAMES)}): apt-get install chromium"
)
LONG = 60.0


class Browser:
    """A headless Chromium with one page open."""

    def __init__(self, profile: Path):
        assert CHROMIUM is not None
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        # It wants the pipes as 3 and 4, whatever they are here.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", CHROMIUM]
        self.process = subprocess.Popen(
            [*shell, *flags, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's result; events that come meanwhile are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + LONG
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            self._buffer += os.read(self._in, 1 << 20)
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page: Path | str) -> None:
        """Loads a file or an address, and waits until its scripts have run."""
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions, and all that was fetched."""
        found = []
        for event in self.events:
            match event["method"]:
                case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                    found.append(json.dumps(event["params"]))
                case "Network.requestWillBeSent":
                    url = event["params"]["request"]["url"]
                    found += [f"fetched {url}"] if not url.startswith("file:") else []
        return found

    def emulate(self, *, width: int) -> None:
        sizes = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **sizes, mobile=False)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)
