"""The commands of docs/guides/install.md, so that tests run what people are told to type."""

import re

from needs import ROOT

_FENCE = re.compile(r"^```sh (?P<name>[a-z0-9-]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(section: str) -> dict[str, str]:
    """Returns the commands of a section by the name that stands behind their fence's `sh`."""
    text = (ROOT / "docs" / "guides" / "install.md").read_text()
    parts = {part.partition("\n")[0].strip(): part for part in re.split(r"^## ", text, flags=re.MULTILINE)}
    return {fence["name"]: fence["text"] for fence in _FENCE.finditer(parts[section])}


def fenced(language: str) -> str:
    """Returns the one block of a language."""
    text = (ROOT / "docs" / "guides" / "install.md").read_text()
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return found
