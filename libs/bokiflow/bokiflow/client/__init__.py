"""What programs call: apps, handles, results, schedules, replays."""
