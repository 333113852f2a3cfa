"""The controllers: a group of processes of which one leads, and does what no other role does by itself.

    controller = await Controller(metadata=…, ledgers=…, rng=…).start(address)
    controller.leading

The leader walks its policies, one after another, each round and whenever the view changes. A policy is a small object with
a name and one coroutine (`policies` has today's; retention, EXPIRE and the engines of a slot go there too):

    async def run(self, cluster: Cluster) -> None

Rules:
- Everything a policy does is safe with two leaders at once, or none: terms change by compare-and-swap, and ledgers are
  deleted only when no driver can name them any more. Leadership only saves doing things twice.
- A policy that fails is reported in the status and run again next round; it stops no other policy.
- A *duty* runs beside the rounds for as long as this one leads, since it takes long: copies of lost bookies are made anew by one
  (`boki_ledger.repair`). It reports its own errors; one that raises ends the controller.
- The others stand for election; they take part in nothing.

For people: HELLO and STATUS, as a sequencer answers them, to those who show the cluster token if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec

from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, InvalidArgument, ProtocolError
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership, member_path
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer
from boki_common.retry import event_or_timeout, retry
from boki_common.runtime.ports import Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.control.election import Election
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.control.policies import Cluster, Policy, default_policies
from boki_metalog.entries import permissions
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.listed_process import ListedProcess
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.settings import ControllerSettings, SequencerSettings

CONTROLLER_ROLE: Final = "controller"
LEADER_PATH: Final = "/boki/controller"
NO_LOG: Final = -1

_log = get_logger("controller")


class Duty(NamedTuple):
    """What the leader does beside its rounds; see the module."""

    name: str
    run: Callable[[], Coroutine[None, None, None]]
    """Cancelled when this one leads no more."""
    status: Callable[[], dict[str, Any]]
    """For people; JSON."""


class Controller:
    """See the module. Use `start`."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: Ledgers,
        rng: Random,
        settings: ControllerSettings = ControllerSettings(),  # noqa: B008 - frozen
        policies: Sequence[Policy] | None = None,
        duties: Sequence[Duty] = (),
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """`token`: required of those who connect, and sent to sequencers."""
        self._process = ListedProcess(CONTROLLER_ROLE, metadata=metadata, rng=rng, settings=settings, token=token)
        self.incarnation: Final = self._process.incarnation
        self.failed: Final = self._process.failed
        self.token: Final = token
        self._metadata = metadata
        self._settings = settings
        self._policies = tuple(default_policies() if policies is None else policies)
        self._duties = tuple(duties)
        self._faults: dict[str, str] = {}
        self._cluster = self._new_cluster(ledgers, rng)
        self._election: Election

    def _new_cluster(self, ledgers: Ledgers, rng: Random) -> Cluster:
        """Return what the policies work on: its watch of the sequencers wakes the rounds."""
        metadata, settings, token = self._metadata, self._settings, self.token
        return Cluster(
            metadata=metadata,
            ledgers=ledgers,
            settings=settings,
            changes=LogChanges(
                metadata, ledgers, rng, retry_for_s=settings.retry_for_s, token=token, role=permissions.CONTROLLER
            ),
            watch=SequencerWatch(metadata, SequencerSettings(), on_change=self._process.wake.set, token=token),
        )

    async def start(self, address: Address) -> Self:
        """Listens, lists itself and stands for election in the background. Raises SettingsError: cannot listen;
        MetadataUnavailable: the store is away."""
        await self._process.start(address, lambda: _Visitor(self), self._join, self._work)
        return self

    async def close(self) -> None:
        """Stops; another one is elected. Idempotent."""
        await self._process.close(self._stop)
        self._cluster.vacancies.flush()
        self._cluster.changes.close()

    @property
    def address(self) -> Address:
        return self._process.address

    @property
    def advertised(self) -> Address:
        """Where others reach it, as it lists itself."""
        return self._process.advertised

    @property
    def leading(self) -> bool:
        return self._election.leading

    def status(self) -> dict[str, Any]:
        """For people."""
        return self._process.status() | {
            "leading": self.leading,
            "policies": [{"name": one.name, "fault": self._faults.get(one.name)} for one in self._policies],
            "duties": {one.name: one.status() for one in self._duties},
        }

    async def _join(self) -> Membership:
        member = msgspec.json.encode({"address": str(self.advertised), "incarnation": self.incarnation})
        path = member_path(CONTROLLER_ROLE, self.incarnation)
        membership = await Membership.join(self._metadata, path, member)
        self._election = Election(self._metadata, LEADER_PATH, member, on_change=self._process.wake.set)
        return membership

    async def _stop(self) -> None:
        await self._cluster.watch.close()
        await self._election.resign()

    async def _work(self) -> None:
        while True:
            await retry(
                self._election.won,
                self._settings.backoff(),
                on_failure=lambda error, pause_s: _log.info("no election yet", pause_s=pause_s, error=error),
            )
            _log.info("leads", incarnation=self.incarnation)
            duties = [asyncio.create_task(one.run(), name=one.name) for one in self._duties]
            try:
                await self._lead(duties)
            finally:
                for duty in duties:
                    duty.cancel()
                await asyncio.gather(*duties, return_exceptions=True)
            _log.info("leads no more", incarnation=self.incarnation)

    async def _lead(self, duties: Sequence[asyncio.Task[None]] = ()) -> None:
        self._cluster.terms_led += 1
        while self._election.leading:
            for duty in duties:
                if duty.done():
                    duty.result()
            for policy in self._policies:
                if self._process.feed.error is not None:
                    raise self._process.feed.error
                if self._election.leading:
                    await self._run_policy(policy)
            await event_or_timeout(self._process.wake, self._settings.round_s)
        self._cluster.watch.look_at({})

    async def _run_policy(self, policy: Policy) -> None:
        try:
            await policy.run(self._cluster)
            self._faults.pop(policy.name, None)
        except BokiError as error:
            if self._faults.get(policy.name) != str(error):
                _log.warning("a policy failed and is run again", policy=policy.name, error=error)
            self._faults[policy.name] = str(error)


class _Visitor:
    """One connection to a controller. The first message is HELLO."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._greeted = False

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        controller = self._controller
        if opcode == protocol.OP_HELLO:
            controller.token.admit(protocol.decode_hello(body).auth, "this controller")
            self._greeted = True
            peer.introduced()
            welcome = protocol.Welcome(protocol.VERSION, controller.incarnation, NO_LOG, 0, False)
            peer.respond(request_id, opcode, protocol.encode_welcome(welcome))
        elif not self._greeted:
            raise ProtocolError(f"expected HELLO first, found opcode {opcode}", found=opcode)
        elif opcode == protocol.OP_STATUS:
            peer.respond(request_id, opcode, msgspec.json.encode(controller.status()))
        else:
            raise InvalidArgument(f"a controller knows no opcode {opcode}", found=opcode)

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        """Visitors come and go."""
