"""Shows one planted bug being found: `python -m itests.museum.show NAME`. Names are in docs/museum.md.

It makes a copy of the sources with the bug in it and runs there what found it: the recorded seed, or the scripted test. Then
the same without the bug. The exit code is 0 when the bug was found and what is ours holds.
"""

from __future__ import annotations

import sys

from itests.museum.exhibit import Scenario, planted, search
from itests.museum.exhibits import EXHIBITS, exhibit
from itests.museum.found import findings


def main(name: str) -> int:
    """The command."""
    try:
        one = exhibit(name)
    except KeyError:
        sys.stderr.write(
            f"there is no exhibit {name!r}; there are:\n  " + "\n  ".join(each.name for each in EXHIBITS) + "\n"
        )
        return 2
    seed = findings()[name].seed
    seeds = () if seed is None else (seed,)
    with planted(one.mutation) as root:
        with_bug = search(root, one, seeds=seeds)
    sys.stdout.write(f"{one.system} {one.issue}: {one.mutation.name}\n{with_bug.text}\n")
    with planted(None) as root:
        without = search(root, one, seeds=seeds)
    holds = not without.bug and (isinstance(one.found, Scenario) or not without.text)
    sys.stdout.write(
        f"with the bug: {'found' if with_bug.bug else 'not found'}; without: {'holds' if holds else without.text}\n"
    )
    return 0 if with_bug.bug and holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
