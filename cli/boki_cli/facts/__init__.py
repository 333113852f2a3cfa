"""What is known of a cluster, and what is wrong with it: for `boki status` and the gateway's page."""
