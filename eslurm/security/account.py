"""The user of a daemon that root starts (`--user`), and the drop of root's privileges.

Invariant: a file is handed over by its descriptor, never under a name that its new owner, or an earlier one, could change.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat

import msgspec

from eslurm.security.keyring import leave_session_keyring

DEFAULT = "eslurm"
_ID_MAX = (1 << 32) - 2
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


class Account(msgspec.Struct, frozen=True):
    """A user that is not root, and its group."""

    uid: int
    gid: int


def find_account(text: str, *, is_needed: bool = True) -> Account | None:
    """The account named by `--user`: NAME, UID or UID:GID. None when it is this process's own.

    Empty: `eslurm` where root must be dropped (`is_needed`), else this process's own. Raises ValueError with the way out.
    """
    me = os.geteuid()
    if not text and (me != 0 or not is_needed):
        return None
    account = _default() if not text else _named(text)
    if account.uid == 0 or account.gid == 0:
        raise ValueError(f"--user: '{text}' is root, which the daemon is not to be: name another user")
    if me == account.uid:
        return None
    if me != 0:
        raise ValueError(f"--user: '{text}' is another user than this one: only root can start it so")
    return account


def give(path: str, account: Account, *, directory: int | None = None) -> bool:
    """Give a plain file of this name to the account, if it has no other name; returns whether it did."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=directory)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if is_plain:
            os.fchown(fd, account.uid, account.gid)
        return is_plain
    finally:
        os.close(fd)


def drop(account: Account) -> None:
    """Become the user, irrevocably, without the keys of root's session. Raises OSError."""
    leave_session_keyring()
    os.setgroups([])
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up new privileges")
    # A process that was root's may not look into its own files in /proc: there is no secret of root's in it.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    if os.getresuid() != (account.uid,) * 3 or os.getresgid() != (account.gid,) * 3:
        raise OSError("root could not be given up")


def _default() -> Account:
    try:
        found = pwd.getpwnam(DEFAULT)
    except KeyError:
        raise ValueError(
            f"--user: started by root without it, and there is no account {DEFAULT}: make one (useradd --system "
            f"{DEFAULT}), or name the user that the agent is to be (NAME, or UID:GID that no account has)"
        ) from None
    return Account(found.pw_uid, found.pw_gid)


def _named(text: str) -> Account:
    uid, colon, gid = text.partition(":")
    if _is_id(uid) and (not colon or _is_id(gid)):
        if colon:
            return Account(int(uid), int(gid))
        try:
            return Account(int(uid), pwd.getpwuid(int(uid)).pw_gid)
        except KeyError:
            return Account(int(uid), int(uid))
    try:
        found = pwd.getpwnam(text)
    except KeyError:
        raise ValueError(f"--user: there is no account '{text}': give NAME, UID or UID:GID") from None
    return Account(found.pw_uid, found.pw_gid)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _ID_MAX
