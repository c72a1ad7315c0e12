"""A headless Chromium, spoken to over a pipe in the DevTools protocol: no driver, no port, no package."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30.0
"""How long an answer may take."""


def found() -> str | None:
    """The browser's program, if there is one; $CHROMIUM names another."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page, the requests that it has made, and what it has complained about."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._rest, self._number, self._session = b"", 0, None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers to a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def show(self, page: Path, *, width: int = 1200, height: int = 900, is_dark: bool = False) -> None:
        """Open a page, and wait until all of it is there."""
        is_phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.absolute().as_uri())
        ends = time.monotonic() + SECONDS
        while self.value("document.readyState") != "complete" or "about:blank" in self.value("location.href"):
            assert time.monotonic() < ends, f"{page} did not load"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        """The next message; events on the way are kept."""
        while b"\0" not in self._rest:
            received = os.read(self._receive, 1 << 20)
            assert received, "Chromium has ended"
            self._rest += received
        written, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(written)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))


@contextlib.contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser that ends with the context; what it keeps goes to the folder `profile`."""
    (to_read, send), (receive, to_write) = os.pipe(), os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
    # It reads from file descriptor 3 and writes to 4, which a shell can arrange and `subprocess` by itself cannot.
    arranged = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    command = ["bash", "-c", arranged, "bash", program, "--remote-debugging-pipe", *options]
    with open(profile.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(command, pass_fds=(to_read, to_write), stdout=log, stderr=log)
        os.close(to_read), os.close(to_write)
        try:
            yield Browser(send, receive)
        finally:
            os.close(send), os.close(receive)
            process.terminate()
            process.wait(SECONDS)
