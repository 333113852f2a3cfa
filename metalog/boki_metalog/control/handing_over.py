"""A sequencer that is stopped gives its log to a standby first, so that appends wait for one planned change of the term.

    await hand_over(sequencer, metadata=…, ledgers=…, rng=…, token=…)

Best effort, within `LIMIT_S`: where nobody stands by, or the metadata store or the bookies are away, it ends as a sequencer that is
killed does, and a standby takes over when it notices. A standby counts if it answered a direct call just now.
"""

from __future__ import annotations

import asyncio
from typing import Final

from boki_common.cluster_token import ClusterToken
from boki_common.errors import BokiError, NoSequencer
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.runtime.ports import Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.control.log_changes import LogChanges
from boki_metalog.entries.permissions import CONTROLLER
from boki_metalog.sequencer.sequencer import Sequencer

LIMIT_S: Final = 3.0
"""Less than service managers wait between SIGTERM and SIGKILL."""

_log = get_logger("sequencer")


async def hand_over(
    sequencer: Sequencer, *, metadata: MetadataStore, ledgers: Ledgers, rng: Random, token: ClusterToken
) -> bool:
    """Whether another sequencer has the log now, or there was none to give."""
    term, log = sequencer.term, sequencer.log
    if term == 0 or log is None:
        return True
    changes = LogChanges(
        metadata, ledgers, rng, retry_for_s=0.0, token=token, role=CONTROLLER, without=sequencer.incarnation
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            await changes.roll(log, suspect=term)
    except NoSequencer:
        _log.info("nobody stands by to take the log over", log=log, term=term)
        return False
    except (BokiError, TimeoutError) as error:
        _log.warning("the log could not be handed over", log=log, term=term, error=error)
        return False
    _log.info("log handed over", log=log, term=term)
    return True
