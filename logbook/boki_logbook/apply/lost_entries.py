"""The LOST commands that this process has received, wherever its index is (DESIGN §7, docs/adr/0013). Pure.

A LOST command names entries that no bookie has. It says which of two things is true of them:

    indexed       the index snapshot that is named has them: rows and verdicts stand. Who cannot read them to index them begins
                  anew from a snapshot; nobody passes over them.
    not indexed   no snapshot has them: their records join nothing, on every engine, also on one that could read them. An engine
                  that had applied them already begins anew and passes over them.

So two engines behind the command have equal states, whatever each of them could read. What is known here outlives the
engine's state: an engine that begins anew receives the command only behind the entries that it must not apply.
"""

from __future__ import annotations

from boki_metalog.entries.metalog_entry import Lost


class LostEntries:
    """See the module. One item per command: administrators give them."""

    def __init__(self) -> None:
        self.commands: list[Lost] = []
        self._of_shard: dict[tuple[int, int], list[Lost]] = {}

    def add(self, command: Lost) -> None:
        """A command was ordered; the same one again changes nothing."""
        if command not in self.commands:
            self.commands.append(command)
            self._of_shard.setdefault((command.term, command.shard), []).append(command)

    def of(self, term: int, shard: int) -> list[Lost]:
        """The commands about a shard."""
        return self._of_shard.get((term, shard), [])

    def joins_nothing(self, term: int, shard: int, entry: int) -> bool:
        """Whether the records of an entry must not be applied."""
        return bool(self._of_shard) and any(
            not one.indexed and one.first_entry <= entry < one.stop_entry for one in self.of(term, shard)
        )

    def in_snapshot_only(self, term: int, shard: int, entry: int) -> bool:
        """Whether who does not have an entry needs a snapshot to go on."""
        return not self.joins_nothing(term, shard, entry) and any(
            one.first_entry <= entry < one.stop_entry for one in self.of(term, shard)
        )
