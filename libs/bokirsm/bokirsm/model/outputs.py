"""The outputs of a partition that no plugin has delivered yet, folded from its records. Pure.

- An output waits from the record of its commit to the record that says that it is delivered (`Done`).
- A plugin that fails repeatedly has a *failure* for the machine whose output it could not deliver, until it delivers one of that machine.
- A checkpoint carries the outputs that wait at or below the position that it covers, and all failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from bokirsm.model.events import Done, Emission, MessageId, Output, Undelivered
from bokirsm.model.parts import Row

AROUND_BYTES: Final = 48
"""Bytes around the fields of an output, about."""
OUTPUT_ROW: Final = "u"
FAILURE_ROW: Final = "e"


class WaitingOutput(msgspec.Struct, array_like=True, frozen=True):
    """An output that waits.

    Attributes:
        machine: that emitted it.
        output: its plugin and event.
        time_ms: of the record of its commit.
    """

    machine: str
    output: Output
    time_ms: int

    @property
    def size(self) -> int:
        """The bytes of the output, about."""
        return len(self.output.body) + len(self.machine) + AROUND_BYTES


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """A plugin that fails for a machine. Attributes as of `Undelivered`."""

    output: MessageId
    attempts: int
    at_ms: int
    error: str


class FailureKey(NamedTuple):
    """A plugin, and a machine whose outputs wait for it."""

    plugin: str
    machine: str


_encoder: Final = msgspec.msgpack.Encoder()
_ids: Final = msgspec.msgpack.Decoder(MessageId)
_outputs: Final = msgspec.msgpack.Decoder(WaitingOutput)
_failures: Final = msgspec.msgpack.Decoder(Failure)


class PartitionOutputs:
    """The outputs of a partition that wait, as of the records that were applied.

    Invariant: `size` and `size_of` are the sums of the sizes of the outputs that wait.

    Attributes:
        waiting: by plugin, in the order of the log; only plugins for which some wait.
        failures: the plugins that fail, each for a machine.
        size: the bytes of all of them, about.
        size_of: those of each machine that has any.
    """

    def __init__(self) -> None:
        self.waiting: Final[dict[str, dict[MessageId, WaitingOutput]]] = {}
        self.failures: Final[dict[FailureKey, Failure]] = {}
        self.size = 0
        self.size_of: Final[dict[str, int]] = {}

    def apply(
        self, seqnum: int, time_ms: int, emissions: Iterable[Emission], reports: Iterable[Done | Undelivered]
    ) -> None:
        """Apply what a record has of this partition.

        Args:
            seqnum: of the record.
            time_ms: its time.
            emissions: outputs of its machines.
            reports: what became of outputs before.
        """
        for number, machine, output in emissions:
            id = MessageId(seqnum, number)
            if id not in self.waiting.get(output.plugin, ()):
                self._add(id, WaitingOutput(machine, output, time_ms))
        for event in reports:
            if isinstance(event, Done):
                for id in event.outputs:
                    self._remove(event.plugin, id)
            else:
                waits = self.waiting.get(event.plugin, {}).get(event.output)
                if waits is not None:
                    failure = Failure(event.output, event.attempts, event.at_ms, event.error)
                    self.failures[FailureKey(event.plugin, waits.machine)] = failure

    def _add(self, id: MessageId, one: WaitingOutput) -> None:
        self.waiting.setdefault(one.output.plugin, {})[id] = one
        self.size += one.size
        self.size_of[one.machine] = self.size_of.get(one.machine, 0) + one.size

    def _remove(self, plugin: str, id: MessageId) -> None:
        several = self.waiting.get(plugin, {})
        one = several.pop(id, None)
        if one is None:
            return
        if not several:
            del self.waiting[plugin]
        self.failures.pop(FailureKey(plugin, one.machine), None)
        self.size -= one.size
        left = self.size_of[one.machine] - one.size
        if left:
            self.size_of[one.machine] = left
        else:
            del self.size_of[one.machine]

    @property
    def all(self) -> list[tuple[MessageId, WaitingOutput]]:
        """All outputs that wait, by plugin and in order."""
        return [pair for several in self.waiting.values() for pair in several.items()]

    def of(self, machine: str) -> list[tuple[MessageId, WaitingOutput]]:
        """Return the outputs of a machine that wait, by plugin and in order."""
        return [(id, one) for id, one in self.all if one.machine == machine]

    def failures_of(self, machine: str) -> dict[str, Failure]:
        """Return the failures of a machine's outputs by plugin."""
        return {key.plugin: failure for key, failure in self.failures.items() if key.machine == machine}

    # -- checkpoints

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the seqnum and the size of each output that waits."""
        return ((id.seqnum, one.size) for id, one in self.all)

    def rows(self, covers: int) -> list[Row]:
        """Return the rows of a checkpoint that covers the records up to a position."""
        encode = _encoder.encode
        rows = [Row(OUTPUT_ROW, "", encode(id), encode(one)) for id, one in self.all if id.seqnum <= covers]
        rows += [Row(FAILURE_ROW, key.machine, key.plugin.encode(), encode(one)) for key, one in self.failures.items()]
        return rows

    def restore(self, row: Row) -> bool:
        """Take a row of a checkpoint. Return False if it is of another kind."""
        if row.kind == OUTPUT_ROW:
            self._add(_ids.decode(row.key), _outputs.decode(row.value))
        elif row.kind == FAILURE_ROW:
            self.failures[FailureKey(row.key.decode(), row.name)] = _failures.decode(row.value)
        else:
            return False
        return True
