"""Models as files: whole or not at all, the last ones kept, rubbish named and passed over, nothing ever executed."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from eslurm.estimator import files
from eslurm.estimator.files import ModelError, ModelFiles, read_kept, write_model
from eslurm.ports.estimator import Model


def model(seed: int = 1, **facts: object) -> Model:
    numbers = np.random.default_rng(seed)
    arrays = {
        "trees": numbers.random((7, 3)),
        "words": np.array(["a", "bä"]),
        "file": numbers.integers(0, 9, 5, dtype=np.int32),
        "head": np.zeros(0),
    }
    return Model(arrays, {"features": ["user", "cores"], "window_jobs": 700, "learnt_at_s": 12} | facts)


def assert_same(one: Model, other: Model) -> None:
    assert dict(one.facts) == dict(other.facts)
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        assert np.array_equal(array, other.arrays[name])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_was_written_is_read(tmp_path: Path) -> None:
    kept = ModelFiles(tmp_path / "models", "last-2")
    assert list(kept.newest_first()) == []

    path = kept.save(model())

    assert path == tmp_path / "models" / "last-2-1.npz"
    assert path.stat().st_mode & 0o077 == 0
    found = next(kept.newest_first())
    assert found[0] == path
    assert_same(found[1], model())
    assert_same(read_kept(path).model, model())


def test_the_last_ones_are_kept_and_others_left_alone(tmp_path: Path) -> None:
    kept = ModelFiles(tmp_path, "last", keep=3)
    ModelFiles(tmp_path, "last-2").save(model())
    (tmp_path / "notes.txt").write_text("mine")
    for seed in range(12):
        kept.save(model(seed))

    assert names(tmp_path) == ["last-10.npz", "last-11.npz", "last-12.npz", "last-2-1.npz", "notes.txt"]
    assert_same(next(kept.newest_first())[1], model(11))


def test_a_damaged_file_is_named_and_the_one_before_it_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ModelFiles(tmp_path, "svr")
    kept.save(model(1))
    cut = kept.save(model(2))
    cut.write_bytes(cut.read_bytes()[:-40])
    turned = kept.save(model(3))
    data = bytearray(turned.read_bytes())
    data[len(data) // 3] ^= 0xFF
    turned.write_bytes(data)

    found = list(kept.newest_first())

    assert len(found) == 1
    assert_same(found[0][1], model(1))
    assert "svr-2.npz" in caplog.text and "svr-3.npz" in caplog.text
    # A damaged number is not given again.
    assert kept.save(model(4)).name == "svr-4.npz"


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    kept = ModelFiles(tmp_path, "svr")
    kept.save(model())
    (tmp_path / "svr-2.npz.new").write_bytes(b"half a mod")
    (tmp_path / "forest-2.npz.new").write_bytes(b"of somebody else")

    kept.tidy()

    assert names(tmp_path) == ["forest-2.npz.new", "svr-1.npz"]
    ModelFiles(tmp_path / "nowhere", "svr").tidy()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ModelFiles(tmp_path, "svr")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            kept.save(model())
    with pytest.raises(ValueError, match="Out of range float"):
        kept.save(model(score=float("nan")))
    with pytest.raises(ValueError, match="must be what JSON holds"):
        kept.save(model(score=np.int64(3)))
    with pytest.raises(ValueError, match="array 'odd' of a model holds objects"):
        kept.save(Model({"odd": np.array([{}], dtype=object)}, {}))

    assert names(tmp_path) == []


def test_nothing_is_executed(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    path = tmp_path / "svr-1.npz"
    write_model(path, "svr", model())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("array.bomb.npy", pickle.dumps(Bomb()))
    with pytest.raises(ModelError, match=r"svr-1\.npz: is damaged, or no model"):
        read_kept(path)
    np.savez(path, array=np.array([Bomb()], dtype=object))
    with pytest.raises(ModelError, match="is damaged"):
        read_kept(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelError, match="is damaged"):
        read_kept(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("rows", [10**9, 10**12, 10**18, 10**30])
def test_an_array_that_claims_more_than_its_bytes_is_refused(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "svr-1.npz"
    write_model(path, "svr", model())
    claim = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows},), }}\n".encode()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(
            "array.huge.npy", b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim + bytes(64)
        )
    with pytest.raises(ModelError, match=r"svr-1\.npz: is damaged, or no model"):
        read_kept(path)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("[]", "it does not say what it is"),
        ("{}", "it does not say what it is"),
        ('{"facts": 3, "format": 1}', "it does not say what it is"),
        ('{"facts": {}, "format": 2, "estimator": "svr"}', "has form 2, this version of eslurm reads 1"),
        (
            '{"facts": {}, "format": 1, "estimator": "forest"}',
            "is a model of estimator 'forest', not of 'svr'",
        ),
        ("not json", "is damaged"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_foreign_heads(tmp_path: Path, head: str, text: str) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, head=np.frombuffer(head.encode(), dtype=np.uint8))
    with pytest.raises(ModelError, match=text):
        read_kept(path, "svr")


def test_foreign_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"m\.npz: cannot be read: No such file"):
        read_kept(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_bytes(b"")
    with pytest.raises(ModelError, match="is damaged"):
        read_kept(tmp_path / "m.npz")
    head = json.dumps({"facts": {}, "format": 1, "estimator": "svr"}).encode()
    np.savez(tmp_path / "m.npz", head=np.frombuffer(head, dtype=np.uint8), unknown=np.zeros(9))
    assert dict(read_kept(tmp_path / "m.npz", "svr").model.arrays) == {}
    monkeypatch.setattr(files, "BYTES_MAX", 100)
    with pytest.raises(ModelError, match="a model has at most 100"):
        read_kept(tmp_path / "m.npz")


def test_names_that_cannot_be_files(tmp_path: Path) -> None:
    for name in ("", "../svr", "a/b", ".x", "a" * 64):
        with pytest.raises(ValueError, match="cannot be part of a file's name"):
            ModelFiles(tmp_path, name)
