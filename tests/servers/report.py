"""What a run found: tables for people, the same as JSON, and which checks failed."""

import dataclasses
import json
import re
from dataclasses import dataclass, field

# Where its part of a page begins.
BEGIN = "<!-- below: made by tests/servers/run.py --markdown -->"


@dataclass
class Section:
    """One scene's findings."""

    title: str
    header: list[str] = field(default_factory=list)
    rows: list[list[str | int | float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # What should hold, and does not.
    failures: list[str] = field(default_factory=list)

    def add(self, *cells: str | int | float) -> None:
        self.rows.append(list(cells))

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.failures.append(otherwise)

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.rows:
            rule = ["---"] * len(self.header)
            lines += [*map(line, [self.header, rule, *self.rows]), ""]
        lines += [f"- {note}" for note in self.notes]
        lines += [f"- **FAILED**: {failure}" for failure in self.failures]
        return "\n".join(lines).rstrip() + "\n"


def line(cells: list[str | int | float]) -> str:
    return "| " + " | ".join(shown(cell) for cell in cells) + " |"


def shown(cell: str | int | float) -> str:
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < 10 else f"{cell:.0f}"
    return str(cell).replace("|", "\\|").replace("\n", " ")


def markdown(facts: dict[str, str], sections: list[Section]) -> str:
    failed = sum(len(section.failures) for section in sections)
    verdict = "Every check passed." if not failed else f"**{failed} checks failed.**"
    about = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    parts = [f"# Two vLLM servers behind Spillway\n\n{verdict}\n\n{about}\n"]
    return "\n".join(parts + [section.markdown() for section in sections])


def into_page(page: str, report: str) -> str:
    """The page with this report instead of an earlier one, its headings one level down."""
    kept = page.partition(BEGIN)[0].rstrip()
    part = f"{BEGIN}\n\n" + re.sub(r"^#", "##", report, flags=re.MULTILINE)
    return f"{kept}\n\n{part}" if kept else part


def as_json(facts: dict[str, str], sections: list[Section]) -> str:
    found = {"facts": facts, "sections": [dataclasses.asdict(each) for each in sections]}
    return json.dumps(found, indent=2)
