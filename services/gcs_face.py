"""A face for fake-gcs-server: `python gcs_face.py PORT UPSTREAM PROGRAM` starts that, and listens in front of it.

The emulator knows all of Google's JSON API and half of the XML one: objects are put by the JSON API only. A put by the
XML API, with its conditions on generations, is translated; everything else is handed on as it is.
"""

# ruff: noqa: N815 - handlers are named for what they handle

import http.client
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlencode, urlsplit

_CONDITION = "x-goog-if-generation-match"
_NOT_HANDED_ON = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "host"}
_UPSTREAM = int(sys.argv[2])

Reply = tuple[int, list[tuple[str, str]], bytes]


class Face(BaseHTTPRequestHandler):
    """One connection of a client, and one to the emulator."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        """Connect to the emulator, too."""
        super().setup()
        self.upstream = http.client.HTTPConnection("127.0.0.1", _UPSTREAM)

    def finish(self) -> None:
        """And let go of it."""
        self.upstream.close()
        super().finish()

    def do_PUT(self) -> None:
        """An object of the XML API: /bucket/name."""
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        if not name or bucket in ("storage", "upload"):
            self.hand_on()
            return
        options = {"uploadType": "multipart", "name": unquote(name)}  # plain uploads ignore conditions
        if _CONDITION in self.headers:
            options["ifGenerationMatch"] = self.headers[_CONDITION]
        border = secrets.token_hex(16)
        told = json.dumps({"name": unquote(name)})
        part = f"--{border}\r\nContent-Type: "
        front = f"{part}application/json\r\n\r\n{told}\r\n{part}application/octet-stream\r\n\r\n"
        path = f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(options)}"
        kind = {"Content-Type": f"multipart/related; boundary={border}"}
        status, _, body = self.ask("POST", path, kind, front.encode(), f"\r\n--{border}--\r\n".encode())
        if status != HTTPStatus.OK:
            self.answer(status, [("Content-Type", "application/json")], body)
            return
        made = json.loads(body)
        self.answer(HTTPStatus.OK, [("ETag", f'"{made["etag"]}"'), ("x-goog-generation", made["generation"])], b"")

    def hand_on(self) -> None:
        """As it is."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_HANDED_ON}
        self.answer(*self.ask(self.command, self.path, headers))

    do_GET = do_HEAD = do_POST = do_DELETE = hand_on

    def ask(self, method: str, path: str, headers: Mapping[str, str], front: bytes = b"", back: bytes = b"") -> Reply:
        """What the emulator answers."""
        body = front + self.rfile.read(int(self.headers.get("Content-Length") or 0)) + back
        # It tells clients of the XML API by the host that they ask for, whatever that is for those who come by a proxy.
        self.upstream.request(method, path, body=body, headers={**headers, "Host": f"127.0.0.1:{sys.argv[1]}"})
        reply = self.upstream.getresponse()
        length = reply.getheader("Content-Length")
        data = reply.read()
        kept = [pair for pair in reply.getheaders() if pair[0].lower() not in _NOT_HANDED_ON]
        if method == "HEAD" and length is not None:
            kept.append(("Content-Length", length))
        return reply.status, kept, data

    def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Tell the client."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """It has nothing to say."""


class Server(ThreadingHTTPServer):
    """Clients may come many at once."""

    request_queue_size = 256
    daemon_threads = True


def emulator(port: int, program: str) -> subprocess.Popen[bytes]:
    """Start it with a bucket; when it ends, so do we."""
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(_UPSTREAM), "-log-level", "error"]
    process = subprocess.Popen([program, *place, "-backend", "memory", "-public-host", f"127.0.0.1:{port}"])
    for _ in range(500):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", _UPSTREAM, timeout=2)
            bucket = json.dumps({"name": "holdfast"})
            connection.request("POST", "/storage/v1/b", body=bucket, headers={"Content-Type": "application/json"})
            connection.getresponse().read()
        except OSError:
            time.sleep(0.02)
        else:
            return process
    process.kill()
    sys.exit("fake-gcs-server does not answer")


if __name__ == "__main__":
    listening = int(sys.argv[1])
    started = emulator(listening, sys.argv[3])
    server = Server(("127.0.0.1", listening), Face)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        sys.exit(started.wait())
    finally:
        started.kill()
