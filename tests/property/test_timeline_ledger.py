"""The ledger against plain dictionaries: what is free, who fits, what comes back when."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eslurm.core.resources import bits
from eslurm.core.resources.ledger import Ledger, LedgerError
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import Vector, fits
from tests.support.profiles import draws

TOTALS: list[Vector] = [(4, 40), (4, 40), (8, 20), (0, 10), (6,)]
NUMBERS = [7, 3, 11, 5, 2]

node_indexes = st.integers(0, len(TOTALS) - 1)
amounts = st.tuples(st.integers(0, 5), st.integers(0, 25))
ends = st.integers(1, 30)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        nodes = [NodeView(NUMBERS[i], f"n{i}", TOTALS[i]) for i in range(len(TOTALS))]
        self.ledger = Ledger(Topology(nodes))
        self.holds: list[tuple[int, Vector, int]] = []
        self.usable = set(range(len(TOTALS)))

    def free(self, index: int) -> tuple[int, int]:
        cores, memory = (*TOTALS[index], 0)[:2]
        for held, (c, m), _ in self.holds:
            if held == index:
                cores, memory = cores - c, memory - m
        return (cores, memory)

    @rule(index=node_indexes, asked=amounts, until=ends)
    def hold(self, index: int, asked: tuple[int, int], until: int) -> None:
        if fits(asked, self.free(index)):
            self.ledger.hold(NUMBERS[index], asked, until)
            self.holds.append((index, asked, until))
        else:
            with pytest.raises(LedgerError, match="cannot be held"):
                self.ledger.hold(NUMBERS[index], asked, until)

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if not self.holds:
            return
        chosen = data.draw(st.integers(0, len(self.holds) - 1))
        index, asked, until = self.holds.pop(chosen)
        self.ledger.give_back(NUMBERS[index], asked, until)

    @rule(asked=amounts, until=ends)
    def hold_otherwise_all_that_ends_then(self, asked: tuple[int, int], until: int) -> None:
        if not self.holds:
            return
        end = self.holds[0][2]
        changes = [(NUMBERS[index], held, asked) for index, held, ends in self.holds if ends == end]
        after = [
            (index, asked, until) if ends == end else (index, held, ends) for index, held, ends in self.holds
        ]
        before, self.holds = self.holds, after
        if all(min(self.free(index)) >= 0 for index in range(len(TOTALS))):
            self.ledger.rehold(changes, end, until)
            return
        self.holds = before
        with pytest.raises(LedgerError, match="cannot become that much"):
            self.ledger.rehold(changes, end, until)

    @rule(index=node_indexes, asked=amounts)
    def refuse_to_hold_otherwise_what_is_not_held(self, index: int, asked: tuple[int, int]) -> None:
        with pytest.raises(LedgerError, match="holds no"):
            self.ledger.rehold([(NUMBERS[index], asked, asked)], 99, 100)

    @rule(index=node_indexes, asked=amounts)
    def refuse_to_give_back_what_is_not_held(self, index: int, asked: tuple[int, int]) -> None:
        with pytest.raises(LedgerError, match="holds no"):
            self.ledger.give_back(NUMBERS[index], asked, 99)

    @rule(index=node_indexes, usable=st.booleans())
    def set_usable(self, index: int, usable: bool) -> None:
        self.ledger.set_usable(NUMBERS[index], usable)
        (self.usable.add if usable else self.usable.discard)(index)

    @rule()
    def go_on_with_a_fork_while_the_original_changes(self) -> None:
        original, self.ledger = self.ledger, self.ledger.fork()
        for position in range(len(TOTALS)):
            original.set_usable(NUMBERS[position], False)
            free = original.free_on(position)
            original.hold(NUMBERS[position], free, 5)

    @rule(asked=amounts)
    def who_fits(self, asked: tuple[int, int]) -> None:
        expected = [i for i in range(len(TOTALS)) if fits(asked, self.free(i))]
        assert bits.all_positions(self.ledger.fitting(asked)) == expected
        for index, number in enumerate(NUMBERS):
            assert self.ledger.fits_on(number, asked) == (index in expected and index in self.usable)

    @invariant()
    def agrees(self) -> None:
        self.ledger.check()
        for index, number in enumerate(NUMBERS):
            assert self.ledger.free(number) == self.free(index)
            assert bool((self.ledger.usable >> index) & 1) == (index in self.usable)
            assert bool((self.ledger.open >> index) & 1) == (self.free(index)[0] > 0 and index in self.usable)
        assert self.ledger.emptied().idle == (1 << len(TOTALS)) - 1
        assert self.ledger.emptied().usable == self.ledger.usable


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=draws(60), stateful_step_count=30, deadline=None)
