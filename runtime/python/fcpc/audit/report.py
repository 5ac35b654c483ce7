"""report.py: what an audit has found.

A `Finding` is one kind of difference between what was run and what the program says, with how often it was met and one
example. `Report` is the list of them; printed, it has one line a kind.
"""
from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    kind: str
    """A word that does not change, such as "sees" (a query sees a key that the program does not allow)."""
    message: str
    """The first example, as "query 1031 of sequence 2 (rank 3) sees key 1030 of sequence 1 (rank 2); the program does
    not allow it"."""
    count: int  # type: ignore[assignment] # a tuple's own `count` is not missed
    """How many pairs, rows or tokens are of this kind."""
    of: int
    """How many were compared."""


class Report:
    """The findings of one audit, and their likely causes.

    findings  list of Finding; empty: no difference was found
    causes    list of str, the known patterns that fit all findings, the likeliest first: "shifted by one rank: ..."
    ok        True if there are no findings
    """

    def __init__(self, findings: list[Finding], causes: list[str]) -> None:
        self.findings, self.causes = findings, causes

    @property
    def ok(self) -> bool:
        """True if no difference was found."""
        return not self.findings

    def __repr__(self) -> str:
        lines = [f"{x.message} ({x.count} of {x.of})" for x in self.findings] or ["no difference was found"]
        return "\n".join(lines + [f"likely cause: {cause}" for cause in self.causes])
