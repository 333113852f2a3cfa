"""HTTP for roles and the gateway: the server, its limits, who may ask, pages of metrics."""
