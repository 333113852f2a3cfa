"""What a gateway's status page knows of its cluster: every part is asked, as `boki status` does.

The gateway itself knows engines only, through the SDK; this fills its port (`boki_gateway.calls.cluster_state.ClusterFacts`).

- A metadata store that is given stays its owner's. Without one the store that an engine names is opened, and closed and opened
  again when it fails: a status page lives longer than a session of ZooKeeper.
- What cannot be asked leaves the rest to be shown: without metadata that is the engines of the URL.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypedDict

from boki_cli import roles
from boki_cli.facts import cluster_status
from boki_cli.facts.bookie_space import BookieSpace
from boki_cli.facts.cluster_status import ClusterStatus, Part
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, MetadataError, NoNode, SettingsError
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import LATENCY_BUCKETS_S
from boki_gateway.calls import cluster_state
from boki_metalog.terms.metadata_tree import read_view

ANSWER_S: Final = 1.5
"""A part that does not answer for so long is shown as down."""

_lines = get_logger("gateway")


class AskedCluster:
    """See the module. Close it."""

    def __init__(
        self,
        url: str,
        settings: roles.ProcessSettings,
        *,
        store: MetadataStore | None = None,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """Asks the engines of `url`, and all that `store` lists, or the store that the settings or an engine name.

        Everybody is shown the `token`.
        """
        self._token = token
        self._url = url
        self._settings = settings
        self._given = self._store = store
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._space: BookieSpace | None = None

    async def collect(self) -> cluster_state.ClusterState:
        """Asks all parts. Raises what reading a metadata store raises that was given."""
        problem = ""
        async with self._opening:
            if self._store is None:
                problem = await self._open()
            store = self._store
        try:
            found = await cluster_status.gather(self._url, store, timeout_s=ANSWER_S, token=self._token)
        except BokiError:
            await self.close()
            raise
        state = state_of(found)
        state.problem = problem
        await self._add_space(store, state)
        return state

    async def _add_space(self, store: MetadataStore | None, state: cluster_state.ClusterState) -> None:
        """The free space of those bookies that are up."""
        if store is None:
            return
        if self._space is None:
            self._space = BookieSpace(store, self._settings.ledger, self._token)
        up = [bookie for bookie in state.bookies if bookie.up]
        found = await self._space.ask([bookie.name for bookie in up], timeout_s=ANSWER_S)
        for bookie in up:
            space = found.get(bookie.name)
            if space is not None:
                bookie.free_bytes, bookie.total_bytes = space

    async def check(self) -> None:
        """Looks whether what the settings name is a cluster's metadata store, as far as it answers. Raises SettingsError: it is
        not, or nothing is there."""
        if self._given is not None or not self._settings.metadata:
            return
        try:
            async with roles.open_metadata(self._settings) as parts:
                await read_view(parts.metadata)
        except NoNode as error:
            raise SettingsError(
                f"expected the metadata store of a cluster at {self._settings.metadata}, found no cluster in it; "
                "is the path right? Without it the store that an engine names is taken"
            ) from error
        except MetadataError as error:
            _lines.warning("the metadata store does not answer yet", error=str(error))

    async def close(self) -> None:
        """Closes the store that it opened by itself. Idempotent."""
        space, self._space = self._space, None
        if space is not None:
            await space.close()
        if self._given is None:
            self._store = None
        await self._opened.aclose()

    async def _open(self) -> str:
        """Opens the metadata store if it is known where it is. Returns why parts are missing, or ""."""
        uri = self._settings.metadata
        if not uri:
            status = await cluster_status.gather(self._url, None, timeout_s=ANSWER_S, token=self._token)
            uri = await asyncio.to_thread(cluster_status.metadata_nearby, status)
        if not uri:
            return "no engine names a metadata store that this machine can reach: bookies and sequencers are not known"
        try:
            opened = roles.open_metadata(dataclasses.replace(self._settings, metadata=uri))
            self._store = (await self._opened.enter_async_context(opened)).metadata
        except BokiError as error:
            return f"the metadata store cannot be asked, bookies and sequencers are not known: {error}"
        return ""


def state_of(found: ClusterStatus) -> cluster_state.ClusterState:
    """What all parts answered, as the gateway shows it. A part of another version may say less: that is 0 or unknown."""
    view = found.view or {"slots": [], "logs": {}}
    slots = [cluster_state.SlotRange(*map(int, one)) for one in view["slots"]]
    return cluster_state.ClusterState(
        engines=[_engine(part, found.sequencers) for part in found.engines],
        sequencers=[_sequencer(part) for part in found.sequencers],
        bookies=[
            cluster_state.BookieState(**_common(part), read_only=bool(part.status.get("read_only")))
            for part in found.bookies
        ],
        controllers=[
            cluster_state.ControllerState(**_common(part), leader=bool(part.status.get("leading")))
            for part in found.controllers
        ],
        logs=[
            _log(int(log), installed, slots)
            for log, installed in sorted(view["logs"].items(), key=lambda item: int(item[0]))
        ],
        slots=slots,
        faults=[] if found.view is None else cluster_status.faults_of(found),
    )


class _Common(TypedDict):
    name: str
    address: str
    up: bool
    problem: str


def _common(part: Part) -> _Common:
    return {
        "name": str(part.status.get("incarnation") or ("" if part.name == part.address else part.name)),
        "address": part.address,
        "up": part.up,
        "problem": part.problem or str(part.status.get("failed") or ""),
    }


def _engine(part: Part, sequencers: Sequence[Part]) -> cluster_state.EngineState:
    if not part.up:
        return cluster_state.EngineState(**_common(part))
    status = part.status
    logs = [
        cluster_state.EngineLog(
            log=place.log,
            term=place.term,
            position=place.end_pos,
            seqnum=str(place.seqnum) if place.seqnum else None,
            lag_entries=place.lag_entries,
        )
        for place in cluster_status.places_of(part, sequencers)
    ]
    return cluster_state.EngineState(
        **_common(part),
        ready=bool(status.get("ready")),
        logs=logs,
        records=int(status.get("records") or 0),
        books=int(status.get("books") or 0),
        lag_entries=cluster_status.lag_entries(part, sequencers),
        index_bytes=int((status.get("index") or {}).get("bytes") or 0),
        cache_bytes=int((status.get("cache") or {}).get("bytes") or 0),
        connections=int(status.get("connections") or 0),
        ack_counts=_ack_counts(status.get("ack_seconds") or {}),
    )


def _ack_counts(answer: Mapping[str, Any]) -> list[int]:
    """Of the buckets that are known here; an engine of another version may have others."""
    same = [float(bound) for bound in answer.get("bounds") or ()] == list(LATENCY_BUCKETS_S)
    return [int(count) for count in answer["counts"]] if same else []


def _sequencer(part: Part) -> cluster_state.SequencerState:
    log = part.status.get("log")
    serving = part.status.get("term")
    state = cluster_state.SequencerState(**_common(part), log=None if log is None or int(log) < 0 else int(log))
    if serving:
        state.term = int(serving["term"])
        state.entries = int(serving["entries"])
        state.end_position = int(serving["end_pos"])
        state.shards = len(serving["shards"])
        state.subscribers = int(serving["subscribers"])
    return state


def _log(log: int, installed: dict[str, Any] | None, slots: list[cluster_state.SlotRange]) -> cluster_state.LogState:
    count = sum(one.last - one.first + 1 for one in slots if one.log == log)
    if installed is None:
        return cluster_state.LogState(log, count)
    return cluster_state.LogState(
        log, count, int(installed["term"]), int(installed["metalog_ledger"]), str(installed["sequencer"])
    )
