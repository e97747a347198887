"""The pool of a cell: nodes that it offers to others, and their claims, as functions from pool to pool.

A pool is one value of the shared store, and every change of it one swap by comparison of versions (S-05), so of two cells
that take from the same pool one is refused and sees what the other left (S-06). Whole nodes only. A borrower claims, and
queues and converts tickets; everything else is the lender's: only it knows what still runs on a node. Invariants, which
`faults` checks: no node is in a pool twice; an offer is not empty; numbers, claims and runs are within their bounds; a
ticket never holds more than it waits for; while a ticket waits for a class of nodes, every offered one of it is booked.

A function that changes nothing, because the pool does not have what is asked, returns None.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eslurm.core.federation import runs
from eslurm.core.model.federation import (
    CLAIMS_MAX,
    FORMAT,
    NODES_MAX,
    PASSES_MAX,
    RUNS_MAX,
    Claim,
    Offer,
    Order,
    Pool,
    Runs,
)

ClaimId = tuple[int, int]
"""Borrower and serial."""


def empty(epoch: int) -> Pool:
    """The pool of a lender that offers nothing yet."""
    return Pool(FORMAT, epoch, 0)


def id_of(claim: Claim) -> ClaimId:
    """The id of a claim within its pool."""
    return claim.borrower, claim.serial


def free(pool: Pool, kind: int = 0, for_s: int = 0) -> int:
    """Offered nodes of a class on which nothing is booked for so long; 0: on which nothing is booked."""
    return sum(runs.size(offer.nodes) for offer in pool.offers if offer.kind == kind and _lasts(offer, for_s))


def claimable(pool: Pool, kind: int = 0, for_s: int = 0) -> int:
    """As many nodes as `claim` gives: 0 for a pool that takes no claims, or no more."""
    is_full = len(pool.claims) >= CLAIMS_MAX or sum(map(len, _parts(pool))) >= RUNS_MAX
    return 0 if pool.stopped or is_full else free(pool, kind, for_s)


def find_claim(pool: Pool, claim_id: ClaimId) -> Claim | None:
    """A claim or ticket."""
    return next((claim for claim in pool.claims if id_of(claim) == claim_id), None)


def find_ticket(pool: Pool, order: Order) -> Claim | None:
    """The ticket of a job, which has one at most in a pool."""
    return next((claim for claim in pool.claims if claim.wanted and claim.order == order), None)


def room(pool: Pool, kind: int = 0) -> int:
    """Nodes of a class that a ticket can wait for, those in use included: 0 for a pool that takes none, or no more."""
    if pool.stopped:
        return 0
    return free(pool, kind) + sum(runs.size(one.nodes) for one in pool.claims if one.kind == kind)


# ---- the borrower's ----


def claim(pool: Pool, wish: Claim, count: int, for_s: int = 0) -> Pool | None:
    """Take `count` nodes from the offers into the claim `wish`; those that are free for the shortest time that will do."""
    if pool.stopped or count < 1 or len(pool.claims) >= CLAIMS_MAX or find_claim(pool, id_of(wish)):
        return None
    offers: list[Offer] = []
    nodes: Runs = ()
    missing = count
    # 0, nothing booked at all, is the longest time and comes last.
    for offer in sorted(pool.offers, key=lambda one: (one.for_s == 0, one.for_s)):
        if missing and offer.kind == wish.kind and _lasts(offer, for_s):
            part = runs.taken(offer.nodes, min(missing, runs.size(offer.nodes)))
            missing -= runs.size(part)
            nodes = runs.union(nodes, part)
            left = runs.difference(offer.nodes, part)
            if left:
                offers.append(replace(offer, nodes=left))
        else:
            offers.append(offer)
    if missing:
        return None
    mine = replace(wish, nodes=nodes, wanted=0, is_open=False)
    return _within_runs(replace(pool, offers=_ordered(offers), claims=(*pool.claims, mine)))


def queue(pool: Pool, ticket: Claim) -> Pool | None:
    """Enter a ticket for `ticket.wanted` nodes. It is filled before all with a higher order, what they hold included."""
    if pool.stopped or ticket.wanted < 1 or len(pool.claims) >= CLAIMS_MAX or find_claim(pool, id_of(ticket)):
        return None
    entered = replace(pool, claims=(*pool.claims, replace(ticket, nodes=(), is_open=False)))
    return _within_runs(fill(entered))


def is_ready(ticket: Claim) -> bool:
    """Check that a ticket holds all that it waits for."""
    return 0 < ticket.wanted == runs.size(ticket.nodes)


def convert(pool: Pool, claim_id: ClaimId) -> Pool | None:
    """Make a ready ticket a claim."""
    ticket = find_claim(pool, claim_id)
    if ticket is None or not is_ready(ticket):
        return None
    return _with(pool, replace(ticket, wanted=0, aside=False))


def without_ticket(pool: Pool, order: Order) -> Pool:
    """Withdraw the ticket of a job, if it is there: nothing can run on what it holds. A claim stays, see `close`."""
    ticket = find_ticket(pool, order)
    return _given_back(pool, [ticket]) if ticket is not None else pool


# ---- the lender's ----


def offer(pool: Pool, nodes: Runs, kind: int = 0, for_s: int = 0) -> Pool:
    """Add nodes, which are in no offer and no claim; tickets get them first. Raises ValueError for others."""
    if runs.overlap(nodes, all_nodes(pool)):
        raise ValueError(f"nodes {runs.overlap(nodes, all_nodes(pool))} are in the pool already")
    if not nodes:
        return pool
    return _written(fill(_offered(pool, nodes, kind, for_s)))


def close(pool: Pool, ended: Iterable[ClaimId]) -> Pool:
    """End claims on whose nodes nothing is left; the nodes are offered again, tickets first."""
    found = [one for claim_id in ended if (one := find_claim(pool, claim_id)) is not None]
    return _written(_given_back(pool, found))


def may_step_aside(pool: Pool, ticket: Claim) -> bool:
    """Check that a ticket holds nodes for which another one waits, and has not let others pass too often."""
    return (
        is_ready(ticket)
        and not ticket.aside
        and ticket.passes < PASSES_MAX
        and any(_lacks(one) and one.kind == ticket.kind for one in pool.claims)
    )


def turn(pool: Pool, claim_id: ClaimId) -> Pool | None:
    """Set a ticket aside, behind all others, or back to its place in their order."""
    ticket = find_claim(pool, claim_id)
    if ticket is None or not ticket.wanted:
        return None
    if ticket.aside:
        turned = replace(ticket, aside=False)
    elif may_step_aside(pool, ticket):
        turned = replace(ticket, aside=True, passes=ticket.passes + 1)
    else:
        return None
    return _written(fill(_with(pool, turned)))


# ---- tickets ----


def fill(pool: Pool) -> Pool:
    """Give the nodes on which nothing is booked, and that no claim holds, to the tickets in their order.

    Nothing runs on the nodes of a ticket, so a ticket of a lower order also gets what those of higher orders hold. Those
    that are set aside come last.
    """
    tickets = sorted(
        (one for one in pool.claims if one.wanted), key=lambda ticket: (ticket.aside, ticket.order)
    )
    if not tickets:
        return pool
    offers = list(pool.offers)
    held = {id_of(ticket): ticket.nodes for ticket in tickets}
    for place, ticket in enumerate(tickets):
        missing = ticket.wanted - runs.size(held[id_of(ticket)])
        for at, one in enumerate(offers):
            if missing and one.kind == ticket.kind and not one.for_s and one.nodes:
                part = runs.taken(one.nodes, min(missing, runs.size(one.nodes)))
                offers[at] = replace(one, nodes=runs.difference(one.nodes, part))
                held[id_of(ticket)] = runs.union(held[id_of(ticket)], part)
                missing -= runs.size(part)
        for later in reversed(tickets[place + 1 :]):
            theirs = held[id_of(later)]
            if missing and later.kind == ticket.kind and theirs:
                part = runs.taken(theirs, min(missing, runs.size(theirs)))
                held[id_of(later)] = runs.difference(theirs, part)
                held[id_of(ticket)] = runs.union(held[id_of(ticket)], part)
                missing -= runs.size(part)
    claims = tuple(replace(one, nodes=held[id_of(one)]) if one.wanted else one for one in pool.claims)
    return replace(pool, offers=tuple(one for one in offers if one.nodes), claims=claims)


# ---- checks ----


def all_nodes(pool: Pool) -> Runs:
    """Every node in the pool."""
    found: Runs = ()
    for nodes in _parts(pool):
        found = runs.union(found, nodes)
    return found


def faults(pool: Pool, offered: Runs | None = None) -> str:
    """Why the pool breaks an invariant; empty: it does not. `offered`: the nodes that its lender has put there."""
    parts = list(_parts(pool))
    if not all(runs.is_proper(nodes) for nodes in parts):
        return "nodes are not in ascending runs"
    everything = all_nodes(pool)
    if sum(map(runs.size, parts)) != runs.size(everything):
        return "a node is there twice"
    if runs.size(everything) > NODES_MAX:
        return f"{runs.size(everything)} nodes: at most {NODES_MAX}"
    if len(pool.claims) > CLAIMS_MAX or sum(map(len, parts)) > RUNS_MAX:
        return f"{len(pool.claims)} claims in {sum(map(len, parts))} runs: at most {CLAIMS_MAX} in {RUNS_MAX}"
    if len({id_of(claim) for claim in pool.claims}) != len(pool.claims):
        return "two claims have one name"
    if any(not one.nodes for one in pool.offers):
        return "an offer is empty"
    for one in pool.claims:
        held = runs.size(one.nodes)
        if one.wanted and held > one.wanted:
            return f"a ticket for {one.wanted} nodes holds {held}"
        if _lacks(one) and free(pool, one.kind):
            return f"nodes of class {one.kind} are offered while a ticket waits for them"
        if not one.wanted and not held:
            return "a claim is empty"
    if offered is not None and runs.difference(everything, offered):
        return f"nodes {runs.difference(everything, offered)} are not the lender's to give"
    return ""


# ---- within ----


def _lacks(one: Claim) -> bool:
    return one.wanted > runs.size(one.nodes)


def _lasts(one: Offer, for_s: int) -> bool:
    return one.for_s == 0 or 0 < for_s <= one.for_s


def _parts(pool: Pool) -> Iterable[Runs]:
    yield from (one.nodes for one in pool.offers)
    yield from (one.nodes for one in pool.claims)


def _ordered(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    return tuple(sorted(offers, key=lambda one: (one.kind, one.for_s)))


def _written(pool: Pool) -> Pool:
    return replace(pool, serial=pool.serial + 1)


def _within_runs(pool: Pool) -> Pool | None:
    return pool if sum(map(len, _parts(pool))) <= RUNS_MAX else None


def _with(pool: Pool, changed: Claim) -> Pool:
    claims = tuple(changed if id_of(one) == id_of(changed) else one for one in pool.claims)
    return replace(pool, claims=claims)


def _without(pool: Pool, ended: Iterable[Claim]) -> Pool:
    names = {id_of(one) for one in ended}
    return replace(pool, claims=tuple(one for one in pool.claims if id_of(one) not in names))


def _given_back(pool: Pool, ended: Iterable[Claim]) -> Pool:
    ended = list(ended)
    left = _without(pool, ended)
    if not left.stopped:
        for one in ended:
            left = _offered(left, one.nodes, one.kind, 0)
    return fill(left)


def _offered(pool: Pool, nodes: Runs, kind: int, for_s: int) -> Pool:
    if not nodes:
        return pool
    others = [one for one in pool.offers if (one.kind, one.for_s) != (kind, for_s)]
    same = [one.nodes for one in pool.offers if (one.kind, one.for_s) == (kind, for_s)]
    joined = Offer(kind, for_s, runs.union(same[0], nodes) if same else nodes)
    return replace(pool, offers=_ordered([*others, joined]))
