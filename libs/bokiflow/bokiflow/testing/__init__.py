"""Tests of workflows: whatever dies, whoever else runs, the workflow ends once, as it should. In memory, in milliseconds.

    @in_virtual_time
    async def test_checkout_survives() -> None:
        await survives(app, checkout.call("7"), expected="a receipt", signals=[("approved", "ann")])

`survives` runs the workflow once as it is; then with a crash before and after each operation of the log, and with each answer lost; with a
second worker that takes over before each operation; and it replays all histories from every place. What is built of several records, or
needs something before, is a function of the process's `Log` that gives the app and the call.

Not seen by this: what bodies do outside of the log. They are begun at least once, here as in use.
"""

from bokiflow.testing._elsewhere import replays_elsewhere
from bokiflow.testing._replays import replays_everywhere
from bokiflow.testing._scenario import Scenario, Survived, survives
from bokiflow.testing._virtual import LoopClock, in_virtual_time

__all__ = [
    "LoopClock",
    "Scenario",
    "Survived",
    "in_virtual_time",
    "replays_elsewhere",
    "replays_everywhere",
    "survives",
]
