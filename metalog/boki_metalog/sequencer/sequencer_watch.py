"""Who of the sequencers that the view names is there: a standing connection to each.

    watch = SequencerWatch(metadata, settings, on_change=…)
    watch.look_at({0: installed, 1: installed})
    watch.presence(0, term)                        Presence.SERVES, OVER, GONE, or UNKNOWN for a moment

Rules:
- A connection that is lost is followed by a direct call at once: a process that was killed is noticed when its kernel says
  so, not when its session expires. A call that is refused, or not answered in time, means gone.
- An open connection is asked again every now and then: a process that is stopped, or cut off, keeps its connection.
- Not being listed is a hint only: who was seen is asked where it was. Of one that was never seen, absence counts; but after
  this process lost its own session, only a session time-out later, when all that live are listed again (F14).
- A sequencer that answers but does not begin a term that it is named for is given the time of one call, then counts as over.

Says what is, decides nothing; `standby_rules` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from boki_common import limits
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import AccessError, BokiError, ConnectionLost, MetadataError, NetworkError, ProtocolError
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.net.messages import MessagePeer, connect_messages
from boki_common.retry import event_or_timeout
from boki_metalog.entries import sequencer_protocol as protocol
from boki_metalog.entries.permissions import PARTICIPANT
from boki_metalog.follow.sequencer_member import address_of
from boki_metalog.sequencer.standby_rules import Presence
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.view import Installed

_log = get_logger("sequencer_watch")


class SequencerWatch:
    """See the module. `on_change` is called after each change of any presence."""

    def __init__(
        self,
        metadata: MetadataStore,
        settings: SequencerSettings,
        *,
        on_change: Callable[[], None],
        session_timeout_s: float = limits.SESSION_TIMEOUT_S,
        token: ClusterToken = NO_TOKEN,
    ) -> None:
        self.token = token
        self.metadata = metadata
        self.settings = settings
        self.on_change = on_change
        self._session_timeout_s = session_timeout_s
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, _Watched] = {}
        self._addresses: dict[str, Address] = {}
        """Where sequencers of the view were seen: their membership may vanish before they do."""
        self._absence_counts_from_s = self._loop.time()
        metadata.on_session_lost(self._session_lost)

    def look_at(self, terms: Mapping[int, Installed]) -> None:
        """Watches the sequencers of these current terms, by log, and no others."""
        for log, watched in list(self._watched.items()):
            if terms.get(log) != watched.installed:
                watched.stop()
                del self._watched[log]
        for log, installed in sorted(terms.items()):
            if log not in self._watched:
                self._watched[log] = _Watched(self, log, installed)
        named = {installed.sequencer for installed in terms.values()}
        self._addresses = {one: address for one, address in self._addresses.items() if one in named}

    def presence(self, log: int, term: int) -> Presence:
        watched = self._watched.get(log)
        return Presence.UNKNOWN if watched is None or watched.installed.term != term else watched.presence

    def absence_counts(self) -> bool:
        """Whether everybody who lives has had the time to be listed."""
        return self._loop.time() >= self._absence_counts_from_s

    async def address_of(self, incarnation: str) -> Address | None:
        """Where a sequencer is, or was; None when it was never seen. Raises MetadataUnavailable, CorruptData."""
        try:
            address = await address_of(self.metadata, incarnation)
        except MetadataError as error:
            known = self._addresses.get(incarnation)
            if known is None or not error.retryable:
                raise
            return known  # the store is away: it is probably where it was
        if address is not None:
            self._addresses[incarnation] = address
        return address or self._addresses.get(incarnation)

    async def close(self) -> None:
        watched, self._watched = list(self._watched.values()), {}
        for one in watched:
            one.stop()
        await asyncio.gather(*(one.task for one in watched), return_exceptions=True)

    def _session_lost(self) -> None:
        self._absence_counts_from_s = self._loop.time() + self._session_timeout_s


class _Watched:
    """The sequencer of one term."""

    def __init__(self, owner: SequencerWatch, log: int, installed: Installed) -> None:
        self.presence = Presence.UNKNOWN
        self.installed = installed
        self._owner = owner
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._first_s = self._loop.time()
        self._event = asyncio.Event()
        self.task = self._loop.create_task(self._run())

    def stop(self) -> None:
        self.task.cancel()

    # -- MessageHandler

    def message_received(self, peer: MessagePeer, opcode: int, request_id: int, body: memoryview) -> None:
        if opcode == protocol.OP_TERM_OVER:
            self._event.set()

    def peer_lost(self, peer: MessagePeer, error: BokiError | None) -> None:
        self._event.set()

    # -- the life of a watch

    async def _run(self) -> None:
        settings = self._owner.settings
        while True:
            began_s = self._loop.time()
            try:
                was_there = await self._stay_connected()
            except MetadataError as error:
                if not error.retryable:
                    _log.warning("a sequencer cannot be found", log=self._log, error=error)
                was_there = False
            except AccessError as error:
                # It is there, and does not speak to us: perhaps it orders the log.
                _log.warning("a sequencer does not let us ask", log=self._log, error=error)
                self._set(Presence.UNKNOWN)
                was_there = False
            except (NetworkError, ProtocolError) as error:
                if self.presence is not Presence.GONE:
                    _log.info("a sequencer does not answer", log=self._log, term=self.installed.term, error=error)
                self._set(Presence.GONE)
                was_there = False
            if not was_there or self._loop.time() - began_s < settings.retry_first_s:
                await event_or_timeout(self._event, settings.standby_check_s)

    async def _stay_connected(self) -> bool:
        """Returns when the connection is lost, after the sequencer answered on it; False when there is no address."""
        settings = self._owner.settings
        address = await self._owner.address_of(self.installed.sequencer)
        if address is None:
            self._set(Presence.GONE if self._owner.absence_counts() else Presence.UNKNOWN)
            return False
        peer = await connect_messages(address, self, timeout_s=settings.confirm_timeout_s)
        answered = False
        try:
            while not peer.closed:
                hello = protocol.encode_hello(token=self._owner.token, role=PARTICIPANT)
                try:
                    body = await peer.call(protocol.OP_HELLO, hello, timeout_s=settings.confirm_timeout_s)
                except ConnectionLost:
                    if not answered:
                        raise
                    return True
                answered = True
                self._set(self._judge(protocol.decode_welcome(body)))
                await event_or_timeout(self._event, settings.standby_check_s)
            return True
        finally:
            peer.close()

    def _judge(self, welcome: protocol.Welcome) -> Presence:
        installed = self.installed
        if welcome.incarnation != installed.sequencer:
            return Presence.GONE
        if welcome.term == installed.term:
            return Presence.SERVES if welcome.serving else Presence.OVER
        waited_s = self._loop.time() - self._first_s
        if welcome.term > installed.term or waited_s < self._owner.settings.confirm_timeout_s:
            return Presence.UNKNOWN
        return Presence.OVER

    def _set(self, presence: Presence) -> None:
        if presence is not self.presence:
            self.presence = presence
            self._owner.on_change()
