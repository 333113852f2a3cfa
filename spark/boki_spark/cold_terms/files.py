"""The file system of offloaded terms as a port: any file system that fsspec knows, or one in memory.

A file is created once, with its full content, and never changed. Paths are URLs such as s3://bucket/boki or file:///data/cold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from boki_common.runtime.bodies import ThreadBodies
from boki_spark.errors import ClusterAway, ColdMissing, OffloadRefused

T = TypeVar("T")


class Files(Protocol):
    """The port. Every method raises ClusterAway if the file system does not answer or refuses."""

    async def create(self, path: str, data: bytes) -> None:
        """Create a file with its full content. Raises OffloadRefused if it exists."""

    async def read(self, path: str) -> bytes:
        """Return the content of a file. Raises ColdMissing."""

    async def read_part(self, path: str, first: int, stop: int) -> bytes:
        """Return the bytes [first, stop), fewer if the file ends before. Raises ColdMissing."""

    async def sync(self, folder: str) -> None:
        """Return once all files of a folder, and their names, survive a power failure."""

    async def delete(self, path: str) -> None:
        """Delete a file. It may be missing."""

    async def list(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, ascending; none if it does not exist."""


class MemoryFiles:
    """Files in the memory of this process. `lose_power` keeps only those that were synced."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._synced: set[str] = set()

    async def create(self, path: str, data: bytes) -> None:
        if path in self.files:
            raise OffloadRefused(f"there is a file {path} already: names are never used again")
        self.files[path] = bytes(data)

    async def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise ColdMissing(f"there is no file {path}") from None

    async def read_part(self, path: str, first: int, stop: int) -> bytes:
        return (await self.read(path))[first:stop]

    async def sync(self, folder: str) -> None:
        self._synced.update(await self.list(folder))

    def lose_power(self) -> None:
        """Simulate a power failure: drop every file that was not synced."""
        self.files = {path: data for path, data in self.files.items() if path in self._synced}

    async def delete(self, path: str) -> None:
        self.files.pop(path, None)
        self._synced.discard(path)

    async def list(self, folder: str) -> list[str]:
        return sorted(path for path in self.files if path.startswith(folder.rstrip("/") + "/"))


class FsspecFiles:
    """Files of a file system that fsspec knows. Calls run in threads, so none blocks the loop."""

    def __init__(self, **storage_options: Any) -> None:
        """Prepare calls.

        Args:
            storage_options: options of fsspec's file system, such as credentials.
        """
        self._options = storage_options
        self._bodies = ThreadBodies()

    async def create(self, path: str, data: bytes) -> None:
        def write() -> None:
            system, inside = self._of(path)
            if system.exists(inside):
                raise OffloadRefused(f"there is a file {path} already: names are never used again")
            system.makedirs(inside.rpartition("/")[0], exist_ok=True)
            system.pipe_file(inside, data)

        await self._run(path, write)

    async def read(self, path: str) -> bytes:
        return await self._read(path, None, None)

    async def read_part(self, path: str, first: int, stop: int) -> bytes:
        return await self._read(path, first, stop)

    async def _read(self, path: str, first: int | None, stop: int | None) -> bytes:
        def read() -> bytes:
            system, inside = self._of(path)
            try:
                return bytes(system.cat_file(inside, start=first, end=stop))
            except FileNotFoundError:
                raise ColdMissing(f"there is no file {path}") from None

        return await self._run(path, read)

    async def sync(self, folder: str) -> None:
        """Flush local files and all folders above them. An object store answers only when its files are durable."""

        def flush() -> None:
            from fsspec.implementations.local import LocalFileSystem

            system, inside = self._of(folder)
            if isinstance(system, LocalFileSystem):
                for path in sorted(system.find(inside)):
                    _flush(path)
                for above in (Path(inside), *Path(inside).parents):
                    _flush(str(above))

        await self._run(folder, flush)

    async def delete(self, path: str) -> None:
        def delete() -> None:
            system, inside = self._of(path)
            try:
                system.rm_file(inside)
            except FileNotFoundError:
                pass  # another process was faster

        await self._run(path, delete)

    async def list(self, folder: str) -> list[str]:
        def find() -> list[str]:
            system, inside = self._of(folder)
            return sorted(str(system.unstrip_protocol(name)) for name in system.find(inside))

        return await self._run(folder, find)

    def _of(self, path: str) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        system, inside = url_to_fs(path, **self._options)
        return system, inside

    async def _run(self, path: str, body: Callable[[], T]) -> T:
        try:
            return await self._bodies.run(body)
        except (OSError, ValueError, ImportError) as error:
            raise ClusterAway(f"{path} cannot be used: {type(error).__name__}: {error}") from error


def _flush(path: str) -> None:
    """Flush a file or a folder to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
