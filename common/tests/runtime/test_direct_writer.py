"""Bytes to a descriptor: short writes go on, and pieces around the page cache are aligned and complete."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boki_common.runtime.direct_writer import (
    BULK_PIECE_BYTES,
    IOV_MAX,
    PIECES_KEPT,
    AlignedPieces,
    DirectWriter,
    write_fully,
)
from boki_common.runtime.ports import BULK_PAGE_BYTES, Buffer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.touch()
    return made


@pytest.fixture
def direct(path: Path) -> Iterator[DirectWriter]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError as fault:
        if fault.errno != errno.EINVAL:
            raise
        descriptor = os.open(path, os.O_WRONLY)  # no O_DIRECT here: the pieces and their contents are the same
    writer = DirectWriter(descriptor, AlignedPieces())
    yield writer
    writer.close()


def pattern(size: int) -> bytes:
    """Bytes whose neighbours differ, and whose pages differ."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


def cut(data: bytes, lengths: Sequence[int]) -> list[Buffer]:
    """The data in buffers of these lengths, of all three kinds, and the rest."""
    buffers: list[Buffer] = []
    for number, length in enumerate(lengths):
        kind = (bytes, bytearray, memoryview)[number % 3]
        buffers.append(kind(data[:length]))
        data = data[length:]
    return [*buffers, data]


@pytest.mark.parametrize("each", [1, 1_024, 16_384, 16_385])
@pytest.mark.parametrize("pages", [1, 256, 600])
def test_buffers_of_one_size_are_written_one_after_another(
    path: Path, direct: DirectWriter, each: int, pages: int
) -> None:
    data = pattern(pages * BULK_PAGE_BYTES)
    if each == 1:
        data = data[:BULK_PAGE_BYTES]
    direct.write(0, [data[at : at + each] for at in range(0, len(data), each)])
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "size", [0, BULK_PAGE_BYTES, BULK_PIECE_BYTES - BULK_PAGE_BYTES, BULK_PIECE_BYTES, 2 * BULK_PIECE_BYTES + 4_096]
)
@pytest.mark.parametrize("lengths", [[], [0, 0], [1], [4_095, 0, 2], [BULK_PIECE_BYTES + 1, 1]])
def test_what_was_written_is_there(path: Path, direct: DirectWriter, size: int, lengths: list[int]) -> None:
    path.write_bytes(b"before" * 3_000)
    data = pattern(size)
    direct.write(2 * BULK_PAGE_BYTES, cut(data, lengths))
    found = path.read_bytes()
    assert found[: 2 * BULK_PAGE_BYTES] == (b"before" * 3_000)[: 2 * BULK_PAGE_BYTES]
    assert found[2 * BULK_PAGE_BYTES :][:size] == data
    assert found[2 * BULK_PAGE_BYTES + size :] == (b"before" * 3_000)[2 * BULK_PAGE_BYTES + size :]


@given(st.integers(1, 12), st.integers(0, 3), st.lists(st.integers(0, 9_000), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_buffers_may_be_cut_anywhere(
    path: Path, direct: DirectWriter, pages: int, offset: int, lengths: list[int]
) -> None:
    data = pattern(pages * BULK_PAGE_BYTES)
    direct.write(offset * BULK_PAGE_BYTES, cut(data, lengths))
    assert path.read_bytes()[offset * BULK_PAGE_BYTES :][: len(data)] == data


def test_a_large_write_is_made_in_pieces(direct: DirectWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    real, pieces = os.pwritev, []

    def counted(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        pieces.append((offset, sum(map(len, buffers))))
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", counted)
    direct.write(4_096, [bytes(BULK_PIECE_BYTES), bytes(BULK_PIECE_BYTES), bytes(4_096)])
    size = BULK_PIECE_BYTES
    assert pieces == [(4_096, size), (4_096 + size, size), (4_096 + 2 * size, 4_096)]


def test_writers_share_pieces_and_keep_few() -> None:
    pieces = AlignedPieces()
    first = pieces.borrow()
    assert first is not pieces.borrow(), "two writes at once have pages of their own"
    pieces.give_back(first)
    assert pieces.borrow() is first
    given = [memoryview(bytearray(BULK_PIECE_BYTES)) for _ in range(PIECES_KEPT + 2)]
    for piece in given:
        pieces.give_back(piece)
    kept = {id(pieces.borrow()) for _ in range(PIECES_KEPT)}
    assert len(kept) == PIECES_KEPT and kept <= set(map(id, given))
    assert id(pieces.borrow()) not in set(map(id, given))


def test_pieces_made_together_are_apart_and_begin_on_a_page() -> None:
    pieces = AlignedPieces()
    borrowed = [pieces.borrow() for _ in range(PIECES_KEPT + 1)]
    for number, piece in enumerate(borrowed):
        piece[:] = bytes((number,)) * BULK_PIECE_BYTES
    assert all(piece == bytes((number,)) * BULK_PIECE_BYTES for number, piece in enumerate(borrowed))
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(piece)) for piece in borrowed]
    assert not any(address % BULK_PAGE_BYTES for address in addresses)


@pytest.mark.parametrize("fault", [errno.EINVAL, errno.ENOMEM])
def test_pieces_are_ordinary_pages_where_there_are_no_huge_ones(
    direct: DirectWriter, path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0, /) -> None:
            raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(mmap, "mmap", Refusing)
    direct.write(0, [pattern(BULK_PAGE_BYTES)])
    assert path.read_bytes() == pattern(BULK_PAGE_BYTES)


def test_a_file_that_is_kept_open_keeps_no_pages(tmp_path: Path) -> None:
    pieces = AlignedPieces()
    used = set()
    for number in range(8):
        (tmp_path / str(number)).touch()
        writer = DirectWriter(os.open(tmp_path / str(number), os.O_WRONLY), pieces)
        writer.write(0, [pattern(BULK_PAGE_BYTES)])
        piece = pieces.borrow()
        used.add(id(piece))
        pieces.give_back(piece)
        writer.close()
    assert len(used) == 1, "each file had pages of its own, a huge page each for as long as it was open"


@pytest.mark.parametrize("count", [0, 1, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX])
def test_any_number_of_buffers_with_any_short_writes(path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        assert len(buffers) <= IOV_MAX
        whole = b"".join(buffers)
        return real(descriptor, [whole[: len(whole) * 2 // 3 + 1]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    buffers = [bytes([number % 251]) * (number % 5) for number in range(count)]
    descriptor = os.open(path, os.O_WRONLY)
    write_fully(descriptor, 7, buffers)
    os.close(descriptor)
    assert path.read_bytes()[7:] == b"".join(buffers)


def test_errors_of_the_system_go_through() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left") as caught:
        write_fully(descriptor, 0, [b"x"])
    assert caught.value.errno == errno.ENOSPC
    os.close(descriptor)
