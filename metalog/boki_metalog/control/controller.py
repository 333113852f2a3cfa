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
- The others stand for election; they take part in nothing.

For people: HELLO and STATUS, as a sequencer answers them, to those who show the cluster token if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from boki_common.advertised import advertised
from boki_common.background_tasks import ended
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BokiError, InvalidArgument, MetadataError, ProtocolError
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership, member_path
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address, FrameServer
from boki_common.net.messages import MessagePeer, serve_messages
from boki_common.retry import event_or_timeout, retry
from boki_common.runtime.ports import Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.control.election import Election
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.control.policies import Cluster, Policy, default_policies
from boki_metalog.entries import permissions
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.sequencer.sequencer_watch import SequencerWatch
from boki_metalog.settings import ControllerSettings, SequencerSettings
from boki_metalog.terms.metadata_tree import ensure_view
from boki_metalog.terms.view_feed import ViewFeed

CONTROLLER_ROLE: Final = "controller"
LEADER_PATH: Final = "/boki/controller"
NO_LOG: Final = -1

_log = get_logger("controller")


class ControllerMember(msgspec.Struct, frozen=True):
    """What a controller says of itself, in its membership and as the leader."""

    address: str
    incarnation: str


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
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        """`token`: asked of those who connect, and shown to sequencers."""
        self.incarnation = rng.token(16).hex()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error that ended this incarnation; never a result."""
        self.token = token
        self._metadata = metadata
        self._settings = settings
        self._policies = tuple(default_policies() if policies is None else policies)
        self._faults: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._feed = ViewFeed(metadata, self._wake.set, settings.backoff())
        self._cluster = Cluster(
            metadata=metadata,
            ledgers=ledgers,
            settings=settings,
            changes=LogChanges(
                metadata, ledgers, rng, retry_for_s=settings.retry_for_s, token=token, role=permissions.CONTROLLER
            ),
            watch=SequencerWatch(metadata, SequencerSettings(), on_change=self._wake.set, token=token),
        )
        self._server: FrameServer
        self._membership: Membership
        self._election: Election
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> Controller:
        """Listens, lists itself and stands for election in the background. Raises SettingsError: cannot listen;
        MetadataUnavailable: the store is away."""
        metadata = self._metadata
        self._server = await serve_messages(address, lambda _: _Visitor(self))
        try:
            await ensure_view(metadata)
            member = msgspec.json.encode(ControllerMember(str(self.advertised), self.incarnation))
            self._membership = await Membership.join(metadata, member_path(CONTROLLER_ROLE, self.incarnation), member)
        except BaseException:
            await self._server.close()
            raise
        self._election = Election(metadata, LEADER_PATH, member, on_change=self._wake.set)
        self._feed.start()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    @property
    def address(self) -> Address:
        return self._server.address

    @property
    def advertised(self) -> Address:
        """Where others reach it, as it lists itself."""
        return advertised(self.address, self._settings.advertise, key="controller.advertise")

    @property
    def leading(self) -> bool:
        return self._election.leading

    def status(self) -> dict[str, Any]:
        """For people."""
        return {
            "role": CONTROLLER_ROLE,
            "incarnation": self.incarnation,
            "address": str(self.advertised),
            "asks_for_token": self.token.asks,
            "leading": self.leading,
            "policies": [{"name": one.name, "fault": self._faults.get(one.name)} for one in self._policies],
            "failed": str(self.failed.exception()) if self.failed.done() and not self.failed.cancelled() else None,
        }

    async def close(self) -> None:
        """Stops; another one is elected. Idempotent."""
        await ended(self._task)
        await self._feed.close()
        await self._cluster.watch.close()
        await self._election.resign()
        await self._server.close()
        try:
            await self._membership.leave()
        except MetadataError as error:
            _log.info("still listed until the session ends", incarnation=self.incarnation, error=error)

    async def _run(self) -> None:
        try:
            while True:
                await retry(
                    self._election.won,
                    self._settings.backoff(),
                    on_failure=lambda error, pause_s: _log.info("no election yet", pause_s=pause_s, error=error),
                )
                _log.info("leads", incarnation=self.incarnation)
                await self._lead()
                _log.info("leads no more", incarnation=self.incarnation)
        except Exception as error:  # noqa: BLE001 - raised by `failed`
            _log.warning("controller ends", incarnation=self.incarnation, error=error)
            self.failed.set_exception(error)
            self.failed.exception()  # kept for whoever asks; nobody is warned when no one does

    async def _lead(self) -> None:
        self._cluster.begin()
        while self._election.leading:
            for policy in self._policies:
                if self._feed.error is not None:
                    raise self._feed.error
                if self._election.leading:
                    await self._run_policy(policy)
            await event_or_timeout(self._wake, self._settings.round_s)
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
