"""Builds images: Boki's own, of this tree or of an earlier commit, and stand-ins for public ones that cannot be pulled.

    python -m deploy.images                        # boki:latest, as `make image` does
    ensure_public(docker, BASE)                    # here, pulled, or made: a stand-in of Debian's packages
    build_boki(docker, tag="boki:before", revision="HEAD~1")

- Boki's image is `deploy/image/Dockerfile` over a folder that is laid out here: packages as `requirements.lock` pins them, and the
  wheel of the tree. Building it needs no network but for these packages.
- A stand-in has the public name, so that the same Dockerfile and compose.yaml work with it. Nothing else looks at it. It is made by
  mmdebstrap, as root, and says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

ROOT: Final = Path(__file__).parents[1]
BASE: Final = "python:3.11-slim-bookworm"
ZOOKEEPER: Final = "zookeeper:3.9"
BOOKKEEPER: Final = "apache/bookkeeper:4.17.2"
CASSANDRA: Final = "cassandra:5.0"
BOKI: Final = "boki:latest"
BOKI_BEFORE: Final = "boki:before"
"""Of the newest commit that git has before this one, for tests of upgrades."""
PACKAGES: Final = (
    *("aiohttp", "click", "crc32c", "msgspec", "numpy", "prometheus-client", "protobuf", "rich", "structlog", "xxhash"),
    *("zstandard", "kazoo", "uvloop"),
)
"""What a wheel of Boki needs with its extras for servers; versions and hashes are those of the lock."""
DEBIAN_PACKAGES: Final = ("python3", "ca-certificates", "openjdk-17-jre-headless", "procps")
TRIES: Final = 2
"""Of what comes over a network."""
NEEDLESS: Final = ("*.pyi", "tests", "*.pxd", "*.h")
"""Left out of packages: nothing reads it at run time."""


class ImageMissing(Exception):
    """An image is not here, cannot be pulled, and cannot be made; the message says why."""


def ensure_public(client: docker.DockerClient, name: str) -> None:
    """A public image is here afterwards: it was, it is pulled, or a stand-in is made. Raises ImageMissing."""
    if has(client, name):
        return
    try:
        client.images.pull(name)
        return
    except APIError as error:
        _say(f"{name} cannot be pulled ({str(error.explanation or error).strip()[:200]}): a stand-in is made")
    stand_ins = {
        BASE: _base_stand_in,
        ZOOKEEPER: _zookeeper_stand_in,
        BOOKKEEPER: _bookkeeper_stand_in,
        CASSANDRA: _cassandra_stand_in,
    }
    make = stand_ins.get(name)
    if make is None:
        raise ImageMissing(f"expected the image {name}, found none here, none to pull, and no way to make one")
    make(client)


def has(client: docker.DockerClient, name: str) -> bool:
    """Whether an image is on this machine."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def build_boki(client: docker.DockerClient, *, tag: str = BOKI, revision: str = "") -> None:
    """Builds Boki's image. `revision`: of git; empty: the tree as it is. Raises ImageMissing."""
    ensure_public(client, BASE)
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copytree(ROOT / "deploy/image", context, dirs_exist_ok=True)
        _lay_out_packages(context / "packages")
        _lay_out_own(context / "own", revision)
        _build(client, context, tag)


