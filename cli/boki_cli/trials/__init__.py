"""Commands that look for faults: soak, simulations, histories."""
