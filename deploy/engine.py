"""A Docker engine for who has none: `python -m deploy.engine COMMAND…` runs a command that finds one.

    python -m deploy.engine --probe                   # exit 0: an engine answers, or one of our own ran a container; 4: none can, and why
    python -m deploy.engine --images pytest …         # builds the images of the container suite first

Where an engine answers already, the command simply runs. Else, as root and with `dockerd` installed, an engine of our own is started
for as long as the command runs, on its own data root (`BOKI_DOCKER_ROOT`, /var/tmp/boki-docker), which keeps images for the next time.
Engine and command have namespaces of their own (`deploy/apart.py`): the machine's packet filter, interfaces, mounts and processes stay
as they are, and nothing is left, however this process ends. Otherwise the reason is said, and the command runs without an
engine: what needs one skips itself, or fails where `BOKI_REQUIRE` names `containers`.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import docker
from docker.errors import DockerException

from deploy import apart

IMAGES_S: Final = 480.0
COMMAND_S: Final = 1_200.0
BUSY_S: Final = 900.0
"""How long the end of another run on the same data root is awaited."""
NO_ENGINE: Final = 4
TRIES: Final = 2
"""Of building images, much of which comes over a network."""
TESTCONTAINERS: Final = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
TOOLS: Final = {"dockerd": "docker.io", "iptables": "iptables", "unshare": "util-linux", "ip": "iproute2"}
"""What an engine of our own needs, and Debian's package of each."""


class EngineMissing(Exception):
    """No engine answers, and none can be started; the message says why."""


def answers(url: str | None = None) -> bool:
    """Whether an engine answers there, or where the environment says."""
    with warnings.catch_warnings():
        # Docker's client leaves the socket open that it could not connect.
        warnings.simplefilter("ignore", ResourceWarning)
        found = _ping(url)
        gc.collect()
    return found


def _ping(url: str | None) -> bool:
    try:
        client = docker.from_env() if url is None else docker.DockerClient(base_url=url)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


def check_machine() -> None:
    """Whether an engine of our own may be tried. Raises EngineMissing."""
    if os.geteuid() != 0:
        raise EngineMissing("no engine answers, and only root may start one")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(TOOLS[tool] for tool in missing)
        raise EngineMissing(
            f"no engine answers, and {', '.join(missing)} is not installed; on Debian: apt-get install {packages}"
        )


def run_apart(root: Path, command: list[str], *, images: bool) -> int:
    """Runs a command with an engine of our own, after its images were built. Returns its exit code. Raises EngineMissing."""
    with _root(root):
        code = _with_images(root, command) if images else apart.run(root, command, COMMAND_S)
    if code == apart.ENGINE_FAILED:
        raise EngineMissing("an engine of our own runs no container here: the reason is above")
    return code


def probe(root: Path) -> None:
    """Whether an engine of our own runs a container. Raises EngineMissing."""
    with _root(root):
        code = apart.probe(root)
    if code in (apart.ENGINE_FAILED, apart.TOOK_TOO_LONG):
        raise EngineMissing("an engine of our own runs no container here: the reason is above")
    if code:
        raise SystemExit(code)


@contextmanager
def _root(root: Path) -> Iterator[None]:
    check_machine()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with apart.only_one(root, BUSY_S):
            yield
    except OSError as error:
        raise EngineMissing(str(error)) from error


def _with_images(root: Path, command: list[str]) -> int:
    build = [sys.executable, "-m", "deploy.images", "--all"]
    for _ in range(TRIES):
        code = _timed("images", lambda: apart.run(root, build, IMAGES_S, machine_network=True))
        if not code:
            break
        say(f"expected the images made, found exit code {code}: what is missing stays so, if it cannot be made now")
    return _timed("command", lambda: apart.run(root, command, COMMAND_S))


def _timed(what: str, work: apart.Work) -> int:
    began = time.monotonic()
    code = work()
    say(f"{what}: {time.monotonic() - began:.0f} s, exit code {code}")
    return code


def say(line: str) -> None:
    print(f"engine: {line}", file=sys.stderr, flush=True)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    """Runs the command of the arguments."""
    parser = argparse.ArgumentParser(prog="deploy.engine", description="Runs a command that finds a Docker engine.")
    parser.add_argument("--probe", action="store_true", help="only whether an engine can run a container")
    parser.add_argument("--images", action="store_true", help="builds the images of the container suite first")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if not asked.command and not asked.probe:
        parser.error("expected a command to run, found none")
    signal.signal(signal.SIGTERM, _end)
    apart.end_with_parent(signal.SIGTERM)
    environment = {**os.environ, **TESTCONTAINERS}
    if answers():
        if asked.images:
            subprocess.call([sys.executable, "-m", "deploy.images", "--all"], env=environment)
        return 0 if asked.probe else subprocess.call(asked.command, env=environment)
    try:
        root = Path(os.environ.get("BOKI_DOCKER_ROOT", "/var/tmp/boki-docker"))
        if not asked.probe:
            return run_apart(root, asked.command, images=asked.images)
        probe(root)
        return 0
    except EngineMissing as error:
        say(str(error))
        return NO_ENGINE if asked.probe else subprocess.call(asked.command)


if __name__ == "__main__":
    sys.exit(main())
