"""The protocol of bookies: requests in, answers out.

`auth_gate` lets in who shows the token, `server` speaks version 2 and `server_v3` version 3, `long_polls` hold reads of a last add,
`backpressure` bounds what waits; `admin` and `health` are HTTP.
"""
