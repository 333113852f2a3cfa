"""A Docker engine and a command that uses it, apart from the machine: in namespaces of their own.

    with only_one(root, wait_s):                     # one run at a time on a data root; what a killed one left ends first
        run(root, ["pytest", …], limit_s)            # its exit code; ENGINE_FAILED: the engine ran no container

- **Processes**: engine, containers and command live in one PID namespace. It ends with this process, killed or not, and with it all of
  them, their mounts (a mount namespace) and their interfaces, packet filter and routes (a network namespace).
- **Network**: the command reaches ports of containers at 127.0.0.1 of the namespace, and nothing of the machine. Only to pull and to
  build, `machine_network=True` gives the machine's, and an engine that makes no bridge and touches no packet filter.
- **Disk**: under `root`: `data` stays, with the images; containers, networks and volumes in it are removed at start and end.

Where the engine does not come up, runs no container, or the command fails, what helps to see why goes to standard error.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import docker
from docker.errors import APIError, DockerException

Work = Callable[[], int]

ENGINE_FAILED: Final = 97
START_S: Final = 120.0
CALL_S: Final = 300
STOP_S: Final = 60.0
ENDING_S: Final = 60.0
GROUPS_S: Final = 10.0
PROBE_S: Final = 240.0
PAUSE_S: Final = 0.2
PR_SET_PDEATHSIG: Final = 1
PROBE: Final = "boki-probe:latest"
GROUPS: Final = Path("/sys/fs/cgroup")
# The namespace's first process: it reaps what others leave, which a shell does while it waits.
FIRST: Final = '"$@" & wait $!'
SPACES: Final = ("--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
TOOK_TOO_LONG: Final = 124
LAST_LINES: Final = 40


@contextmanager
def only_one(root: Path, wait_s: float) -> Iterator[None]:
    """Nobody else runs on this data root in the block. Raises TimeoutError."""
    deadline = time.monotonic() + wait_s
    with (root / "lock").open("a") as lock:
        while not _locked(lock.fileno()):
            _pause(deadline, f"expected {root} free within {wait_s:g} s, found another run on it")
        deadline = time.monotonic() + ENDING_S
        while _engines(root):
            _pause(deadline, f"expected the engines of an earlier run on {root} ended, found {_engines(root)}")
        yield


def run(root: Path, command: list[str], limit_s: float, *, machine_network: bool = False) -> int:
    """Runs a command beside an engine, both apart. Returns its exit code; 124: it took too long. See the module."""
    kind, apart = ("--machine-network", SPACES) if machine_network else ("--own-network", (*SPACES, "--net"))
    inside = [sys.executable, "-m", "deploy.apart", kind, str(root), *command]
    whole = subprocess.Popen(
        ["unshare", *apart, "sh", "-c", FIRST, "first", *inside],
        stdin=subprocess.DEVNULL,
        preexec_fn=_end_with_this,
    )
    try:
        return whole.wait(limit_s)
    except subprocess.TimeoutExpired:
        _say(f"expected {command[0]} to end within {limit_s:g} s, found it running: it is killed, its engine too")
        return TOOK_TOO_LONG
    finally:
        whole.kill()
        whole.wait()
        _remove_groups(root)
        shutil.rmtree(root / "tmp", ignore_errors=True)


def probe(root: Path) -> int:
    """0: an engine runs a container here; ENGINE_FAILED, 124: none does, also not on a data root made anew. Else an error of ours."""
    done = subprocess.run(["unshare", *SPACES, "--net", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        return _fail(f"expected namespaces, found {done.stderr.strip() or done.returncode}")
    had = (root / "data").exists()
    code = run(root, ["true"], PROBE_S)
    if code and had:
        # A run may have been killed while it wrote there.
        _say(f"the data root {root}/data is made anew")
        shutil.rmtree(root / "data", ignore_errors=True)
        code = run(root, ["true"], PROBE_S)
    return code


def end_with_parent(number: signal.Signals) -> None:
    """Has the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _end_with_this() -> None:
    end_with_parent(signal.SIGKILL)


# From here on: inside.


def _inside(kind: str, root: Path, command: list[str]) -> int:
    own_network = kind == "--own-network"
    _lay_out(root, own_network=own_network)
    engine = _start(root, own_network=own_network)
    try:
        client = _wait_for(engine, root)
        if client is None:
            return ENGINE_FAILED
        _empty(client)
        if own_network and not _runs_a_container(client):
            _diagnose(root)
            return ENGINE_FAILED
        code = subprocess.call(command, env={**os.environ, **_environment(root)})
        if code:
            _diagnose(root)
        _empty(client)
        return code
    finally:
        _stop(engine)


def _environment(root: Path) -> dict[str, str]:
    return {
        "DOCKER_HOST": f"unix://{root}/docker.sock",
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "TMPDIR": str(root / "tmp"),
    }


