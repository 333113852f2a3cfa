"""`python -m examples.hotel`: the application under load while it is killed, and a report. Exit code 1 if anything is wrong."""

from __future__ import annotations

import sys

from examples.apps.command import main
from examples.hotel.application import HOTEL

if __name__ == "__main__":
    sys.exit(main(HOTEL))
