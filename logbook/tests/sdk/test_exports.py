"""What users import: nothing comes or goes by accident, and both faces of the SDK are alike."""

from __future__ import annotations

import inspect
from importlib import resources

import boki
import boki.sync
import boki.testing


def test_names() -> None:
    assert set(boki.__all__) == {
        "AnswerForgotten", "BokiError", "Book", "CallTimeout", "Client", "Clock", "ClosedError", "Committed", "Conflict", "Cursor",
        "ConnectionLost", "DiskFull", "Duplicate", "Gap", "GapKind", "InvalidArgument", "InvalidTag", "IteratorBusy",
        "LogBookError", "Lost", "NetworkError", "Never",
        "NumberReused", "Outcome", "OutcomeUnknown", "Overloaded", "ProtocolError", "Record",
        "Random", "RecordIterator", "RecordTooLarge", "RemoteError", "Since", "SystemClock",
        "SystemRandom", "Ticket", "TooManyWriters", "Trimmed", "Unreachable", "UsageError",
        "VersionMismatch", "Why", "WindowFull", "Writer", "WriterForgotten", "WrongCluster", "WrongLoop", "connect",
        "connect_like", "sync", "testing",
    }  # fmt: skip
    assert sorted(boki.sync.__all__) == [
        "Book",
        "Caller",
        "Client",
        "Cursor",
        "Handover",
        "RecordIterator",
        "Ticket",
        "Writer",
        "connect",
    ]
    assert sorted(boki.testing.__all__) == ["MemoryCluster", "simulated", "tag_number", "virtual_time"]
    for module in (boki, boki.sync, boki.testing):
        assert all(hasattr(module, name) for name in module.__all__)


def test_the_package_is_typed() -> None:
    assert (resources.files(boki) / "py.typed").is_file()


def public(kind: type) -> dict[str, inspect.Signature | None]:
    """Calls and properties; attributes that lie in slots are as little part of the class as others."""
    return {
        name: inspect.signature(member) if callable(member) else None
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and not inspect.ismemberdescriptor(member)
    }


def test_both_faces_have_the_same_calls() -> None:
    of_the_sdk = {"refresh_view", "why_undecided", "ask_outcome", "home"}
    for asynchronous, blocking, only_asynchronous in (
        (boki.Book, boki.sync.Book, {"id", "idle", "writer_last", *of_the_sdk}),
        (boki.Client, boki.sync.Client, {"open"}),
        (boki.Writer, boki.sync.Writer, {"append_within", "idle", "last_unknown", *of_the_sdk}),
    ):
        mine, theirs = public(asynchronous), public(blocking)
        assert mine.keys() - theirs.keys() == only_asynchronous
        assert theirs.keys() - mine.keys() <= {"using", "serving", "run", "call"}  # what takes the asynchronous book
        for name, signature in theirs.items():
            if signature is not None and name in mine:
                expected = mine[name]
                assert expected is not None
                assert signature.parameters == expected.parameters, name
    assert inspect.signature(boki.connect).parameters == inspect.signature(boki.sync.connect).parameters


def test_every_public_call_says_what_it_does() -> None:
    for kind in (boki.Book, boki.Client, boki.Ticket, boki.Record, boki.Gap, boki.RecordIterator, boki.Writer):
        assert kind.__doc__
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"
