"""What README.md and docs/ tell people to type and to write, tried. documents.py says how blocks are marked."""

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from documents import COPIED, WALKED, Block, blocks, commands, completed, contains, empty_location_database, free_move, moved, pages, typed
from world import spillway

# A recipient of `age` that nobody has the private key of.
PUBLIC_KEY = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
# Words of an example that the program would look at: what a reader puts there.
FILLED_IN = {"ADDRESS": "203.0.113.7", "KIND": "tenant", "age1…": PUBLIC_KEY, "…": PUBLIC_KEY}
ALL = [block for page in pages() for block in blocks(page) if block.language in COPIED]
CONFIGS = [block for block in ALL if block.language == "toml" and not block.is_illustrative]


def test_every_block_is_tried_or_marked() -> None:
    loose = [block.place for block in ALL if not block.is_tried and not block.is_illustrative]
    assert not loose, "mark as `illustrative`, or name a test in the section: `<!-- test: FILE TEST -->`"


def test_no_block_that_a_test_runs_is_marked_as_illustrative() -> None:
    assert not [block.place for block in ALL if block.is_illustrative and len(block.words) > 1]


def test_no_step_has_a_comment() -> None:
    """An interactive zsh, the shell of macOS, takes what follows a `#` as arguments."""
    said = [f"{block.place}: {line}" for block in ALL if block.is_walked and block.language == "sh" for line in typed(block)]
    assert not [line for line in said if re.search(r"(^|\s)#", line)]


def test_every_request_by_curl_says_that_it_is_json() -> None:
    """curl says that it sends a form, which vLLM refuses."""
    lines = [
        (block.place, line)
        for block in ALL
        if block.language in {"sh", "console"}
        for line in re.sub(r"\\\n\s*", " ", block.text).splitlines()
    ]
    asks = [(place, line) for place, line in lines if re.search(r"curl .*/v1/(chat/completions|completions|responses|embeddings)", line)]
    # The search is broken if it finds few of them.
    assert len(asks) >= 5
    assert not [place for place, line in asks if "content-type: application/json" not in line]


def test_every_command_is_one_that_the_program_has() -> None:
    """The program parses each as it stands, and then prints its help."""
    found = [command for page in pages() for command in commands(page)]
    # The search is broken if it finds few of them.
    assert len(found) > 150

    def refusal(command: tuple[str, list[str]]) -> str | None:
        place, words = command
        filled = [FILLED_IN.get(word, word) for word in words]
        done = subprocess.run(
            [spillway(), *filled, "--help"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
        return None if done.returncode == 0 else f"{place}\n    {done.stderr.strip().splitlines()[0]}"

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        refused = [text for text in pool.map(refusal, found) if text]
    assert not refused, "\n" + "\n".join(refused)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that samples of configs name."""
    folder = tmp_path_factory.mktemp("config")
    nodes = [["node", "--region", "eu-central-1", "--node", "eu-1"], ["node", "--region", "ap-northeast-1", "--node", "n4"]]
    for arguments in [["init", "--cluster", "prod"], *nodes]:
        subprocess.run([spillway(), "certs", *arguments, "--dir", "certs"], cwd=folder, check=True, capture_output=True)
    certs = folder / "certs"
    for source, name in [("eu-1.eu-central-1.pem", "cert.pem"), ("eu-1.eu-central-1-key.pem", "key.pem"), ("ca.pem", "ca.pem")]:
        shutil.copy(certs / source, folder / name)
    (folder / "tokens").write_text(f"ada admin {'0123456789abcdef' * 2}\n")
    for kind in ("GeoLite2-City", "GeoLite2-Country", "GeoLite2-ASN"):
        (folder / f"{kind}.mmdb").write_bytes(empty_location_database(kind))
    return folder


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: block.place)
def test_a_config_is_accepted(block: Block, beside: Path) -> None:
    (beside / "spillway.toml").write_text(completed(block.text))
    done = subprocess.run(
        [spillway(), "config", "check", "spillway.toml"],
        cwd=beside, env={**os.environ, "GPU_KEY": "secret"}, capture_output=True, text=True, timeout=30, check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{completed(block.text)}"


@pytest.mark.parametrize("page", WALKED)
def test_a_page_works_by_copy_and_paste(page: str, tmp_path: Path) -> None:
    steps = [block for block in blocks(page) if block.is_walked]
    by = free_move([step.text for step in steps])
    (tmp_path / "walk.sh").write_text(_script(steps, by))
    path = f"{Path(spillway()).parent}:{os.environ['PATH']}"
    # Where commands look for a node by default has moved, too.
    admin = moved("http://127.0.0.1:9900", by)
    with (tmp_path / "output.txt").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "walk.sh"], cwd=tmp_path, env={**os.environ, "PATH": path, "SPILLWAY_ADMIN": admin},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            code = shell.wait(timeout=50)
        except subprocess.TimeoutExpired:
            code = "none within 50 s"
        finally:
            # What a page has started and not ended, too.
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
    text = (tmp_path / "output.txt").read_text(errors="replace")
    logs = "".join(f"--- {log.name}\n{log.read_text()[-2_000:]}" for log in tmp_path.glob("*.log"))
    assert code == 0, f"exit code {code}\n{text[-5_000:]}\n{logs}"
    said = text.split("=== step ")
    for number, step in enumerate(steps):
        if step.language == "text" and "output" in step.words:
            before = said[number].partition("\n")[2]
            missing = contains(before, moved(step.text, by))
            assert missing is None, f"{step.place}: not printed: {missing}\n{before}"


def _script(steps: list[Block], by: int) -> str:
    """Makes one script of the steps: all in one shell, as a reader has one terminal."""
    lines = ["set -euo pipefail"]
    for number, step in enumerate(steps, 1):
        lines.append(f"echo '=== step {number}'")
        text = moved(step.text, by)
        match step.language:
            case "sh":
                lines.append(text)
            case "python":
                lines.append(f"'{sys.executable}' - <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\necho")
            case "toml":
                # The first line names the file.
                lines.append(f"cat > {text.split()[1]} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK")
    return "\n".join(lines) + "\n"
