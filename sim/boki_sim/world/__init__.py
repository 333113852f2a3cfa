"""The machine that is simulated: time, network, disks, metadata, processes.

`loop` is an event loop in virtual time, `process` what runs on it, `network` and `transport` carry bytes, `disk` loses what was
not flushed, `guard` refuses the real machine, `trace` and `steps` record what happened.
"""
