"""Why a simulation cannot go on."""

from __future__ import annotations


class SimulationError(Exception):
    """The simulation itself cannot go on: the scenario, or code under it, did what it must not."""


class Spinning(SimulationError):
    """Code runs for ever without waiting for anything."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set, but the scenario has not ended."""


class Refused(SimulationError):
    """Code under the simulation reached for the machine: wall clock, randomness, thread, socket, file."""
