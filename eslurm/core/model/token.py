"""The controller's record of an issued token, without the token.

Invariant: a sealed token is valid only while its record exists. Every controller with the state refuses a revoked token at
once.
"""

from __future__ import annotations

from typing import Final

import msgspec

TOKEN: Final = "token"
"""The kind of its row; the row's name is the id in hexadecimal digits."""
ID_BYTES: Final = 16

SCOPES: Final = ("read", "own-jobs", "submit", "admin", "estimator")
"""Possible scopes of a token (`api.scopes` lists their calls). The first four contain each other."""


class TokenRules(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Bounds of tokens, at creation and at use. `total_max` counts all users' tokens."""

    life_user_max_s: int = 604_800
    """Of a token that a user makes for themselves."""
    life_max_s: int = 2_592_000
    """Of a token that an administrator makes for another user."""
    user_max: int = 100
    total_max: int = 10_000


class IssuedToken(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One token: `user` bears it, `by` requested it, `via` is the way in. Times are UTC microseconds."""

    id: bytes
    user: str
    uid: int
    scope: str
    issued_us: int
    expires_us: int
    by: str
    by_uid: int
    via: str = ""


def life_max_s(rules: TokenRules, token: IssuedToken) -> int:
    """The longest life of a token for this bearer, in seconds."""
    return rules.life_user_max_s if token.by_uid == token.uid else rules.life_max_s
