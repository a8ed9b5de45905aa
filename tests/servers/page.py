"""Reads the metrics pages of servers and gateway."""

import re
import urllib.request

SERIES = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
TIMEOUT_S = 5


class Page:
    """One reading of a metrics page."""

    def __init__(self, text: str) -> None:
        self.series = [
            (name, dict(LABEL.findall(labels)), float(value))
            for name, labels, value in SERIES.findall(text)
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum of all series of that name that have these labels; 0 if there is none."""
        return sum(
            value
            for each, has, value in self.series
            if each == name and labels.items() <= has.items()
        )

    def has(self, name: str) -> bool:
        return any(each == name for each, _, _ in self.series)


def read(url: str) -> Page:
    """The page at `url`/metrics as it stands now."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT_S) as response:
        return Page(response.read().decode())
