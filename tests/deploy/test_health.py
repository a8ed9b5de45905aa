"""`spillway health`, by which images and operators ask a node how it is."""

import contextlib
import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from needs import spillway

PATIENCE = 60.0


def health(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Asks a node."""
    command = [spillway(), "health", "--url", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


class Answers(http.server.BaseHTTPRequestHandler):
    """An admin listener that is ready, and wants no clients."""

    def do_GET(self) -> None:  # noqa: N802, the name that the library calls
        self.send_response({"/readyz": 200, "/steering": 503}[self.path])
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"said")

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def test_the_exit_code_is_the_answer() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert health(url).returncode == 0
        for_clients = health(url, "--for", "clients")
        assert for_clients.returncode == 1
        assert "503" in for_clients.stderr and "said" in for_clients.stderr
        server.shutdown()
    assert health(url).returncode == 1, "nobody is there"


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = health(url, "--timeout-ms", "100")
        assert asked.returncode == 1 and "no answer" in asked.stderr


def test_an_edge_node_is_well_once_another_region_serves_for_it(tmp_path: Path) -> None:
    ports = _free_ports(5)
    names = {"core": "here", "edge": "there"}
    subprocess.run([spillway(), "certs", "init", "--cluster", "test", "--dir", tmp_path], check=True)
    for name, region in names.items():
        made = [spillway(), "certs", "node", "--dir", tmp_path, "--region", region, "--node", name]
        subprocess.run(made, check=True)
    links = dict(zip(names, ports[:2], strict=True))
    admins = dict(zip(names, ports[2:4], strict=True))
    replica = f'[[replica]]\nname = "a"\nurl = "http://127.0.0.1:{ports[4]}"\nmodels = ["tiny"]\n'
    for name, region in names.items():
        other = next(one for one in names if one != name)
        (tmp_path / f"{name}.toml").write_text(f"""
[node]
name = "{name}"
region = "{region}"
workers = 1
[[listener]]
address = "127.0.0.1:0"
[admin]
address = "127.0.0.1:{admins[name]}"
[cluster]
id = "test"
address = "127.0.0.1:{links[name]}"
ca = "ca.pem"
certificate = "{name}.{region}.pem"
key = "{name}.{region}-key.pem"
prefix_key = "prefix.key"
[[peer]]
name = "{other}"
region = "{names[other]}"
address = "127.0.0.1:{links[other]}"
{replica if name == "core" else ""}""")
    edge = f"http://127.0.0.1:{admins['edge']}"
    with _running("run", "--config", str(tmp_path / "edge.toml")):
        _until(edge, 1)
        assert "nothing to serve" in health(edge).stderr
        with (
            _running("emulate", "--listen", f"127.0.0.1:{ports[4]}"),
            _running("run", "--config", str(tmp_path / "core.toml")),
        ):
            _until(edge, 0)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def _running(*arguments: str) -> Iterator[None]:
    with subprocess.Popen([spillway(), *arguments], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _until(url: str, code: int) -> None:
    """Waits until a node answers, and as wanted."""
    deadline = time.monotonic() + PATIENCE
    while True:
        asked = health(url)
        if asked.returncode == code and "no node at" not in asked.stderr:
            return
        assert time.monotonic() < deadline, asked
        time.sleep(0.1)  # wait: between two looks
