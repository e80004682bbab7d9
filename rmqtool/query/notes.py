"""What a search has to say besides its messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notes:
    """Sentences for people; `lossy` when damage stood in the way: what was found may not be all."""

    lines: list[str] = field(default_factory=list)
    lossy: bool = False

    def add(self, line: str, *, lossy: bool = False) -> None:
        """Add a sentence, once."""
        self.lossy |= lossy
        if line not in self.lines:
            self.lines.append(line)
