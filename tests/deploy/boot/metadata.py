"""Metadata service of EC2, version 2, for one machine: its id, and credentials of its role.

metadata.py INSTANCE_ID
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "a-token-of-the-metadata-service"
ROLE = "/latest/meta-data/iam/security-credentials/"
CREDENTIALS = {
    "Code": "Success",
    "Type": "AWS-HMAC",
    "AccessKeyId": "ASIATESTTESTTESTTEST",
    "SecretAccessKey": "test",
    "Token": "test",
    "LastUpdated": "2026-01-01T00:00:00Z",
    "Expiration": "2099-01-01T00:00:00Z",
}


class Metadata(BaseHTTPRequestHandler):
    pages: dict[str, str] = {}

    def do_PUT(self) -> None:
        known = (
            self.path == "/latest/api/token"
            and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        )
        self.answer(TOKEN if known else None)

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            self.send_error(401)
            return
        self.answer(self.pages.get(self.path))

    def answer(self, page: str | None) -> None:
        if page is None:
            self.send_error(404)
            return
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    Metadata.pages = {
        "/latest/meta-data/instance-id": sys.argv[1],
        ROLE: "node",
        f"{ROLE}node": json.dumps(CREDENTIALS),
    }
    ThreadingHTTPServer(("169.254.169.254", 80), Metadata).serve_forever()
