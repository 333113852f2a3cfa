"""A host of the bank: a process that runs its machines.

    python -m examples.banking.host URL --name host-1.1 --slot host-1

It runs until its standard input closes, and prints nothing.
"""

from __future__ import annotations

from examples.banking.app import BANK, BOOK
from examples.machine_hosts import run_host

if __name__ == "__main__":
    run_host("examples.banking.host", BANK, BOOK)
