"""Bodies as libraries of many languages write them: Starlette reads them through the gateway as it does directly."""

import http.client
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from processes import Process, answers_200, free_ports
from world import spillway

AUDIO = bytes(range(256)) * 8
FORM = "multipart/form-data; boundary=b0undary"
DISPOSITION = b"Content-Disposition: form-data; "
MODEL = DISPOSITION + b'name="model"'
FILE = DISPOSITION + b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav'


@dataclass(frozen=True)
class Ports:
    server: int
    gateway: int


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("bodies")
    free = free_ports()
    ports, admin = Ports(next(free), next(free)), next(free)
    (folder / "spillway.toml").write_text(
        f'[[listener]]\naddress = "127.0.0.1:{ports.gateway}"\n[admin]\naddress = "127.0.0.1:{admin}"\n'
        f'[[replica]]\nname = "starlette"\nurl = "http://127.0.0.1:{ports.server}"\nmodels = ["tiny"]\n'
    )
    script = Path(__file__).with_name("starlette_server.py")
    server = Process("starlette", [sys.executable, str(script), str(ports.server)], folder)
    gateway = Process("gateway", [spillway(), "run", "--config", "spillway.toml"], folder)
    try:
        server.wait_until("up", lambda: answers_200(f"http://127.0.0.1:{ports.server}/health"))
        gateway.wait_until("ready", lambda: answers_200(f"http://127.0.0.1:{admin}/readyz"))
        yield ports
    finally:
        gateway.stop()
        server.stop()


def ask(port: int, path: str, content_type: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body, {"content-type": content_type})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def form(*heads: bytes, before: bytes = b"", end: bytes = b"\r\n") -> bytes:
    """A form whose parts are the model's name, and else files."""
    parts = [b"--b0undary\r\n" + head + b"\r\n\r\n" + (b"tiny" if b'name="model"' in head else AUDIO) + b"\r\n" for head in heads]
    return before + b"".join(parts) + b"--b0undary--" + end


def file_named(parameters: bytes) -> bytes:
    return b"Content-Disposition: form-data; " + parameters + b"\r\nContent-Type: audio/wav"


FORMS = {
    "browsers, httpx": (FORM, form(MODEL, FILE)),
    "Apache HttpClient": (FORM, form(MODEL + b"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit", FILE)),
    "JMeter": (FORM + "; charset=US-ASCII", form(MODEL + b"\r\nContent-Type: text/plain; charset=US-ASCII", FILE)),
    "Spring": ("multipart/form-data;charset=UTF-8;boundary=b0undary", form(MODEL + b"\r\nContent-Type: text/plain;charset=UTF-8\r\nContent-Length: 4", FILE)),
    "JSON": (FORM, form(MODEL + b"\r\nContent-Type: application/json", FILE)),
    "octets": (FORM, form(MODEL + b"\r\nContent-Type: application/octet-stream", FILE)),
    "Go": (FORM, form(MODEL, file_named(b'name="file"; filename="my \\"best\\" take.wav"'))),
    "Windows": (FORM, form(MODEL, file_named(b'name="file"; filename="C:\\rec\\a.wav"'))),
    "RFC 5987": (FORM, form(MODEL, file_named(b"name=\"file\"; filename*=utf-8''%C3%BCber.wav"))),
    "Latin-1": (FORM, form(MODEL, file_named(b'name="file"; filename="caf\xe9.wav"'))),
    "file name first": (FORM, form(MODEL, file_named(b'filename="a.wav"; name="file"'))),
    "file name with ; and =": (FORM, form(MODEL, file_named(b'name="file"; filename="take 1; a=b.wav"'))),
    "no spaces": (FORM, form(b'Content-Disposition: form-data;name="model"', b'Content-Disposition: form-data;name="file";filename="a.wav"')),
    "base64 of a file": (FORM, form(MODEL, FILE + b"\r\nContent-Transfer-Encoding: base64")),
    "other names": (FORM, form(MODEL, FILE, DISPOSITION + b'name="my note"', DISPOSITION + 'name="notiz\u00fc"'.encode())),
    "multipart-post": (FORM, form(MODEL, FILE, end=b"\r\n\r\n")),
    "empty line before": (FORM, form(MODEL, FILE, before=b"\r\n")),
    "text behind": (FORM, form(MODEL, FILE, end=b"\r\nThat was all.")),
}


@pytest.mark.parametrize("shape", FORMS)
def test_a_form_is_read_as_without_the_gateway(ports: Ports, shape: str) -> None:
    content_type, body = FORMS[shape]
    direct = ask(ports.server, "/v1/audio/transcriptions", content_type, body)
    assert direct[0] == 200 and b'["model","tiny"]' in direct[1]
    assert ask(ports.gateway, "/v1/audio/transcriptions", content_type, body) == direct


MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'
BODIES = {
    "byte order mark": b'\xef\xbb\xbf{"model":"tiny",' + MESSAGES + b"}",
    "text for numbers": b'{"model":"tiny","max_tokens":"8","n":"1","stream":"false",' + MESSAGES + b"}",
    "fractions for numbers": b'{"model":"tiny","max_tokens":1e3,"n":1.0,"seed":1208925819614629174706176,' + MESSAGES + b"}",
    "not finite": b'{"model":"tiny","temperature":NaN,"logit_bias":{"1":-Infinity},' + MESSAGES + b"}",
    "wrong types": b'{"model":"tiny","user":5,"stream_options":false,"previous_response_id":7,"max_tokens":[],' + MESSAGES + b"}",
    "lone surrogate": b'{"model":"tiny","messages":[{"role":"user","content":"a\\ud83d b"}]}',
    "other names twice": b'{"model":"tiny","x":1,"x":2,' + MESSAGES + b"}",
}


@pytest.mark.parametrize("shape", BODIES)
def test_json_is_read_as_without_the_gateway(ports: Ports, shape: str) -> None:
    direct = ask(ports.server, "/v1/chat/completions", "application/json", BODIES[shape])
    assert direct[0] == 200
    assert ask(ports.gateway, "/v1/chat/completions", "application/json", BODIES[shape]) == direct
