"""Experiments that come with the lab, and that can be named without a path: `waylab run demo`."""

from pathlib import Path

SHIPPED = ("demo", "smoke")
_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(spec: Path) -> Path:
    """Return the file of a shipped experiment if `spec` is its name and no file has this name; otherwise `spec`.

    The experiments are beside the package in the tree, and inside it in the wheel.
    """
    if str(spec) not in SHIPPED or spec.exists():
        return spec
    name = f"{spec}.toml"
    folders = (_PACKAGE.parent / "experiments", _PACKAGE / "experiments")
    return next((folder / name for folder in folders if (folder / name).is_file()), spec)
