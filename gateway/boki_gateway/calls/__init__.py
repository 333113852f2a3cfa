"""One HTTP call: its route, parameters and body in, the answer out."""
