"""Searches for every planted bug, from seed 1 on, and writes what came of it: `python -m itests.museum.record [NAME ...]`.

Without names all that are not recorded are searched for. Afterwards `python -m itests.museum.page` writes the page.
"""

from __future__ import annotations

import sys

from itests.museum.exhibit import HUNT_LIMIT_S, planted, search
from itests.museum.exhibits import EXHIBITS, exhibit
from itests.museum.found import Finding, findings, write


def main(names: list[str]) -> int:
    """Returns how many were not found."""
    known = findings()
    missed = 0
    for one in [exhibit(name) for name in names] or [one for one in EXHIBITS if one.name not in known]:
        with planted(one.mutation) as root:
            found = search(root, one, limit_s=HUNT_LIMIT_S if names else 60.0)
        sys.stdout.write(f"{one.name}: {'found' if found.bug else 'NOT FOUND'} {found.seed} {found.seconds:.1f} s\n")
        if found.seed is not None:
            sys.stdout.write(f"    {found.text.splitlines()[0][:200]}\n")
        sys.stdout.flush()
        if not found.bug:
            missed += 1
            sys.stdout.write(found.text[-500:] + "\n")
            continue
        known[one.name] = Finding(found.seed, round(found.seconds, 1))
        write(known)
    return missed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
