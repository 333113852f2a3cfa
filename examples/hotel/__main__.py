"""Command `python -m examples.hotel`; see the package."""

from __future__ import annotations

import sys

from examples.apps.command import main
from examples.hotel.application import HOTEL

if __name__ == "__main__":
    sys.exit(main(HOTEL))
