"""Start a program of another project as a user that is not root: `as_user UID PROGRAM ARGUMENTS...`.

The program takes this process's place, so its pid is the one that the caller knows.
"""

from __future__ import annotations

import os
import sys

from eslurm.security.account import Account, drop


def main(words: list[str]) -> None:
    """Never returns. Raises OSError."""
    uid = int(words[0])
    drop(Account(uid, uid))
    os.execv(words[1], words[1:])  # nosec B606 # the program that `eslurm up` was given, without a shell


if __name__ == "__main__":
    main(sys.argv[1:])
