"""The wheel, alone in an empty environment: the README's sample runs and prints what the README says.

    python .ci/alone.py README.md

Run it with the interpreter of an environment that holds the wheel and its dependencies, and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path

SAMPLE = re.compile(r"```python\n(?P<code>.*?)```\s+```text\n(?P<shown>.*?)```", re.DOTALL)
EXTRAS = ("directloss_repro", "matplotlib", "pandas", "sklearn", "typer")


def main(readme: Path) -> None:
    """Run every sample that has an output, and look for what should not be there."""
    samples = list(SAMPLE.finditer(readme.read_text()))
    if not samples:
        sys.exit(f"{readme} has no sample with its output")
    for sample in samples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(sample["code"], str(readme), "exec"), {"__name__": "__main__"})
        if printed.getvalue() != sample["shown"]:
            sys.exit(f"The sample printed {printed.getvalue()!r}, and {readme} says {sample['shown']!r}")
    if found := [name for name in EXTRAS if find_spec(name) is not None]:
        sys.exit(f"pip install directloss brought {', '.join(found)}")
    import directloss

    print(f"directloss {directloss.__version__} works alone: {len(samples)} sample(s) of the README")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
