"""Models as files: `<directory>/<estimator>-<number>.npz`, arrays and JSON, never an object that would have to be trusted.

A file holds the arrays of a `Model` and, as JSON, its facts, the settings that its estimator was given, the scores of the
one before, the estimator's name and the version of this form. Invariant: a name that can be read is a whole model: it is
written under another one, made durable, and then given its own; the last `keep` of an estimator stay, and nothing else in
the directory is touched.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eslurm.ports.estimator import Model, Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("eslurm.estimator")

FORMAT: Final = 1
KEPT: Final = 5
BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all arrays of a model: what claims to be larger is no model of ours."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HEAD: Final = "head"
_ARRAY: Final = "array."
_FRESH: Final = ".new"


class ModelError(ValueError):
    """A file is no usable model. The text names the file and the reason."""


class StoredModel(NamedTuple):
    """A model read from a file. `settings` are those of its estimator; None: the file has none."""

    path: Path
    model: Model
    settings: Mapping[str, Setting] | None


class ModelFiles:
    """The models of one estimator in a directory, which is made with the first one; `settings` are the estimator's."""

    def __init__(
        self,
        directory: Path,
        estimator: str,
        settings: Mapping[str, Setting] | None = None,
        keep: int = KEPT,
    ) -> None:
        if not NAME.fullmatch(estimator):
            raise ValueError(
                f"'{estimator}' cannot be part of a file's name: use letters, digits and '-', '_', '.'"
            )
        self._directory = directory
        self._estimator = estimator
        self._settings = dict(settings or {})
        self._keep = max(1, keep)
        self._name = re.compile(rf"{re.escape(estimator)}-(\d{{1,18}})\.npz")

    def tidy(self) -> None:
        """Remove temporary files of a process that died while writing."""
        for path in self._list():
            if path.name.endswith(_FRESH) and self._name.fullmatch(path.name.removesuffix(_FRESH)):
                path.unlink(missing_ok=True)

    def save(self, model: Model, scores: Mapping[str, float] | None = None) -> Path:
        """Write a model durably and remove those beyond the last ones; `scores` are those of the one before.

        Raises OSError, and ValueError for facts that JSON cannot hold.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = self._numbered()
        path = self._directory / f"{self._estimator}-{known[0][0] + 1 if known else 1}.npz"
        write_model(path, self._estimator, model, scores, self._settings)
        for _number, old in known[self._keep - 1 :]:
            old.unlink(missing_ok=True)
        return path

    def newest_first(self) -> Iterator[StoredModel]:
        """The readable models, the newest first; damaged ones are logged and left in place."""
        for _number, path in self._numbered():
            try:
                kept = read_kept(path, self._estimator)
            except ModelError as error:
                log.warning("%s; the one before it is looked at", error)
            else:
                yield kept

    def _numbered(self) -> list[tuple[int, Path]]:
        """(number, path) of the files, the newest first."""
        found = [(int(match[1]), path) for path in self._list() if (match := self._name.fullmatch(path.name))]
        return sorted(found, reverse=True)

    def _list(self) -> list[Path]:
        try:
            return list(self._directory.iterdir())
        except FileNotFoundError:
            return []


def other_settings(kept: StoredModel, own: Mapping[str, Setting]) -> str:
    """The differences between a model's settings and these, in words; empty when there are none."""
    if kept.settings is None:
        return "it does not say which"
    told: list[str] = []
    for name in sorted({*kept.settings, *own}):
        was, now = kept.settings.get(name), own.get(name)
        if was != now:
            told.append(f"{name}: {_in_words(was)}, now {_in_words(now)}")
    return "; ".join(told)


def _in_words(value: Setting | None) -> str:
    return "by default" if value is None else repr(value)


def write_model(
    path: Path,
    estimator: str,
    model: Model,
    scores: Mapping[str, float] | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> None:
    """Write a whole model to this path atomically and durably. Raises as `ModelFiles.save`."""
    import numpy as np

    told = {
        "format": FORMAT,
        "estimator": estimator,
        "facts": dict(model.facts),
        "settings": dict(settings or {}),
        "scores": dict(scores or {}),
    }
    try:
        text = json.dumps(told, allow_nan=False)
    except TypeError as error:
        raise ValueError(f"the facts of a model must be what JSON holds: {error}") from None
    members = {f"{_ARRAY}{name}": array for name, array in model.arrays.items()}
    for name, array in model.arrays.items():
        if array.dtype.hasobject:
            raise ValueError(
                f"array '{name}' of a model holds objects: only numbers, flags and texts are kept"
            )
    head = np.frombuffer(text.encode(), dtype=np.uint8)
    fresh = path.with_name(path.name + _FRESH)
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            np.savez(file, allow_pickle=False, **{_HEAD: head}, **members)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    _make_durable(path.parent)


def _make_durable(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_kept(path: Path, estimator: str = "") -> StoredModel:
    """Read a file of `write_model`, of any origin. With `estimator` it must be of that one.

    Raises `ModelError` for anything else; nothing in the file is executed, whatever it holds.
    """
    try:
        return _read(path, estimator)
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:
        # Any error of the readers of zip, numpy and JSON: the file is no model.
        raise ModelError(f"{path}: is damaged, or no model ({str(error) or type(error).__name__})") from None


def _read(path: Path, estimator: str) -> StoredModel:
    import numpy as np

    with zipfile.ZipFile(path) as archive:
        claimed = sum(member.file_size for member in archive.infolist())
        if claimed > BYTES_MAX:
            raise ModelError(f"{path}: holds {claimed} bytes, a model has at most {BYTES_MAX}")
    with np.load(path, allow_pickle=False) as file:
        head = json.loads(file[_HEAD].astype(np.uint8).tobytes())
        facts = _checked(path, head, estimator)
        arrays: dict[str, NDArray[Any]] = {
            name.removeprefix(_ARRAY): file[name] for name in file.files if name.startswith(_ARRAY)
        }
    for name, array in arrays.items():
        # What has no head of numpy's comes as the bytes that it is.
        if not isinstance(array, np.ndarray):
            raise ModelError(f"{path}: is damaged, or no model ('{name}' is no array)")
    return StoredModel(path, Model(arrays, facts), _settings(head.get("settings")))


def _settings(told: Any) -> dict[str, Setting] | None:
    if not isinstance(told, dict) or not all(isinstance(value, Setting) for value in told.values()):
        return None
    return {ascii(name)[1:-1]: value for name, value in told.items()}


def _checked(path: Path, head: Any, estimator: str) -> dict[str, Any]:
    """The model's own facts from the file's head."""
    if not isinstance(head, dict) or not isinstance(head.get("facts"), dict):
        raise ModelError(f"{path}: is damaged, or no model (it does not say what it is)")
    if head.get("format") != FORMAT:
        raise ModelError(f"{path}: has form {head.get('format')!r}, this version of eslurm reads {FORMAT}")
    named = head.get("estimator")
    if estimator and named != estimator:
        raise ModelError(f"{path}: is a model of estimator {named!r}, not of '{estimator}'")
    facts: dict[str, Any] = head["facts"]
    return facts
