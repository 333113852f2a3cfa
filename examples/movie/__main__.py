"""Command `python -m examples.movie`; see the package."""

from __future__ import annotations

import sys

from examples.apps.command import main
from examples.movie.application import MOVIE

if __name__ == "__main__":
    sys.exit(main(MOVIE))
