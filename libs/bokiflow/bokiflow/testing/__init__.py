"""Tests of workflows under faults, in memory and in milliseconds: after every crash and takeover the workflow ends once, with its result.

    @in_virtual_time
    async def test_checkout_survives() -> None:
        await survives(app, checkout.call("7"), expected="a receipt", signals=[("approved", "ann")])

`survives` runs the workflow once without faults; then with a crash before and after each operation of the log, and with each answer lost;
then with a second worker that takes over before each operation. It replays all histories from every place. If the test needs a store or
other objects of a process, pass a function that gets the process's `Log` and returns the app and the call.

The test does not see effects of steps outside of the log. Here as in production a step runs at least once.
"""

from bokiflow.testing._elsewhere import replays_elsewhere
from bokiflow.testing._scenario import LoopClock, Scenario, Survived, in_virtual_time, replays_everywhere, survives

__all__ = [
    "LoopClock",
    "Scenario",
    "Survived",
    "in_virtual_time",
    "replays_elsewhere",
    "replays_everywhere",
    "survives",
]
