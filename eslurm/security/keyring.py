"""Session keyrings of processes that give root up (`keyrings(7)`).

A process keeps its session keyring when it becomes another user, and whatever possesses a keyring can read the keys in it: a
task would read those of the session in which root has started the daemon, and those of other users' tasks.
"""

from __future__ import annotations

import ctypes
import errno
import os

_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_JOIN_SESSION_KEYRING = 1
_NUMBER = _SYS_KEYCTL.get(os.uname().machine, 0)
_libc = ctypes.CDLL(None, use_errno=True)


def leave_session_keyring() -> None:
    """Take an empty session keyring in the place of the inherited one. Raises OSError.

    Call it as root, on whose quota of keys it then counts. Where the kernel has no keyrings, or keeps them from this process
    and its children, there is nothing to leave.
    """
    if _NUMBER and _libc.syscall(_NUMBER, _JOIN_SESSION_KEYRING, None) < 0:
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
            raise OSError(number, "cannot leave the session's keyring")
