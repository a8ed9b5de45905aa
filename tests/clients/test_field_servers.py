"""Real servers that do what servers in the field do: block, close connections by age, send much."""

import concurrent.futures
import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from processes import Process, answers_200, free_ports
from world import spillway

HERE = Path(__file__).parent
PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


class Field:
    """A node before one real server, which may stand behind a real proxy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports()
        self.processes: list[Process] = []
        self.client = self.admin = 0

    def uvicorn(self, *more: str) -> int:
        port = next(self.ports)
        command = [sys.executable, "-m", "uvicorn", "field_server:app", "--port", str(port), "--app-dir", str(HERE), *more]
        process = Process("uvicorn", command, self.folder)
        self.processes.append(process)
        process.wait_until("up", lambda: answers_200(f"http://127.0.0.1:{port}/health"))
        return port

    def run(self, name: str, program: str, text: str, *options: str) -> None:
        """Runs a proxy with this config; skips the test where it is not installed."""
        found = shutil.which(program, path=PATH)
        if not found:
            pytest.skip(f"{program} is not installed")
        config = self.folder / f"{name}.conf"
        config.write_text(text)
        self.processes.append(Process(name, [found, *options, str(config)], self.folder))

    def node(self, port: int, replica: str = "", more: str = "") -> None:
        self.client, self.admin = next(self.ports), next(self.ports)
        config = self.folder / "node.toml"
        config.write_text(
            f'[[listener]]\naddress = "127.0.0.1:{self.client}"\nauth = "none"\n'
            f'[admin]\naddress = "127.0.0.1:{self.admin}"\n'
            f"[health]\ninterval_ms = 200\ntimeout_ms = 300\n{more}"
            f'[[replica]]\nname = "field"\nurl = "http://127.0.0.1:{port}"\nmodels = ["field"]\nkind = "vllm"\n{replica}'
        )
        process = Process("node", [spillway(), "run", "--config", str(config)], self.folder)
        self.processes.append(process)
        process.wait_until("serving", lambda: self.state() == "serving")

    def replica(self) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/replicas", timeout=5) as reply:
            return json.load(reply)[0]

    def state(self) -> str:
        try:
            return self.replica()["state"]
        except OSError:
            return "not there"

    def sdk(self) -> openai.OpenAI:
        url = f"http://127.0.0.1:{self.client}/v1"
        return openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=60)

    def ask(self, words: str) -> openai.types.chat.ChatCompletion:
        with self.sdk() as client:
            return client.chat.completions.create(model="field", messages=[{"role": "user", "content": words}])

    def stream(self) -> str:
        with self.sdk() as client:
            chunks = client.chat.completions.create(model="field", messages=[{"role": "user", "content": "go"}], stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    field = Field(tmp_path)
    try:
        yield field
    finally:
        field.stop()


def test_a_server_whose_event_loop_is_blocked_loses_no_request(field: Field) -> None:
    field.node(field.uvicorn())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        whole, stream = pool.submit(field.ask, "wait 1"), pool.submit(field.stream)
        node = field.processes[-1]
        node.wait_until("at work", lambda: field.replica()["in_flight"] == 2)
        # Long enough for checks, metrics and requests to have heard nothing for long.
        pool.submit(field.ask, "block 9").result()
        assert whole.result().choices[0].message.content == "ok"
        assert stream.result() == "".join(f"t{index} " for index in range(30))
    node.wait_until("serving again", lambda: field.state() == "serving")


def test_more_than_a_hundred_header_lines_pass(field: Field) -> None:
    field.node(field.uvicorn())
    with field.sdk() as client:
        reply = client.chat.completions.with_raw_response.create(
            model="field", messages=[{"role": "user", "content": "headers 150"}]
        )
    assert sum(name.startswith("x-field-") for name in reply.headers) == 150


def test_connections_that_nginx_closes_by_age_cost_no_request(field: Field) -> None:
    server, port = field.uvicorn(), next(field.ports)
    nginx(field, f"listen 127.0.0.1:{port}; keepalive_requests 3;", server)
    field.node(port)
    assert {answer.choices[0].finish_reason for answer in many(field, 60)} == {"stop"}


def test_goaways_of_nginx_cost_no_request(field: Field) -> None:
    server, port = field.uvicorn(), next(field.ports)
    nginx(field, f"listen 127.0.0.1:{port} http2; keepalive_requests 5; http2_max_concurrent_streams 2;", server)
    field.node(port, 'protocol = "http2"\n')
    assert {answer.choices[0].finish_reason for answer in many(field, 60)} == {"stop"}


def test_connections_that_haproxy_closes_when_idle_cost_no_request(field: Field) -> None:
    server, port = field.uvicorn(), next(field.ports)
    field.run(
        "haproxy",
        "haproxy",
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  timeout http-keep-alive 20ms\n"
        f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
        f"backend b\n  server s 127.0.0.1:{server}\n",
        "-db",
        "-f",
    )
    field.node(port)
    assert {answer.choices[0].finish_reason for answer in many(field, 60)} == {"stop"}


def many(field: Field, count: int) -> list:
    """Answers to many requests, four at a time."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: field.ask("hello"), range(count)))


def nginx(field: Field, server: str, port: int) -> None:
    folder = field.folder
    field.run(
        "nginx",
        "nginx",
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}\n"
        "http { access_log off;\n"
        + "".join(f"{kind}_temp_path {folder};\n" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        + f"server {{ {server}\n  location / {{ proxy_pass http://127.0.0.1:{port}; }} }} }}\n",
        "-p",
        str(folder),
        "-c",
    )
