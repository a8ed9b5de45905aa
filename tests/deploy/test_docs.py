"""The docs inside the packaged program, read and searched by a real browser. docs/guides/install.md says it in words."""

import gzip
import re
import runpy
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import ROOT, need_tool
from packages import packages
from polling import wait_until

pytestmark = pytest.mark.timeout(1200)

# Most bytes of the compressed book: docs/guides/install.md names its size.
BYTES_MAX = 1_500_000
PAGE_MS = 20_000
"""Virtual time that the browser gives a page: it passes as fast as nothing is left to do."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the address of the admin listener of a node from the package."""
    folder = tmp_path_factory.mktemp("docs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{probe.getsockname()[1]}"
    (folder / "spillway.toml").write_text(
        '[[listener]]\naddress = "127.0.0.1:0"\nauth = "none"\n'
        f'[admin]\naddress = "{admin}"\n'
        '[[replica]]\nname = "a"\nurl = "http://127.0.0.1:9"\n'
    )
    log = (folder / "log").open("w")
    process = subprocess.Popen([packages() / "spillway", "run"], cwd=folder, stderr=log, stdout=log)
    try:
        wait_until("the node answers", lambda: status(f"http://{admin}/livez") == 200)
        yield f"http://{admin}"
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, {name.lower(): text for name, text in reply.headers.items()}, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): text for name, text in error.headers.items()}, error.read()


def status(url: str) -> int:
    try:
        return ask(url)[0]
    except OSError:
        return 0


def pages() -> list[str]:
    """Returns all pages of the book by their names below /docs/. `conf.py` names the folders that are not part of it."""
    excluded = runpy.run_path(str(ROOT / "docs/book/conf.py"))["exclude_patterns"]
    found = (ROOT / "docs").rglob("*.md")
    below = [page.relative_to(ROOT / "docs") for page in found]
    return [str(page.with_suffix(".html")) for page in below if not any(page.is_relative_to(it) for it in excluded)]


def test_every_page_is_served_small_and_with_nothing_inline(node: str) -> None:
    size = 0
    for page in pages():
        code, headers, body = ask(f"{node}/docs/{page}", accept_encoding="gzip")
        assert code == 200, page
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["content-encoding"] == "gzip"
        size += len(body)
        text = gzip.decompress(body).decode()
        # The policy would block these.
        assert not re.search(r"<script>|<style>|\sstyle=|\son\w+=\"", text), page
        code, _, _ = ask(f"{node}/docs/{page}", if_none_match=headers["etag"])
        assert code == 304, page
    for file in ["searchindex.js", "_static/styles/furo.css", "_static/searchtools.js"]:
        size += len(ask(f"{node}/docs/{file}", accept_encoding="gzip")[2])
    assert size < BYTES_MAX, size


def test_no_path_leads_out_of_the_book(node: str) -> None:
    host, port = node.removeprefix("http://").split(":")
    for path in ["/docs/../../etc/passwd", "/docs/%2e%2e/%2e%2e/etc/passwd", "/docs//etc/passwd", "/docs/.doctrees/x"]:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            assert b" 404 " in connection.recv(4096).split(b"\r\n")[0], path


def test_links_of_alerts_and_problems_lead_to_their_part(node: str) -> None:
    rules = (ROOT / "deploy/observability/rules.yml").read_text()
    links = re.findall(r"runbook_url: 'http://\{\{ \$labels.instance \}\}(/docs/\S+)#(\w+)'", rules)
    assert len(links) >= 20
    for path, anchor in set(links):
        assert f'id="{anchor}"' in ask(node + path)[2].decode(), anchor
    shown = subprocess.run(
        [packages() / "spillway", "status", "--admin", node], capture_output=True, text=True, check=False
    ).stdout
    link = re.search(r"^see (http://\S+?)(?:#(\S+))?$", shown, re.MULTILINE)
    assert link is not None, shown
    assert f'id="{link[2]}"' in ask(link[1])[2].decode(), shown
    errors = ask(f"{node}/docs/reference/errors.html")[2].decode()
    assert 'id="rate_limited"' in errors and 'id="no_replica"' in errors


def browse(url: str, folder: Path) -> str:
    """Returns a page as the browser has it once its scripts have run."""
    chromium = need_tool("chromium", "chromium")
    shown = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--enable-logging=stderr",
         f"--virtual-time-budget={PAGE_MS}", "--dump-dom", url],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    refused = [line for line in shown.stderr.splitlines() if "Content Security Policy" in line or "Trusted" in line]
    assert refused == [], refused
    return shown.stdout


def test_the_search_works_in_a_browser_under_the_policy(node: str, tmp_path: Path) -> None:
    # The browser may be through with its virtual time before the last of the found pages is read.
    def finds() -> bool:
        found = browse(f"{node}/docs/search.html?q=breaker", tmp_path)
        return re.search(r'class="search">.*explanation/replicas\.html', found, re.DOTALL) is not None

    wait_until("the search finds a page", finds)
    front = browse(f"{node}/docs/", tmp_path)
    assert 'data-theme="auto"' in front, "the theme's script ran"
