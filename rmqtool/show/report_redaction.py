"""What of a report is redacted: findings quote hosts and keys, traces have all of a message."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from rmqtool.findings.finding import Finding
from rmqtool.scan.redaction import Redaction

_HOST = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"
    r"|\[[0-9a-fA-F.]*:[0-9a-fA-F:.]+\](?::\d{1,5})?"
    r"|(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
_QUOTING = ("index.", "config.", "timer.", "consumequeue.tags-code", "consumequeue.ext-address", "commitlog.field")
"""Codes whose sentences or details may quote keys, tags codes or properties of messages."""


class ReportRedaction:
    """Redacts sentences and messages; without a redaction all stays as it is."""

    def __init__(self, redaction: Redaction | None) -> None:
        self._redaction = redaction

    @property
    def hides_keys(self) -> bool:
        """Whether unique keys and message ids are hidden: they hold hosts, too."""
        return self._redaction is not None and bool(self._redaction.what & {"keys", "hosts", "properties"})

    @property
    def hides_hosts(self) -> bool:
        """Whether hosts are hidden."""
        return self._redaction is not None and "hosts" in self._redaction.what

    def text(self, sentence: str) -> str:
        """A sentence or a command without the hosts in it."""
        redaction = self._redaction
        if redaction is None or not self.hides_hosts:
            return sentence
        return _HOST.sub(lambda found: redaction.text(found[0]), sentence)

    def finding(self, finding: Finding) -> str:
        """What a finding says."""
        if self._may_quote(finding):
            return "(left out: it may quote what is redacted)"
        return self.text(finding.message)

    def redacted(self, finding: Finding) -> Finding:
        """A finding without what its sentence and its details quote; hosts stay in the details."""
        details = {} if self._may_quote(finding) else finding.details
        return replace(finding, message=self.finding(finding), details=details)

    def _may_quote(self, finding: Finding) -> bool:
        what = self._redaction.what if self._redaction else frozenset()
        return bool(what & {"keys", "properties"}) and finding.code.startswith(_QUOTING)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message with its trace."""
        redacted: dict[str, Any] = self._redaction.value(message) if self._redaction else message
        return redacted
