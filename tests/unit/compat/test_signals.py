"""`--signal` as sbatch takes it, and signals by name or number."""

from __future__ import annotations

import signal

import pytest

from eslurm.compat.errors import OptionError
from eslurm.compat.signals import NUMBERS, parse_signal, parse_warning


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("USR1", (10, 60, False)),
        ("B:USR1@120", (10, 120, True)),
        ("b:sigterm", (15, 60, True)),
        ("12@0", (12, 0, False)),
        ("USR2@65535", (12, 65535, False)),
    ],
)
def test_a_warning(text: str, meant: tuple[int, int, bool]) -> None:
    assert parse_warning(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USRR1", "'USRR1' (column 1), which is not a signal: did you mean USR1?"),
        ("B:USR9@5", "'USR9' (column 3)"),
        ("B:USR1@x", "'x' (column 8)"),
        ("USR1@70000", "'70000' (column 6): give seconds from 0 to 65535"),
        ("USR1@", "an empty value (column 6)"),
        ("R:USR1", "'R:' (column 1): B: signals the batch shell alone"),
        ("", "an empty value (column 1)"),
    ],
)
def test_what_is_no_warning_is_told_with_its_column(text: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_warning(text)
    assert said in str(refused.value)
    assert str(refused.value).startswith("--signal: ")


def test_the_names_are_this_systems() -> None:
    own = {entry.name.removeprefix("SIG"): int(entry) for entry in signal.Signals}
    assert {name: own[name] for name in NUMBERS if name in own} == {
        name: number for name, number in NUMBERS.items() if name in own
    }
    assert set(NUMBERS.values()) == set(range(1, 32))


def test_signals_by_name_and_number() -> None:
    assert {parse_signal(text) for text in ("USR1", "SIGUSR1", "usr1", "10")} == {10}
    with pytest.raises(OptionError, match="did you mean KILL"):
        parse_signal("KIL")
    with pytest.raises(OptionError, match="is not a signal"):
        parse_signal("200")
