"""Feeds BookKeeper's decoders with what atheris thinks of, guided by the branches it reaches. Not a test of pytest's.

    .venv/bin/python -m pip install "atheris>=3,<4"      # not locked: its wheels exist for few versions of Python
    .venv/bin/python common/tests/fuzz/decoders.py -max_total_time=600

Frames are those that a peer may send, without their length; it begins with the recorded ones. What a decoder raises must
be one of our own errors, and what it takes must encode to a frame that it takes again. A finding is written to a file
`crash-…`; give that file as argument to see it again. Options are libFuzzer's.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

atheris: Any = importlib.import_module("atheris")
"""Not among the locked libraries, so nobody who reads types knows it."""

with atheris.instrument_imports(include=["boki_common"]):
    from boki_common.bookkeeper import auth, availability, ledger_metadata, v2, v3
    from boki_common.errors import BokiError

VECTORS = Path(__file__).parents[1] / "vectors" / "bookkeeper"


def v3_request(frame: memoryview) -> None:
    request = v3.decode_request(frame)
    if not isinstance(request, v3.UnknownRequest):
        again = v3.decode_request(memoryview(v3.encode_request(request))[4:])
        assert again == request, (again, request)


def v3_response(frame: memoryview) -> None:
    response = v3.decode_response(frame)
    assert v3.decode_response(memoryview(v3.encode_response(response))[4:]) == response


def list_of_entries(frame: memoryview) -> None:
    runs = list(availability.decode(frame))
    assert sum(map(len, runs)) <= availability.ENTRIES_LIMIT


def metadata(frame: memoryview) -> None:
    ledger_metadata.decode(bytes(frame))


TARGETS: tuple[Callable[[memoryview], object], ...] = (
    v2.decode_request, v2.decode_response, v3_request, v3_response, list_of_entries, metadata, auth.decode,
)  # fmt: skip


def one_input(data: bytes) -> None:
    """The first byte chooses the decoder."""
    if not data:
        return
    try:
        TARGETS[data[0] % len(TARGETS)](memoryview(data)[1:])
    except BokiError:
        pass


def write_seeds(folder: Path) -> None:
    """Every recorded frame for every decoder that may meet it."""
    for path in sorted(VECTORS.glob("*v[23]-*.txt")):
        for number, line in enumerate(path.read_text().splitlines()):
            kind, separator, text = line.partition(": ")
            if separator and kind.startswith(("request.", "response.")):
                target = (0 if "v2-" in path.name else 2) + kind.startswith("response.")
                (folder / f"{path.stem}-{number}").write_bytes(bytes((target,)) + bytes.fromhex(text)[4:])


def main() -> None:
    with tempfile.TemporaryDirectory() as seeds:
        write_seeds(Path(seeds))
        named = any(not argument.startswith("-") for argument in sys.argv[1:])
        atheris.Setup(sys.argv if named else [*sys.argv, seeds], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
