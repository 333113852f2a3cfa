"""Feeds BookKeeper's decoders with what atheris thinks of, guided by the branches it reaches. Not a test of pytest's.

    make fuzz                                                            # ten minutes; installs atheris into .venv
    .venv/bin/python common/tests/fuzz/decoders.py -max_total_time=60    # options are libFuzzer's

Frames are those that a peer may send, without their length; it begins with the recorded ones, and with ledger metadata of all
three versions. What a decoder raises must be one of our own errors, and what it takes must encode to what it takes again, and
means the same. A finding is written to a file `crash-…`; give that file as argument to see it again.
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
    from boki_common.ids import BookieId

LISTED_LIMIT = 10_000
"""Lists of more entries are not read to their end: a few bytes may stand for a hundred million."""
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
    entries: list[int] = []
    for run in availability.decode(frame):
        if len(entries) + len(run) > LISTED_LIMIT:
            return
        entries.extend(run)
    assert [entry for run in availability.decode(availability.encode(entries)) for entry in run] == entries


def metadata(frame: memoryview) -> None:
    found = ledger_metadata.decode(bytes(frame))
    assert ledger_metadata.decode(ledger_metadata.encode(found)) == found


TARGETS: tuple[Callable[[memoryview], object], ...] = (
    v2.decode_request, v2.decode_response, v3_request, v3_response, list_of_entries, metadata, auth.decode,
)  # fmt: skip

OTHER_SEEDS: tuple[tuple[Callable[[memoryview], object], bytes], ...] = (
    (list_of_entries, availability.encode([*range(20), 30, 31, 40, 41, 50, 51])),
    (metadata, ledger_metadata.encode(
        ledger_metadata.LedgerMetadata(
            2, 2, 1, ((0, (BookieId("a"), BookieId("b"))), (5, (BookieId("a"), BookieId("c")))),
            ledger_metadata.LedgerState.CLOSED, 9, 99, "HMAC", b"password", (("name", b"value"),), 7, 1,
        )
    )),
    (metadata, (b'BookieMetadataFormatVersion\t2\nquorumSize: 1 ensembleSize: 1 length: 9 lastEntryId: 0 state: CLOSED '
                b'segment { ensembleMember: "a:1" firstEntryId: 0 } digestType: CRC32 password: "p" ackQuorumSize: 1')),
    (metadata, b"BookieMetadataFormatVersion\t1\n1\n1\n9\n0\ta:1\n4\tCLOSED"),
)  # fmt: skip
"""What is not recorded, one of each kind."""


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
    for number, (decoder, frame) in enumerate(OTHER_SEEDS):
        (folder / f"other-{number}").write_bytes(bytes((TARGETS.index(decoder),)) + frame)


def main() -> None:
    with tempfile.TemporaryDirectory() as seeds:
        write_seeds(Path(seeds))
        named = any(not argument.startswith("-") for argument in sys.argv[1:])
        atheris.Setup(sys.argv if named else [*sys.argv, seeds], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
