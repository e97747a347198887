"""What becomes of an order once its process is its user's: environment, file names and arguments, and the program itself.

`procd` forks, the child gives root up for good, and only then calls anything here; where no root is involved it is called
in place. `stepd` builds the same step as the agent's user, to check it and to learn how long it may run. Invariant: nothing
here needs a right of root's, or decides whose a process is.
"""
