"""The view: one small value that says which term of which log orders which slots (DESIGN §5).

`/boki/view`, JSON:

    {"version": 1, "next_term": 8,
     "slots": [[0, 511, 0], [512, 1023, 1]],                        first, last (inclusive), log; ascending, no gaps
     "logs": {"0": {"term": 7, "metalog_ledger": 31, "sequencer": "<incarnation>", "token": "<install>",
                    "start_time_ms": 1767225600000},
              "1": null}}                                           null: no term was installed yet

Rules:
- It changes only by compare-and-swap, and the swap that installs a term draws its number from `next_term`.
- `sequencer` made `metalog_ledger` and is the only one that ever writes it. `token` tells one install from another.
- `start_time_ms` is the newest time of the terms this one succeeds: it begins no earlier, and a term without any entry
  passes it on to its record, so that anybody writes the same record.
- A term's slots never change: moving a slot gives new terms to both logs.

Pure: values and their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from boki_common import limits
from boki_common.errors import CorruptData, VersionMismatch
from boki_common.runtime.ports import Buffer

T = TypeVar("T")

VERSION: Final = 1
VIEW_PATH: Final = "/boki/view"
FIRST_LOG: Final = 0


class SlotRange(NamedTuple):
    """Slots `first` to `last`, both included."""

    first: int
    last: int


class _SlotsOfLog(NamedTuple):
    first: int
    last: int
    log: int


class Installed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current term of a log, and who orders it."""

    term: int
    metalog_ledger: int
    sequencer: str
    token: str
    start_time_ms: int


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. Invariant: `slots` covers every slot once, every log it names is in `logs`, no two logs share a term."""

    version: int
    next_term: int
    slots: tuple[_SlotsOfLog, ...]
    logs: dict[int, Installed | None]

    def installed(self, log: int) -> Installed | None:
        """The current term of `log`; None when it never had one, or there is no such log."""
        return self.logs.get(log)

    def term_of(self, log: int) -> int:
        """The number of the log's current term; 0 when there is none."""
        installed = self.logs.get(log)
        return 0 if installed is None else installed.term

    def slots_of(self, log: int) -> tuple[SlotRange, ...]:
        """The slots that the log's current term orders."""
        return tuple(SlotRange(one.first, one.last) for one in self.slots if one.log == log)

    def log_of(self, slot: int) -> int:
        """The log that orders a slot."""
        return next(one.log for one in self.slots if one.first <= slot <= one.last)

    def with_term(self, log: int, *, ledger_id: int, sequencer: str, token: str, start_time_ms: int) -> View:
        """The view after `log` got its next term."""
        installed = Installed(self.next_term, ledger_id, sequencer, token, start_time_ms)
        return View(VERSION, self.next_term + 1, self.slots, {**self.logs, log: installed})


def first_view() -> View:
    """What the first process of a cluster creates: one log with all slots, and no term yet. Same bytes from anybody."""
    return View(VERSION, 1, (_SlotsOfLog(0, limits.SLOTS - 1, FIRST_LOG),), {FIRST_LOG: None})


def encode_view(view: View) -> bytes:
    """The bytes of a view: equal views have equal bytes."""
    _check(view)
    return msgspec.json.encode(View(view.version, view.next_term, view.slots, dict(sorted(view.logs.items()))))


def decode_view(data: Buffer) -> View:
    """Reads a view. Raises VersionMismatch, CorruptData."""
    view = decode_versioned(data, View, path=VIEW_PATH, version=VERSION)
    _check(view)
    return view


def decode_versioned(data: Buffer, kind: type[T], *, path: str, version: int) -> T:
    """Reads a JSON value that has a `version` field.

    Raises:
        VersionMismatch: another version. CorruptData: not such a value.
    """
    try:
        found = msgspec.json.decode(data, type=_Version).version
        if found != version:
            raise VersionMismatch(
                f"expected version {version} in {path}, found {found}: upgrade this program",
                expected=version,
                found=found,
            )
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{path} does not hold what it should: {error}", path=path) from error


class _Version(msgspec.Struct):
    version: int


def _check(view: View) -> None:
    faults = list(_faults(view.next_term, view.slots, view.logs))
    if faults:
        raise CorruptData(f"{VIEW_PATH} cannot be right: {'; '.join(faults)}", path=VIEW_PATH)


def _faults(next_term: int, slots: tuple[_SlotsOfLog, ...], logs: Mapping[int, Installed | None]) -> list[str]:
    faults = []
    expected = 0
    for one in slots:
        if one.first != expected or one.last < one.first or one.log not in logs:
            faults.append(f"slots {one.first} to {one.last} of log {one.log} do not follow {expected - 1}")
        expected = one.last + 1
    if expected != limits.SLOTS:
        faults.append(f"slots end at {expected}, not {limits.SLOTS}")
    terms = [installed.term for installed in logs.values() if installed is not None]
    if len(set(terms)) != len(terms) or not all(0 < term < next_term for term in terms) or next_term < 1:
        faults.append(f"terms {sorted(terms)} are not different numbers from 1 to below {next_term}")
    if next_term > limits.TERM_MAX:
        faults.append(f"all {limits.TERM_MAX} terms are used")
    return faults
