"""A cluster of real processes on this machine: started, killed and restarted one by one.

    async with LocalCluster(directory, bookies=3) as cluster:
        async with boki.connect(cluster.url) as client: ...
        await cluster.kill("bookie-2")          # SIGKILL, returns when the process is gone
        await cluster.restart("bookie-2")       # same data, same address
        await cluster.kill(*cluster.roles); await cluster.restart(*cluster.roles)
        cluster.pause("sequencer-1"); cluster.resume("sequencer-1")      # SIGSTOP, SIGCONT

Roles are named `bookie-1` …, `sequencer-1` …, `controller-1` …, `engine-1` …; a name without a number is the first of its kind. Each is a
`boki` process of its own (`python -m boki_cli.main`), with its data, socket and log below `directory`.

Rules:
- A role counts as started when it printed the line that says where it listens. One that ends before raises `RoleFailed`
  with the end of its log.
- An address is chosen free at the first start and kept for all later ones, so clients and peers find a restarted role.
- No process outlives this one, however it ends: each role stops when its standard input closes (`--stop-with-stdin`).
- An error that leaves the `async with` carries the end of the log of every role that died by itself, as a note.

It knows nothing of what the roles do. Used by the demo, the tests of real processes and the benchmarks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from boki_common.engine.engine_url import with_token_file
from boki_common.errors import BokiError, InvalidArgument
from boki_common.net.lasting_ports import lasting_port

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
LOG_TAIL_LINES: Final = 25
HOST: Final = "127.0.0.1"
ANYWHERE: Final = f"{HOST}:0"
_KINDS: Final = ("bookie", "sequencer", "controller", "engine")


class RoleFailed(BokiError):
    """A role process ended, or did not become ready; the message carries the end of its log."""


class Ready(msgspec.Struct, frozen=True):
    """The line that a role process prints on standard output, as JSON, once it serves."""

    role: str
    pid: int
    addresses: tuple[str, ...]


class Place(NamedTuple):
    """Where and how a role runs: what goes before its command (a namespace, a tracer), and settings of its own."""

    listen: str = ANYWHERE
    command: Sequence[str] = ()
    settings: Mapping[str, str] = {}


class _Role:
    """One role: what to start, and the process that runs it now, if any."""

    def __init__(self, name: str, arguments: Sequence[str], place: Place, log: Path) -> None:
        self.name = name
        self.place = place
        self.arguments = list(arguments)
        self.listen = [place.listen]
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.pump: asyncio.Task[None] | None = None
        self.expected_to_run = False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class LocalCluster:
    """See the module. Use as an async context manager.

    Args:
        directory: data, sockets and logs go below it; it is made when absent, and kept.
        metadata_uri: for all roles; without it a SQLite file in `directory`.
        bookies, sequencers, engines, controllers: how many of each. Sequencers beyond `logs` stand by.
        logs: physical logs of a new cluster, each with an even share of the slots.
        unix_sockets: engines listen on Unix sockets instead of TCP ports.
        settings: `BOKI_*` environment variables for all roles.
        token_file: with the cluster token, of all roles; `url` names it.
        places: of roles that do not simply run here; by name.
    """

    def __init__(
        self,
        directory: Path | str,
        metadata_uri: str | None = None,
        *,
        bookies: int = 3,
        sequencers: int = 1,
        engines: int = 1,
        controllers: int = 0,
        logs: int = 1,
        unix_sockets: bool = False,
        settings: Mapping[str, str] | None = None,
        token_file: Path | str = "",
        places: Mapping[str, Place] | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.metadata_uri = metadata_uri or f"sqlite:///{self.directory / 'metadata.db'}"
        self._settings = dict(settings or {}) | ({"BOKI_TOKEN_FILE": str(token_file)} if token_file else {})
        self._token_file = str(token_file)
        self._places = dict(places or {})
        self._ready_timeout_s = ready_timeout_s
        self._roles: dict[str, _Role] = {}
        self._logs = logs
        for kind, count in zip(_KINDS, (bookies, sequencers, controllers, engines), strict=True):
            for number in range(1, count + 1):
                self._add(kind, f"{kind}-{number}", unix_socket=unix_sockets and kind == "engine")

    @property
    def roles(self) -> list[str]:
        """Names of all roles, bookies first."""
        return list(self._roles)

    def roles_of(self, kind: str) -> list[str]:
        """Names of the roles of a kind."""
        return [name for name in self._roles if name.rpartition("-")[0] == kind]

    @property
    def url(self) -> str:
        """Where an SDK connects: all engines."""
        listens = [role.listen[0] for role in self._roles.values() if role.name.startswith("engine-")]
        url = ",".join(listens) if listens and listens[0].startswith("unix://") else "boki://" + ",".join(listens)
        return with_token_file(url, self._token_file)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles that run now."""
        return {one.name: one.process.pid for one in self._roles.values() if one.process is not None and one.running}

    def address(self, role: str) -> str:
        """Where a role listens; with port 0 before its first start."""
        return self._role(role).listen[0]

    def running(self, role: str) -> bool:
        return self._role(role).running

    def log_path(self, role: str) -> Path:
        return self._role(role).log

    def log_tail(self, role: str, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines that a role logged, over all its lives."""
        path = self._role(role).log
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    async def start(self, *roles: str) -> None:
        """Starts the roles named, or all, and waits until they serve. Those that run already are left alone. Raises RoleFailed:
        one ended or did not become ready in time."""
        chosen = [self._role(name) for name in (roles or self.roles)]
        await asyncio.to_thread((self.directory / "logs").mkdir, parents=True, exist_ok=True)
        if self._logs > 1:
            await self._make_logs()
        for kinds in (("bookie",), ("sequencer", "controller", "engine")):
            group = [role for role in chosen if role.name.partition("-")[0] in kinds and not role.running]
            results = await asyncio.gather(*(self._start(role) for role in group), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def pause(self, *roles: str) -> None:
        """SIGSTOP: the processes keep their connections and say nothing."""
        self._signal(roles, signal.SIGSTOP)

    def resume(self, *roles: str) -> None:
        """SIGCONT: they go on where they were."""
        self._signal(roles, signal.SIGCONT)

    async def kill(self, *roles: str) -> None:
        """SIGKILL, all at once; returns when the processes are gone."""
        await self._end([self._role(name) for name in roles], signal.SIGKILL)

    async def stop(self, *roles: str) -> None:
        """SIGTERM to the roles named, or all: a clean end. Engines first, bookies last; what lingers is killed."""
        chosen = [self._role(name) for name in (roles or self.roles)]
        for kind in reversed(_KINDS):
            await self._end([role for role in chosen if role.name.startswith(kind)], signal.SIGTERM)

    async def restart(self, *roles: str) -> None:
        """Starts the roles again on their data and addresses, killing (SIGKILL) those that still run."""
        await self.kill(*roles)
        await self.start(*roles)

    async def check(self) -> None:
        """Raises RoleFailed if a role ended that nobody stopped or killed."""
        for role in self._roles.values():
            if role.expected_to_run and not role.running:
                raise await self._failed(role, "ended by itself")

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.kill(*self.roles)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, RoleFailed):
            for role in self._roles.values():
                if role.expected_to_run and not role.running:
                    error.add_note(str(await self._failed(role, "ended by itself")))
        await (self.stop() if error is None else self.kill(*self.roles))

    def _add(self, kind: str, name: str, *, unix_socket: bool) -> None:
        arguments = [kind, "--metadata", self.metadata_uri]
        if kind == "bookie":
            arguments += ["--data", str(self.directory / name)]
        place = Place(f"unix://{self.directory / name}.sock") if unix_socket else self._places.get(name, Place())
        self._roles[name] = _Role(name, arguments, place, self.directory / "logs" / f"{name}.log")

    def _signal(self, roles: Sequence[str], how: signal.Signals) -> None:
        for name in roles:
            role = self._role(name)
            if role.process is None or role.process.returncode is not None:
                raise InvalidArgument(f"{role.name} does not run, so it cannot get {how.name}")
            role.process.send_signal(how)

    async def _make_logs(self) -> None:
        """Before any sequencer is up the slots of new logs cost nothing; later this finds them there."""
        arguments = ("init", "--metadata", self.metadata_uri, "--logs", str(self._logs))
        made = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "boki_cli.main", *arguments),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._settings},
        )
        _, said = await made.communicate()
        if made.returncode:
            raise RoleFailed(
                f"`boki {' '.join(arguments)}` ended with {made.returncode}: {said.decode(errors='replace')}"
            )

    def _role(self, name: str) -> _Role:
        role = self._roles.get(name) or self._roles.get(f"{name}-1")
        if role is None:
            raise InvalidArgument(f"this cluster has no role {name!r}; it has {', '.join(self._roles)}")
        return role

    async def _start(self, role: _Role) -> None:
        if role.listen == [ANYWHERE] and not role.place.command:
            # It is to begin again there, whoever asked for a port meanwhile.
            role.listen = [f"{HOST}:{lasting_port(HOST)}"]
        listen = [part for address in role.listen for part in ("--listen", address)]
        log = await asyncio.to_thread(role.log.open, "ab")
        try:
            role.process = await asyncio.create_subprocess_exec(
                *role.place.command,
                *(sys.executable, "-m", "boki_cli.main", *role.arguments, *listen, "--json", "--stop-with-stdin"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._settings, **role.place.settings},
                start_new_session=True,  # Ctrl-C reaches only the one who decides in which order they end
            )
        finally:
            log.close()
        role.expected_to_run = True
        output = role.process.stdout
        assert output is not None
        try:
            async with asyncio.timeout(self._ready_timeout_s):
                line = await output.readline()
        except TimeoutError:
            raise await self._failed(role, f"did not become ready within {self._ready_timeout_s:g} s") from None
        if not line:
            await role.process.wait()
            raise await self._failed(role, "ended before it was ready")
        role.listen = list(msgspec.json.decode(line, type=Ready).addresses)
        role.pump = asyncio.create_task(_discard(output))

    async def _end(self, roles: Sequence[_Role], how: signal.Signals) -> None:
        for role in roles:
            role.expected_to_run = False
            if role.process is not None and role.process.returncode is None:
                role.process.send_signal(how)
                role.process.send_signal(signal.SIGCONT)  # one that is paused must get the signal to end
        for role in roles:
            if role.process is None:
                continue
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await role.process.wait()
            except TimeoutError:
                role.process.kill()
                await role.process.wait()
            if role.pump is not None:
                await role.pump
                role.pump = None
            if role.process.stdin is not None:
                role.process.stdin.close()
            role.process = None

    async def _failed(self, role: _Role, what: str) -> RoleFailed:
        code = role.process.returncode if role.process is not None else None
        ended = "" if code is None else f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"
        tail = await asyncio.to_thread(self.log_tail, role.name)
        return RoleFailed(
            f"{role.name} {what}{ended}. The end of its log, {role.log}:\n{tail}",
            role=role.name,
            code=code,
        )


async def _discard(output: asyncio.StreamReader) -> None:
    while await output.read(65_536):
        pass
