"""A web server on this machine, with files that arrive whole, cut short or not at all."""

from __future__ import annotations

import http.server
from typing import Any


class Handler(http.server.BaseHTTPRequestHandler):
    files: dict[str, bytes]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/garbage":
            self.wfile.write(b"\x00\x01 no http at all\r\n\r\n")
            return
        if self.path == "/chunks":  # the connection ends inside a chunk
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\nhalf")
            return
        body = self.files.get(self.path.removeprefix("/cut"))
        if body is None:
            self.send_error(404)
            return
        cut = self.path.startswith("/cut")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 1000 * cut))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
