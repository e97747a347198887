"""Preparation of a step's process as its user: environment, file names and arguments, and the exec of the program.

`procd` forks, the child drops root for good, and only then calls anything here; without root it is called in place.
`stepd` builds the same step as the agent's user, to check it and to read its time limit. Invariant: nothing here needs a
right of root's, or decides about a process's user.
"""
