"""A host of the word count: a process that runs its machines.

    python -m examples.wordcount.host URL --name host-1.1 --slot host-1

It runs until its standard input closes, and prints nothing.
"""

from __future__ import annotations

from examples.machine_hosts import run_host
from examples.wordcount.app import BOOK, WORDS

if __name__ == "__main__":
    run_host("examples.wordcount.host", WORDS, BOOK)
