"""`procd`, the part of the step supervisor that stays root: it starts, signals and collects the processes of steps.

All else (the agent's requests, the table of steps, journal, timers, output) is the supervisor's, which runs as the agent's
user. This room is small so that it can be reviewed line by line. Invariants: a process is started only as a sealed
credential says; a signal goes only to processes that were started here, or that carry the mark of one of them; nothing of
the supervisor is believed but which of that it wants, and when.
"""
