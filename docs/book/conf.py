"""Makes a book of the pages of `docs/`: HTML that reads and searches offline. `cargo xtask book` runs it.

The index `docs/README.md` is the table of contents. Each `##` there is a part, and each page that its tables link to is a
chapter. A page that the index does not name is a warning, and warnings fail the build.
"""

import hashlib
import re
from pathlib import Path

project = "Spillway"
author = "the Spillway authors"
project_copyright = "the Spillway authors, Apache License 2.0"

extensions = ["myst_parser"]
root_doc = "README"
# Complete tables of measurements are files that pages link to.
exclude_patterns = ["book", "measured/data"]
# Pages are written for plain Markdown, with GitHub's anchors of headings.
myst_heading_anchors = 4
# Fences of languages that no highlighter knows, e.g. of firewalls.
suppress_warnings = ["misc.highlighting_failure"]
# Links to a heading of another page, to a file and to a missing page are all checked.
nitpicky = True

html_theme = "furo"
html_title = "Spillway"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["book.css", "attributes.css"]
# Before the search, which writes into the page.
html_js_files = [("trusted-types.js", {"priority": 100})]
html_theme_options = {"top_of_page_buttons": []}
# Highlighting that furo has for light and dark.
pygments_style = "friendly"
pygments_dark_style = "monokai"

_PART = re.compile(r"^## (?P<title>.+)\n(?P<text>(?:(?!^## ).*\n?)*)", re.MULTILINE)
_CHAPTER = re.compile(r"^\| \[[^\]]*\]\((?P<page>[^)#:]+)\.md\)", re.MULTILINE)


_LINK = re.compile(r"\]\((?P<path>[^)\s:#]+)\)")


def setup(app) -> None:
    app.connect("source-read", _add_contents)
    app.connect("source-read", _take_files_along)
    app.connect("build-finished", _add_front_door)
    app.connect("build-finished", _move_out_what_is_inline)


def _add_contents(app, page: str, source: list[str]) -> None:
    """Turns the index's tables into the contents of the book."""
    if page != root_doc:
        return
    # Chapters by their titles: file names are for readers of the repository.
    source[0] = re.sub(r"\| \[[a-z0-9/-]+(?:\.md)?\]\(", "| [](", source[0])
    for part in _PART.finditer(source[0]):
        # A page in two tables is a chapter of the first one.
        chapters = "\n".join(dict.fromkeys(_CHAPTER.findall(part["text"])))
        if chapters:
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part['title']}\n\n{chapters}\n```\n"


def _take_files_along(app, page: str, source: list[str]) -> None:
    """Puts files that pages link to and that are no pages into the book, as they are."""
    folder = Path(app.srcdir, page).parent
    data = Path(app.srcdir, "measured", "data")

    def link(found: re.Match[str]) -> str:
        path = (folder / found["path"]).resolve()
        is_page_or_picture = path.is_relative_to(app.srcdir) and not path.is_relative_to(data)
        return found[0] if is_page_or_picture or not path.is_file() else f"](path:{found['path']})"

    source[0] = _LINK.sub(link, source[0])


def _add_front_door(app, error: Exception | None) -> None:
    """Leads whoever opens the folder to the index, which is README.md for readers of the repository."""
    if error is None and app.builder.name == "html":
        text = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">Spillway</a>\n'
        Path(app.outdir, "index.html").write_text(text)


_INLINE = re.compile(r"<(?P<tag>script|style)>(?P<text>.*?)</(?P=tag)>", re.DOTALL)
_ATTRIBUTE = re.compile(r" style=\"(?P<text>[^\"]*)\"")


def _move_out_what_is_inline(app, error: Exception | None) -> None:
    """Moves scripts and styles of pages into files: a node serves the book under a policy that allows nothing inline."""
    if error is not None or app.builder.name != "html":
        return
    out, rules = Path(app.outdir), {}
    for page in sorted(out.rglob("*.html")):
        static = "../" * (len(page.relative_to(out).parts) - 1) + "_static"

        def move(found: re.Match[str], static: str = static) -> str:
            suffix = {"script": "js", "style": "css"}[found["tag"]]
            name = f"inline-{hashlib.sha256(found['text'].encode()).hexdigest()[:12]}.{suffix}"
            (out / "_static" / name).write_text(found["text"])
            if suffix == "js":
                return f'<script src="{static}/{name}"></script>'
            return f'<link rel="stylesheet" type="text/css" href="{static}/{name}" />'

        def rename(found: re.Match[str]) -> str:
            rules[found["text"]] = f'[data-style="{found["text"]}"] {{ {found["text"].rstrip(";")}; }}\n'
            return f' data-style="{found["text"]}"'

        text = _INLINE.sub(move, page.read_text())
        page.write_text(_ATTRIBUTE.sub(rename, text))
    (out / "_static" / "attributes.css").write_text("".join(rules[text] for text in sorted(rules)))
