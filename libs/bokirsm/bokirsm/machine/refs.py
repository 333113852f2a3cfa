"""References to machines. Pure.

A machine is written `group/partition/name`. Its partition is chosen when it is created, and never changes: the hash of its name, or that of
a machine that it should be near.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import xxhash

from boki_common.errors import InvalidArgument
from bokilib.records.tags import PARTITIONS, partition_of

Ec = TypeVar("Ec", contravariant=True)

NAME_CHARS: Final = 160
CHILD: Final = "#"
"""Stands between the name of a machine and the number of one that it created. Keys of programs have none."""
_KEPT_CHARS: Final = 80
_PARTITIONS: Final = frozenset(map(str, range(PARTITIONS)))


class Ref(Generic[Ec]):
    """A reference to a machine that accepts events of type `Ec`. It is a value: events and fields may contain it.

    Attributes:
        group: of the machine: the name of its `App`.
        partition: its partition.
        name: its name in the group.
    """

    __slots__ = ("group", "name", "partition")

    def __init__(self, group: str, partition: int, name: str) -> None:
        self.group: Final = group
        self.partition: Final = partition
        self.name: Final = name

    @classmethod
    def parse(cls, text: str) -> Ref[Any]:
        """Return the reference that a text stands for.

        Raises:
            InvalidArgument: the text is no reference.
        """
        parts = text.split("/", 2) if isinstance(text, str) else ()
        if len(parts) != 3 or not parts[0] or not parts[2] or parts[1] not in _PARTITIONS:
            raise InvalidArgument(
                f"expected a machine as group/partition/name, with a partition from 0 to {PARTITIONS - 1}, found {text!r:.200}",
                found=str(text),
            )
        return Ref(parts[0], int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.group}/{self.partition}/{self.name}"

    def __repr__(self) -> str:
        return f"Ref({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and str(self) == str(other)

    def __hash__(self) -> int:
        return str(self).__hash__()  # not the builtin, which a tester replaces

    def _accepts(self, event: Ec) -> None:
        """Make the type of events contravariant for type checkers."""


def _placed(name: str, near: Ref[Any] | None) -> int:
    """Return the partition of a new machine.

    Raises:
        InvalidArgument: the machine that it should be near is in no partition that exists.
    """
    return partition_of(name) if near is None else Ref.parse(str(near)).partition


def keyed(group: str, key: str, near: Ref[Any] | None) -> Ref[Any]:
    """Return the machine of a key.

    Raises:
        InvalidArgument: the key is empty, too long or has a `#`.
    """
    if not isinstance(key, str) or not 1 <= len(key) <= NAME_CHARS or CHILD in key:
        raise InvalidArgument(
            f"expected a key of 1 to {NAME_CHARS} characters, none of them {CHILD!r}, found {key!r:.200}",
            found=str(key),
        )
    return Ref(group, _placed(key, near), key)


def child(parent: Ref[Any], number: int, near: Ref[Any] | None, *, life: int = 0) -> Ref[Any]:
    """Return the machine that another machine creates.

    Args:
        parent: the machine that creates it.
        number: the number of the machines that the parent has created with this one.
        near: as for `keyed`.
        life: the seqnum of the creation of a parent with a key, which may be used again; 0 for a parent whose name is used once.
    """
    stem = parent.name
    if len(stem) > NAME_CHARS:
        stem = f"{stem[:_KEPT_CHARS]}~{xxhash.xxh3_128_hexdigest(stem.encode())}"
    name = f"{stem}{CHILD}{life}.{number}" if life else f"{stem}{CHILD}{number}"
    return Ref(parent.group, _placed(name, near), name)