def _lay_out_packages(target: Path) -> None:
    _uv_install(target, "--constraint", str(ROOT / "requirements.lock"), *PACKAGES)
    for pattern in NEEDLESS:
        for path in sorted(target.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def _lay_out_own(target: Path, revision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = ROOT
        if revision:
            tree = Path(folder) / "tree"
            tree.mkdir()
            archive = Path(folder) / "tree.tar"
            subprocess.run(["git", "archive", "--output", str(archive), revision], cwd=ROOT, check=True)
            subprocess.run(["tar", "--extract", "--file", str(archive), "--directory", str(tree)], check=True)
        wheels = Path(folder) / "wheels"
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(build, cwd=tree, check=True, capture_output=True)
        (wheel,) = wheels.iterdir()
        _uv_install(target, "--no-deps", str(wheel))


def _uv_install(target: Path, *arguments: str) -> None:
    """Into a folder, for the Python and the machine of the image."""
    uv = Path(sys.executable).with_name("uv")
    options = ("--quiet", "--target", str(target), "--python-version", "3.11", "--link-mode", "copy")
    done = subprocess.run(
        [uv, "pip", "install", *options, "--only-binary", ":all:", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImageMissing(f"the packages of the image cannot be laid out: {done.stderr.strip()}")


def _base_stand_in(client: docker.DockerClient) -> None:
    """Debian with Python and Java: one for all public images that are not to be had."""
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        raise ImageMissing(
            f"expected mmdebstrap and root to make a stand-in for {BASE}; on Debian: apt-get install mmdebstrap"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "root.tar"
        make = (
            *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(DEBIAN_PACKAGES)}"),
            *("--dpkgopt=force-unsafe-io", "bookworm", str(file)),
        )
        for left in reversed(range(TRIES)):
            done = subprocess.run(make, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
            fault = f"mmdebstrap could not make a stand-in for {BASE}: {done.stderr.strip()[-2000:]}"
            if not left:
                raise ImageMissing(fault)
            _say(fault)
        repository, _, tag = BASE.partition(":")
        client.api.import_image_from_file(str(file), repository=repository, tag=tag, changes=['CMD ["bash"]'])


def _zookeeper_stand_in(client: docker.DockerClient) -> None:
    from itests.support import zookeeper

    _of_jars(client, ZOOKEEPER, Jars("zookeeper", zookeeper.CACHE, zookeeper.POM, zookeeper.CHECKSUMS))


def _bookkeeper_stand_in(client: docker.DockerClient) -> None:
    from itests.support import apache_bookkeeper as bookkeeper

    _of_jars(client, BOOKKEEPER, Jars("bookkeeper", bookkeeper.CACHE, bookkeeper.POM, bookkeeper.CHECKSUMS))


def _cassandra_stand_in(client: docker.DockerClient) -> None:
    from itests.support import cassandra

    _of_jars(client, CASSANDRA, Jars("cassandra", cassandra.CACHE, cassandra.POM, cassandra.CHECKSUMS))


class Jars(NamedTuple):
    """Of a Java program: the name of its folder in `deploy`, and where its jars come from."""

    name: str
    cache: Path
    pom: Path
    checksums: Path


def _of_jars(client: docker.DockerClient, image: str, wanted: Jars) -> None:
    from itests.support import maven_jars

    ensure_public(client, BASE)
    jars = Path(os.environ.get(f"BOKI_{wanted.name.upper()}_JARS") or "")
    try:
        if not jars.name:
            jars = maven_jars.cached(wanted.cache, pom=wanted.pom, checksums=wanted.checksums)
    except maven_jars.JarsMissing as error:
        raise ImageMissing(f"no jars for a stand-in of {image}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copytree(ROOT / "deploy" / wanted.name, context, dirs_exist_ok=True)
        shutil.copytree(jars, context / "jars")
        _build(client, context, image)


def _build(client: docker.DockerClient, context: Path, tag: str) -> None:
    try:
        # Nothing is fetched while an image is built.
        client.images.build(
            path=str(context), tag=tag, rm=True, forcerm=True, buildargs={"BASE": BASE}, network_mode="none"
        )
    except (BuildError, APIError) as error:
        lines = "".join(
            str(part.get("stream", "")) for part in getattr(error, "build_log", ()) if isinstance(part, dict)
        )
        raise ImageMissing(f"{tag} could not be built: {error}\n{lines[-2000:]}") from error


def revision_before() -> str:
    """The commit before this one; this one where git has no other; empty, the tree as it is, where there is no git."""
    for revision in ("HEAD~1", "HEAD"):
        asked = ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
        found = (
            subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
            if shutil.which("git")
            else None
        )
        if found is not None and found.returncode == 0:
            return found.stdout.strip()
    return ""


def own_compressed_bytes(client: docker.DockerClient, tag: str) -> int:
    """Bytes of what an image adds to its base, compressed as registries keep it."""
    base = len(client.images.get(BASE).attrs["RootFS"]["Layers"])
    total = 0
    with tempfile.TemporaryFile() as file:
        for part in client.images.get(tag).save():
            file.write(part)
        file.seek(0)
        with tarfile.open(fileobj=file) as saved:
            manifest = saved.extractfile("manifest.json")
            assert manifest is not None
            for layer in json.load(manifest)[0]["Layers"][base:]:
                content = saved.extractfile(layer)
                assert content is not None
                total += _compressed(content)
    return total


def _compressed(content: IO[bytes]) -> int:
    packer = zlib.compressobj(6)
    return sum(len(packer.compress(part)) for part in iter(lambda: content.read(1 << 20), b"")) + len(packer.flush())


def own_bytes(client: docker.DockerClient, tag: str) -> int:
    """Bytes on disk of what an image adds to its base."""
    history: list[dict[str, Any]] = client.images.get(tag).history()
    base: set[str] = {str(layer["Id"]) for layer in client.images.get(BASE).history()} - {"<missing>"}
    total = 0
    for layer in history:
        if str(layer["Id"]) in base:
            break
        total += int(layer["Size"])
    return total


def timed(what: str, work: Callable[[], None]) -> None:
    """Does something and says how long it took."""
    began = time.monotonic()
    work()
    _say(f"{what}: {time.monotonic() - began:.1f} s")


def _say(line: str) -> None:
    print(f"images: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Builds `boki:latest`, or what the arguments name: --all also what the container suite needs."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        print(
            f"expected a Docker engine, found none that answers: {error}; start one, or set DOCKER_HOST",
            file=sys.stderr,
        )
        return 3
    try:
        timed(BASE, lambda: ensure_public(client, BASE))
        if "--all" in sys.argv[1:]:
            for image in (ZOOKEEPER, BOOKKEEPER, CASSANDRA):
                timed(image, partial(ensure_public, client, image))
        timed(BOKI, lambda: build_boki(client))
        if "--all" in sys.argv[1:]:
            timed(BOKI_BEFORE, lambda: build_boki(client, tag=BOKI_BEFORE, revision=revision_before()))
    except ImageMissing as error:
        print(error, file=sys.stderr)
        return 1
    _say(f"{BOKI} adds {own_bytes(client, BOKI) / 1_000_000:.0f} MB to its base")
    return 0


if __name__ == "__main__":
    sys.exit(main())
