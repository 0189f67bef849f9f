"""Headless Chromium, driven over a pipe (DevTools protocol): it renders a page as a reader's browser would.

Needs no package: the protocol is JSON with a zero byte between messages, on descriptors 3 and 4 of the browser.
"""

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import find

# Long, because test machines are slow: it limits only conditions that never become true.
_TIMEOUT_S = 300.0
_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
]

# The protocol needs descriptors 3 and 4, which may be the pipes themselves: move those away first.
_LAUNCH = (
    "import os, sys; reading, writing = os.dup2(int(sys.argv[1]), 200), os.dup2(int(sys.argv[2]), 201); "
    "os.dup2(reading, 3); os.dup2(writing, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def program() -> str | None:
    """Return the path of the browser, or None; its name differs between distributions."""
    return find("chromium") or find("chromium-browser") or find("google-chrome")


class Browser:
    """A browser that exits with the context, also after an exception."""

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        command = [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write)]
        command += [str(program()), *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._left, self._number, self._session = b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(5)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: object) -> dict:
        """Execute one command of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, path: Path | str, width: int = 1200, dark: bool = False, ready: str = "true") -> None:
        """Open a page of the file system, or an address, and wait until the expression `ready` is true in it."""
        self.errors.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.call("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.value(f"document.readyState === 'complete' && Boolean({ready})"):
            assert time.monotonic() < deadline, f"{path}: {ready} does not come true; errors: {self.errors}"
            time.sleep(0.05)

    def value(self, expression: str) -> object:
        """Evaluate an expression in the page; its value must be plain JSON."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            # Between two pages there is no document.
            return None
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """Print the page, with its styles for paper."""
        self.call("Emulation.setEmulatedMedia", media="")
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _next(self, deadline: float, method: str) -> dict:
        while b"\0" not in self._left:
            readable, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"the browser does not answer to {method}"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        message = json.loads(text)
        self._hear(message.get("method"), message.get("params", {}))
        return message

    def _hear(self, method: str | None, content: dict) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(content["exceptionDetails"].get("exception", content)))
        elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one)) for one in content["args"]))
        elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.errors.append(content["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