def _lay_out(root: Path, *, own_network: bool) -> None:
    """Folders, and mounts that nobody else sees and that end with the namespace."""
    shutil.rmtree(root / "tmp", ignore_errors=True)
    for name in ("tmp", "exec", "groups"):
        (root / name).mkdir(exist_ok=True)
    # What an engine of another namespace left there would name processes of this one.
    _do("mount", "-t", "tmpfs", "tmpfs", str(root / "exec"))
    (root / "daemon.json").write_text("{}")
    if own_network:
        _do("ip", "link", "set", "lo", "up")
        # The interfaces that /sys shows are those of the namespace that mounted it; control groups stay.
        _do("mount", "--rbind", str(GROUPS), str(root / "groups"))
        _do("mount", "-t", "sysfs", "sysfs", "/sys")
        _do("mount", "--rbind", str(root / "groups"), str(GROUPS))


def _start(root: Path, *, own_network: bool) -> subprocess.Popen[bytes]:
    options = [
        *("--data-root", str(root / "data"), "--exec-root", str(root / "exec/engine")),
        *("--pidfile", str(root / "exec/dockerd.pid"), "--config-file", str(root / "daemon.json")),
        *("--host", f"unix://{root}/docker.sock", "--exec-opt", "native.cgroupdriver=cgroupfs"),
        *("--cgroup-parent", f"/{_group(root)}"),
    ]
    if not own_network:
        options += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    with (root / "dockerd.log").open("wb") as log:
        return subprocess.Popen(["dockerd", *options], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _wait_for(engine: subprocess.Popen[bytes], root: Path) -> docker.DockerClient | None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and engine.poll() is None:
        try:
            return docker.DockerClient(base_url=f"unix://{root}/docker.sock", timeout=CALL_S)
        except DockerException:
            time.sleep(PAUSE_S)
    ended = (
        f"ended with code {engine.returncode}" if engine.poll() is not None else f"does not answer after {START_S:g} s"
    )
    _say(f"dockerd {ended}")
    _diagnose(root)
    return None


def _stop(engine: subprocess.Popen[bytes]) -> None:
    engine.terminate()
    try:
        engine.wait(STOP_S)
    except subprocess.TimeoutExpired:
        _say(f"dockerd did not end within {STOP_S:g} s: it is killed")
        engine.kill()
        engine.wait()


def _runs_a_container(client: docker.DockerClient) -> bool:
    """Whether a container runs here, with a network: what no list of features of the machine tells as surely."""
    try:
        client.api.import_image_from_data(_smallest_image(), repository=PROBE.partition(":")[0], tag="latest")
        client.containers.run(PROBE, ["/bin/true"], remove=True, mem_limit="64m")
    except (DockerException, OSError, subprocess.SubprocessError) as error:
        _say(f"a container of /bin/true does not run: {error}")
        return False
    return True


def _smallest_image() -> bytes:
    """The machine's own /bin/true, with its libraries."""
    libraries = subprocess.run(["ldd", "/bin/true"], capture_output=True, text=True, check=True).stdout
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for path in ("/bin/true", *re.findall(r"(/\S+) \(", libraries)):
            archive.add(path)
    return packed.getvalue()


def _empty(client: docker.DockerClient) -> None:
    """Removes what only the commands of this engine can have made: all but images."""
    for container in client.containers.list(all=True, ignore_removed=True):
        _unless_gone(partial(container.remove, force=True, v=True))
    for prune in (client.networks.prune, client.volumes.prune, client.images.prune):
        _unless_gone(prune)


def _unless_gone(work: Callable[[], object]) -> None:
    try:
        work()
    except APIError as error:
        _say(f"left as it is: {error}")


def _diagnose(root: Path) -> None:
    log = (root / "dockerd.log").read_text(errors="replace").splitlines()[-LAST_LINES:]
    print("--- the end of dockerd's log", *log, sep="\n", file=sys.stderr, flush=True)
    for command in (
        ["df", "-h", str(root)],
        ["free", "-m"],
        ["uname", "-r"],
        ["cat", "/proc/loadavg", "/proc/self/cgroup"],
    ):
        subprocess.run(command, stdout=sys.stderr, check=False)


# What looks at the machine from outside.


def _engines(root: Path) -> list[int]:
    """Living engines of a data root, in whatever namespace."""
    wanted = str(root / "data").encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended
            if wanted in words and words[0].rpartition(b"/")[2] == b"dockerd":
                found.append(int(folder.name))
    return found


def _group(root: Path) -> str:
    """The name of the control group that an engine's containers are in."""
    return "boki" + str(root).replace("/", "-")


def _remove_groups(root: Path) -> None:
    """Control groups are the one thing that outlives the namespaces of its processes; those need a moment to end."""
    deadline = time.monotonic() + GROUPS_S
    tops = [group for top in (GROUPS, *GROUPS.glob("*")) if (group := top / _group(root)).is_dir()]
    while [top for top in tops if not _removed(top)] and time.monotonic() < deadline:
        time.sleep(PAUSE_S)


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return False  # in use
    return True


def _locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pause(deadline: float, else_say: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(else_say)
    time.sleep(PAUSE_S)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(_fail(f"{' '.join(command)}: {done.stderr.strip()}"))


def _fail(reason: str) -> int:
    _say(reason)
    return ENGINE_FAILED


def _say(line: str) -> None:
    print(f"engine: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(_inside(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
