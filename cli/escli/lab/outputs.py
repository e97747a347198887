"""Checks of the files that a command of the lab writes, before a run of minutes. Each names the option in its error."""

from __future__ import annotations

from pathlib import Path

from escli.errors import unusable

NO_MATPLOTLIB = "matplotlib is not installed: pip install 'eslurm[lab]'"


def check_place(option: str, path: Path) -> None:
    """Check that there is a directory for this file. Raises `ClusterError`."""
    parent = path.resolve().parent
    if not parent.is_dir():
        raise unusable(f"{option}: {path}: there is no directory {parent}: make it first")


def check_picture(option: str, path: Path) -> None:
    """Check that this file names a picture, and that it can be drawn here. Raises `ClusterError`."""
    from eslurm.lab import drawing

    if path.suffix not in drawing.FORMATS:
        raise unusable(f"{option}: {path}: is no picture: name it FILE{' or FILE'.join(drawing.FORMATS)}")
    if not drawing.available():
        raise unusable(f"{option}: {NO_MATPLOTLIB}")
