"""Tools of state machines: their program in the simulator. Read `simulated_machines`, `record_laws`, then `simulated`."""
