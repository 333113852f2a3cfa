"""Writes docs/museum.md from the exhibits: `python -m itests.museum.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from itests.museum.exhibit import CLUSTER, Exhibit, Hunt
from itests.museum.exhibits import EXHIBITS, NOT_YET
from itests.museum.found import Finding, findings
from itests.mutations.mutation import PACKAGES, ROOT

PAGE: Final = ROOT / "docs/museum.md"

_HEAD: Final = """\
# Museum of bugs

Bugs with which logs lost data, or stood still: published ones of others, and those of our own drafts. None of them is in Boki.
For each there is a *mutation*, a few lines that bring it back; every night it is planted in a copy of the sources, and has to be
found there, within ten minutes, by simulated clusters whose invariants and histories are checked, or by a scripted test. In
every run it is checked that the lines to be changed are still there, and that what finds the bug holds without it.

```sh
.venv/bin/python -m itests.museum.show NAME                                     # one of them, with the bug and without
.venv/bin/python -m pytest itests/museum -m "nightly or not nightly"            # all
```

*Seed* is the first, counted from 1, that showed the bug; *seconds* is the time from seed 1 to there on one core, or of the test.
This page is generated: `python -m itests.museum.record` searches, `python -m itests.museum.page` writes.
"""


def text() -> str:
    """The page."""
    found = findings()
    lines = [_HEAD, f"{len(EXHIBITS)} exhibits of {len(_systems())} systems.\n"]
    for system, exhibits in _systems().items():
        lines.append(f"- [{system}](#{_anchor(system)}) ({len(exhibits)})")
        lines += [f"  - [{one.issue}](#{_anchor(_title(one))})" for one in exhibits]
    for system, exhibits in _systems().items():
        lines.append(f"\n## {system}")
        for one in exhibits:
            lines += _story(one, found.get(one.name))
    lines += _missing()
    return "\n".join(lines) + "\n"


def _systems() -> dict[str, list[Exhibit]]:
    systems: dict[str, list[Exhibit]] = {}
    for one in EXHIBITS:
        systems.setdefault(one.system, []).append(one)
    return systems


def _title(one: Exhibit) -> str:
    return f"{one.issue}: {one.mutation.name}"


def _anchor(title: str) -> str:
    """As GitHub makes them of headings."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _story(one: Exhibit, found: Finding | None) -> Iterator[str]:
    yield f"\n### {_title(one)}\n"
    yield f"[{one.system}, {one.issue}]({one.link}). Lost: {one.lost}.\n"
    yield f"{one.story}\n"
    yield f"*What we do instead*: {one.instead}\n"
    yield f"*Found by*: {_how(one, found)}\n"
    yield f"```sh\n.venv/bin/python -m itests.museum.show {one.name}\n```"


def _how(one: Exhibit, found: Finding | None) -> str:
    took = f"{found.seconds:g} s" if found is not None else "not searched for yet"
    where = f"The mutation is in `{PACKAGES[one.mutation.package]}`."
    if not isinstance(one.found, Hunt):
        return f"`{one.mutation.test}`, {took}. {where}"
    what = "whole simulated clusters" if one.found.world == CLUSTER else "simulated bookies and ledger clients"
    seed = f"seed {found.seed}" if found is not None else "no seed"
    rules = ", ".join(f"`{rule}`" for rule in one.found.rules)
    return f"{what}, profile `{one.found.profile}`, {seed}, {took}; the violation is of {rules}. {where}"


def _missing() -> Iterator[str]:
    yield "\n## Not here yet\n"
    yield "| system | bug | why |\n|---|---|---|"
    for system, issue, why in NOT_YET:
        yield f"| {system} | {issue} | {why} |"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
