"""Lines of Python by room of the house, before and after, as a table in Markdown.

    python .ci/lines.py [BEFORE [AFTER]]

BEFORE is a commit, by default the last of the second version; AFTER is another, by default the files as they are.
"""

from __future__ import annotations

import subprocess
import sys

SECOND = "48c536a"
LIBRARY = "src/directloss/"
ROOMS = {
    "`tasks/`": ["tasks/"],
    "`metrics/`": ["metrics/"],
    "`kernels/`": ["kernels/"],
    "UniLoss: `_uniloss/`, `relaxation.py`": ["_uniloss/", "relaxation.py"],
    "`integrations/`": ["integrations/"],
    "`fit`: `tabular/`, `cli/`": ["tabular/", "cli/"],
    "around the losses: averages, memory, full batch, processes, retrieval, rates of wrong labels, plots, doctor": [
        *(
            f"{name}.py"
            for name in ("answers", "averaging", "memory", "full_batch", "distributed", "retrieval", "plot", "doctor")
        )
    ],
    "the engine: all other files": [""],
}
"""Rooms of the library; the first that fits a file counts it."""


def counts(commit: str | None) -> dict[str, int]:
    """Lines of each Python file, at a commit or as the tracked files are now."""
    command = ["git", "grep", "-c", "", *([commit] if commit else []), "--", "*.py"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = (line.removeprefix(f"{commit}:").rpartition(":") for line in lines)
    return {path: int(number) for path, _, number in pairs}


def room_of(path: str) -> str:
    """The room of a file."""
    if not path.startswith(LIBRARY):
        folder = path.split("/")[0]
        return f"`{folder}/`" if folder in ("repro", "tests", "benchmarks") else ""
    inside = path.removeprefix(LIBRARY)
    return next(room for room, starts in ROOMS.items() if inside.startswith(tuple(starts)))


def by_room(commit: str | None) -> dict[str, int]:
    """Lines of each room, and of the library as a whole."""
    total = dict.fromkeys([*ROOMS, "**the library**", "`repro/`", "`tests/`", "`benchmarks/`"], 0)
    for path, number in counts(commit).items():
        room = room_of(path)
        if room:
            total[room] += number
        if room in ROOMS:
            total["**the library**"] += number
    return total


def main(before: str = SECOND, after: str | None = None) -> None:
    """Print the table."""
    first, second = by_room(before), by_room(after)
    print("| lines of Python | before | after |")
    print("|---|---:|---:|")
    for room in first:
        print(f"| {room} | {first[room]:,} | {second[room]:,} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
