"""A real browser without a window: Chromium, told what to do over a pipe by the DevTools protocol.

with browser() as page:
    page.open("http://127.0.0.1:8000/")
    page.run("document.title")
    page.screenshot(path)
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import lacking

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--window-size=1280,1400",
    "--remote-debugging-pipe",
)
_PATIENCE = 60


class Page:
    """A page, driven step by step; each step waits until it is done."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def open(self, url: str) -> None:
        """Load a page."""
        self.run("window.isOld = true")
        failure = self._call("Page.navigate", url=url).get("errorText")
        assert not failure, f"{url}: {failure}"
        self._wait_for_another()

    def click(self, selector: str) -> None:
        """Click on what leads to another page, and wait for that."""
        assert self.run(f"!!document.querySelector({json.dumps(selector)})"), f"there is no {selector}"
        self.run(f"window.isOld = true; document.querySelector({json.dumps(selector)}).click()")
        self._wait_for_another()

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """What is to be read there."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def screenshot(self, path: Path) -> None:
        """A picture of all of the page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _wait_for_another(self) -> None:
        """Until there is a page that nobody has marked as the old one, and all of it is there."""
        limit = time.monotonic() + _PATIENCE
        while True:
            answer = self._call("Runtime.evaluate", expression="!window.isOld && document.readyState")
            if answer["result"].get("value") == "complete":
                return
            assert time.monotonic() < limit, "there is no other page"
            time.sleep(0.02)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        limit = time.monotonic() + _PATIENCE
        while True:
            answer = self._receive(limit)
            if answer.get("id") == self._number:
                # A page that is about to go may be gone before it has answered.
                is_between = method == "Runtime.evaluate" and "error" in answer
                assert is_between or "error" not in answer, f"{method}: {answer['error']}"
                return {"result": {}} if is_between else dict(answer["result"])

    def _receive(self, limit: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._back], [], [], max(0, limit - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._back, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def browser() -> Iterator[Page]:
    """A browser that nobody else uses; skips the test where there is none, and fails it on CI."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        lacking("no browser: apt-get install chromium")
    theirs, to = os.pipe()
    back, its = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [program, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        # It reads from 3 and writes to 4, whatever they are called here.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{its}', "bash", *command]
        process = subprocess.Popen(
            shell, pass_fds=(theirs, its), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(theirs)
        os.close(its)
        try:
            yield Page(to, back)
        finally:
            os.close(to)  # which ends it
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(back)
