"""The evidence of a LOST command: what was found of the entries that it gives up, when, and who says why they are lost. Pure.

UTF-8 JSON, at most `limits.LOST_EVIDENCE_BYTES`:

    {"version": 2, "ledger": 31, "first": 4711, "stop": 4713, "indexed": true, "bookies_are_gone": false,
     "reason": "a fire, ticket 17", "by": "ops@host-3", "time_ms": 1767225600000,
     "answers": {"4711": "NoSuchEntry: all 3 replicas deny entry 4711 …"},                 of the first entries, all together
     "bookies": {"4711": {"host-1:3181": "never had it", "host-2:3181": "gave no answer"}}}  each bookie that may have it

Rules:
- It is for people. Nothing is decided by it: an engine keeps its bytes and never looks into them, so whatever is in them hurts none.
- Version 1 has no version, who, when and no bookies. What is damaged, or of a later version, is returned as such.
- What is too long is cut when it is written: entries and their answers from the end, until the rest fits.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from boki_common import limits
from boki_common.errors import DECODE_FAULTS, CorruptData, VersionMismatch
from boki_common.runtime.ports import Buffer

VERSION: Final = 2
REASON_CHARACTERS: Final = 1_000
BY_CHARACTERS: Final = 200
ANSWER_CHARACTERS: Final = 300
SHOWN_CHARACTERS: Final = 200
"""Of evidence that cannot be read."""


class LossEvidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. Every field may be missing: earlier versions had fewer."""

    version: int = 1
    ledger: int = 0
    first: int = 0
    stop: int = 0
    indexed: bool = False
    bookies_are_gone: bool = False
    reason: str = ""
    by: str = ""
    time_ms: int = 0
    answers: dict[str, str] = {}
    bookies: dict[str, dict[str, str]] = {}


class _Version(msgspec.Struct):
    version: int = 1


def encode_evidence(evidence: LossEvidence) -> bytes:
    """The bytes, within their bound: texts are cut, and the answers about the last entries are left out where they do not fit."""
    cut = msgspec.structs.replace(
        evidence,
        version=VERSION,
        reason=_sound(evidence.reason, REASON_CHARACTERS),
        by=_sound(evidence.by, BY_CHARACTERS),
        answers={entry: answer[:ANSWER_CHARACTERS] for entry, answer in evidence.answers.items()},
        bookies={
            entry: {bookie: answer[:ANSWER_CHARACTERS] for bookie, answer in answers.items()}
            for entry, answers in evidence.bookies.items()
        },
    )
    data = msgspec.json.encode(cut)
    while len(data) > limits.LOST_EVIDENCE_BYTES:
        entries = sorted({*cut.answers, *cut.bookies}, key=lambda entry: (len(entry), entry))[:-1]
        assert entries or cut.answers or cut.bookies, "reason and name fit"
        cut = msgspec.structs.replace(
            cut,
            answers={entry: cut.answers[entry] for entry in entries if entry in cut.answers},
            bookies={entry: cut.bookies[entry] for entry in entries if entry in cut.bookies},
        )
        data = msgspec.json.encode(cut)
    return data


def decode_evidence(data: Buffer) -> LossEvidence:
    """Reads evidence of any version up to this one. Raises VersionMismatch: of a later version; CorruptData: it is none."""
    if len(data) > limits.LOST_EVIDENCE_BYTES:
        raise CorruptData(f"expected at most {limits.LOST_EVIDENCE_BYTES} bytes of evidence, found {len(data)}")
    try:
        found = msgspec.json.decode(data, type=_Version).version
        if found > VERSION:
            raise VersionMismatch(
                f"expected evidence of version {VERSION} at most, found {found}: upgrade this program",
                expected=VERSION,
                found=found,
            )
        return msgspec.json.decode(data, type=LossEvidence)
    except DECODE_FAULTS as error:
        raise CorruptData(f"it is no evidence of a loss: {error}") from error


def described(data: Buffer) -> dict[str, Any]:
    """What evidence says, as plain values; of what cannot be read why, and how it begins. Never raises."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(decode_evidence(data))
        return found
    except (CorruptData, VersionMismatch) as error:
        return {
            "fault": str(error),
            "bytes": len(data),
            "begins": bytes(data[:SHOWN_CHARACTERS]).decode(errors="replace"),
        }


def in_short(data: Buffer) -> str:
    """Who says why, in a few words; "" where evidence does not say it. Never raises."""
    try:
        evidence = decode_evidence(data)
    except (CorruptData, VersionMismatch):
        return ""
    return _who_and_why(evidence.time_ms, evidence.by, evidence.reason)


def lines_of(found: Mapping[str, Any]) -> Sequence[str]:
    """What `described` gives, for people, a fact a line."""
    if "fault" in found:
        return [f"its evidence cannot be read: {found['fault']}", f"{found['bytes']} bytes, {found['begins']!r}"]
    lines = [_who_and_why(found["time_ms"], found["by"], found["reason"]) or "nobody said why"]
    answers: Mapping[str, str] = found["answers"]
    bookies: Mapping[str, Mapping[str, str]] = found["bookies"]
    for entry in sorted({*answers, *bookies}, key=lambda entry: (len(entry), entry)):
        lines.append(f"entry {entry} of ledger {found['ledger']}: {answers.get(entry, 'see its bookies')}")
        lines += [f"  {bookie}: {answer}" for bookie, answer in bookies.get(entry, {}).items()]
    missing = found["stop"] - found["first"] - len({*answers, *bookies})
    if missing > 0:
        lines.append(f"and {missing} entries more")
    if found["bookies_are_gone"]:
        lines.append("bookies that did not answer were said to be gone for good")
    return lines


def _sound(text: str, characters: int) -> str:
    """What a command line had, as what UTF-8 can hold."""
    return text[:characters].encode(errors="replace").decode()


def _who_and_why(time_ms: int, by: str, reason: str) -> str:
    when = f" on {_time(time_ms)}" if time_ms else ""
    who = f" by {by}" if by else ""
    why = f": {reason}" if reason else ""
    return f"given up{when}{who}{why}" if when or who or why else ""


def _time(time_ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
