"""A site that issues tokens, for tests of what takes them."""

from __future__ import annotations

from collections.abc import Callable

from eslurm.api.tokens import Claims, Ledger, TokenAuthenticator, seal_token
from eslurm.core.model.job import Principal
from eslurm.core.model.token import IssuedToken, TokenRules
from tests.kits.api import ALICE
from tests.support.trust import Site

SITE = Site("test", bytes(range(32))).keys
STRANGERS = Site("test").keys


class Office:
    """Issues tokens of cluster `test` and remembers them, as a leading controller does."""

    def __init__(self, rules: TokenRules | None = None) -> None:
        self.rules = rules or TokenRules()
        self.issued: dict[bytes, IssuedToken] = {}
        self.ledger = Ledger(self.issued.get, lambda: self.rules)

    def claims(
        self,
        expires_us: int,
        who: Principal = ALICE,
        scope: str = "submit",
        issued_us: int = 0,
        by_uid: int | None = None,
    ) -> Claims:
        """The claims of a new token; the kit remembers it."""
        identifier = (len(self.issued) + 1).to_bytes(16)
        self.issued[identifier] = IssuedToken(
            identifier,
            who.name,
            who.uid,
            scope,
            issued_us,
            expires_us,
            "somebody",
            who.uid if by_uid is None else by_uid,
        )
        return Claims(identifier, SITE.cluster, who, scope, issued_us, expires_us)

    def token(
        self, expires_us: int, who: Principal = ALICE, scope: str = "submit", issued_us: int = 0
    ) -> str:
        """A new token."""
        return seal_token(SITE, self.claims(expires_us, who, scope, issued_us))

    def authenticator(self, now_us: Callable[[], int]) -> TokenAuthenticator:
        """An authenticator that takes the kit's tokens."""
        return TokenAuthenticator(lambda: SITE.ring, self.ledger, now_us)
