"""Golden texts, seeds, short directories and Hypothesis profiles, each as a test would use them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.support import golden as golden_support
from tests.support import profiles
from tests.support.directories import LONGEST_BELOW_BYTES
from tests.support.seeds import Seeds

ROOT = Path(__file__).parents[3]

COMPARES = """
    def test_text(golden):
        golden("sub/name.txt", "one\\ntwo\\n")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project with golden texts and seeds."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini(
        "[pytest]\naddopts = -p tests.support.golden -p tests.support.seeds -p no:cacheprovider\n"
    )
    return pytester


def test_golden_text_is_missing_then_blessed_then_equal_then_different(project: pytest.Pytester) -> None:
    project.makepyfile(COMPARES)
    directory = f"--golden-dir={project.path}/golden"

    missing = project.runpytest_inprocess(directory)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*no golden text sub/name.txt*--bless*"])

    project.runpytest_inprocess(directory, "--bless").assert_outcomes(passed=1)
    text = project.path / "golden" / "sub" / "name.txt"
    assert text.read_text() == "one\ntwo\n"
    project.runpytest_inprocess(directory).assert_outcomes(passed=1)

    text.write_text("one\nthree")
    different = project.runpytest_inprocess(directory)
    different.assert_outcomes(failed=1)
    different.stdout.fnmatch_lines(["*sub/name.txt differs*", "*-three", "*no newline*", "*+two"])
    assert text.read_text() == "one\nthree"


def test_bless_is_refused_in_ci(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project.makepyfile(COMPARES)
    result = project.runpytest_inprocess("--bless", f"--golden-dir={project.path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "sub").exists()


def test_a_golden_name_cannot_lead_out_of_its_directory(golden: golden_support.Golden) -> None:
    with pytest.raises(ValueError, match="leads out"):
        golden("../conftest.py", "")


def test_a_failing_seed_is_reported_with_the_command_that_runs_it_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        def test_seeded(seeds):
            for seed in seeds(5):
                assert seed != 3
        """
    )
    failing = project.runpytest_inprocess()
    failing.assert_outcomes(failed=1)
    failing.stdout.fnmatch_lines(["*run it again:*test_it.py::test_seeded*--seed 3*"])
    project.runpytest_inprocess("--seed", "3").assert_outcomes(failed=1)
    project.runpytest_inprocess("--seed", "4").assert_outcomes(passed=1)


def test_seeds_count_from_one_unless_one_is_given() -> None:
    assert list(Seeds(pytest.Stash(), None)(3)) == [1, 2, 3]
    assert list(Seeds(pytest.Stash(), 77)(3)) == [77]


def test_a_state_dir_leaves_room_for_a_socket(state_dir: Path) -> None:
    path = state_dir / ("s" * (LONGEST_BELOW_BYTES - 1))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        assert path.is_socket()


def test_a_state_dir_is_short_though_the_temporary_directory_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert request.getfixturevalue("state_dir").parent == Path("/tmp")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "dev"),
        ({"CI": "true"}, "ci"),
        ({"CI": "true", "HYPOTHESIS_PROFILE": "dev"}, "dev"),
        ({"HYPOTHESIS_PROFILE": "ci"}, "ci"),
    ],
)
def test_the_profile_follows_the_environment(
    environment: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for variable in ("CI", "HYPOTHESIS_PROFILE"):
            patch.delenv(variable, raising=False)
        for variable, value in environment.items():
            patch.setenv(variable, value)
        assert profiles.load() == name
        assert settings().derandomize is (name == "ci")
        assert settings().deadline is None
        assert len(providers.HypothesisProvider(None)._local_constants) == 0 or name == "dev"
    profiles.load()
