"""The format of workflows and the rules that read it: events, outcomes, a history in order, locks, schedules. Pure."""
