"""Runs a program in a terminal of its own and draws what it shows as an SVG picture.

    python3 tests/pictures/record.py --size 100x30 --out demo.svg -- target/release/spillway demo --once

One frame is kept for each second (`--every`), and the picture plays them in a loop. `--still TEXT` keeps the
last frame that holds TEXT alone. Needs `pyte`, a terminal in Python: `pip install pyte`.
"""

import argparse
import fcntl
import html
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pyte

# Cells in pixels, and the colours of a terminal whose background suits light and dark pages.
WIDTH, HEIGHT = 8.4, 18
PLAIN, BACKGROUND = "d8dee9", "1b1f27"
COLOURS = {
    "default": PLAIN,
    "black": "3b4252",
    "red": "ff6b6b",
    "green": "7bd88f",
    "brown": "ffd166",
    "blue": "6ca8ff",
    "magenta": "d6a2ff",
    "cyan": "6fd6e0",
    "white": "eceff4",
    # The same, as programs name them among 256 colours.
    "cd0000": "ff6b6b",
    "00cd00": "7bd88f",
    "cdcd00": "ffd166",
    "0000ee": "6ca8ff",
    "cd00cd": "d6a2ff",
    "00cdcd": "6fd6e0",
}


def frames(command, columns, rows, every, limit):
    """Yields the time and the screen of the program, each `every` seconds and at its end."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    started = taken = time.monotonic()
    try:
        while time.monotonic() < started + limit:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    data = os.read(terminal, 65536)
                except OSError:
                    break
                if not data:
                    break
                # An older terminal has no such sequence, and pyte prints its end.
                stream.feed(data.replace(b"\x1b[>", b"\x1b[?"))
            if time.monotonic() >= taken + every:
                taken = time.monotonic()
                yield taken - started, copy_of(screen)
        yield time.monotonic() - started, copy_of(screen)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def copy_of(screen):
    """Returns the rows of the screen as lists of (text, colour, is bold, is inverse)."""
    rows = []
    for y in range(screen.lines):
        row = []
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            name = cell.fg.removeprefix("bright")
            style = (COLOURS.get(name, name if len(name) == 6 else PLAIN), cell.bold, cell.reverse)
            if row and row[-1][1:] == style:
                row[-1] = (row[-1][0] + cell.data, *style)
            else:
                row.append((cell.data, *style))
        rows.append(row)
    return rows


def text_of(rows):
    return "\n".join("".join(part[0] for part in row) for row in rows)


def group(rows):
    """Returns one screen as SVG."""
    parts = []
    for y, row in enumerate(rows):
        x = 0
        for text, colour, is_bold, is_inverse in row:
            left, top = x * WIDTH, y * HEIGHT
            x += len(text)
            if not text.strip() and not is_inverse:
                continue
            if is_inverse:
                parts.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="#{colour}"/>'
                )
            fill = BACKGROUND if is_inverse else colour
            weight = ' font-weight="bold"' if is_bold else ""
            parts.append(
                f'<text x="{left:.1f}" y="{top + 14}" textLength="{len(text) * WIDTH:.1f}" fill="#{fill}"{weight}>'
                f"{html.escape(text)}</text>"
            )
    return "".join(parts)


def picture(screens, columns, rows, every):
    """Returns all screens as one SVG that plays them; one screen stands still."""
    width, height = columns * WIDTH + 20, rows * HEIGHT + 20
    whole = len(screens) * every
    style = "text{white-space:pre;font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    if len(screens) > 1:
        share = 100 / len(screens)
        style += f".f{{visibility:hidden;animation:f {whole:.1f}s infinite step-end}}"
        style += f"@keyframes f{{0%{{visibility:visible}}{share:.4f}%{{visibility:hidden}}}}"
        # Who wants no motion sees the last screen.
        style += "@media(prefers-reduced-motion:reduce){.f{animation:none}.f:last-child{visibility:visible}}"
    groups = [
        f'<g class="f" style="animation-delay:{index * every:.1f}s">{group(screen)}</g>'
        if len(screens) > 1
        else f"<g>{group(screen)}</g>"
        for index, screen in enumerate(screens)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">'
        f'<style>{style}</style><rect width="100%" height="100%" rx="8" fill="#{BACKGROUND}"/>'
        f'<g transform="translate(10 10)">{"".join(groups)}</g></svg>\n'
    )


def main():
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--size", default="100x30", help="columns x rows (default: %(default)s)")
    about.add_argument("--out", required=True, help="the SVG to write")
    about.add_argument("--every", type=float, default=1.0, help="seconds between two frames (default: %(default)s)")
    about.add_argument("--limit", type=float, default=120.0, help="seconds after which the program is ended")
    about.add_argument("--still", metavar="TEXT", help="keep only the last frame that holds TEXT")
    about.add_argument("--play", type=float, default=1.0, help="seconds for which a frame is shown")
    about.add_argument("command", nargs="+")
    asked = about.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    screens = []
    for at, screen in frames(asked.command, columns, rows, asked.every, asked.limit):
        text = text_of(screen)
        if text.strip() and (asked.still is None or asked.still in text):
            screens = [*screens, screen] if asked.still is None else [screen]
        if sys.stderr.isatty():
            print(f"\r{at:5.0f} s, {len(screens)} frames", end="", file=sys.stderr)
    if not screens:
        sys.exit("nothing was seen")
    with open(asked.out, "w", encoding="utf-8") as file:
        file.write(picture(screens, columns, rows, asked.play))


if __name__ == "__main__":
    main()
