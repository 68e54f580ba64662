"""``python -m directloss`` is the command ``directloss``."""

from __future__ import annotations

import sys

import directloss


def main() -> None:
    """Run the command, or exit with one line if its packages are missing."""
    if sys.argv[1:] == ["--version"]:  # this and doctor work without the extra `fit`
        print(f"directloss {directloss.__version__}")
        return
    if sys.argv[1:] == ["doctor"]:
        from directloss.doctor import main as diagnose

        sys.exit(diagnose())
    try:
        from directloss.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("directloss"):
            raise
        sys.exit(f"Error: the command needs {error.name}, which is not installed: pip install '.[fit]' in a checkout")
    run()


if __name__ == "__main__":
    main()
