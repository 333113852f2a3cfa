"""Commands that start roles, one a process or all in one."""
