"""Notes of a search for the user, besides its messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notes:
    """Sentences for people; `lossy` when damage was met, so that messages may be missing."""

    lines: list[str] = field(default_factory=list)
    lossy: bool = False

    def add(self, line: str, *, lossy: bool = False) -> None:
        """Add a sentence, once."""
        self.lossy |= lossy
        if line not in self.lines:
            self.lines.append(line)
