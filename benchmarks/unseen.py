"""The defaults once more, on data sets that were not used to choose them.

    python -m benchmarks.unseen --data-root DATA [--seeds 8] [--out results/unseen] [--workers 2]

As `benchmarks.defaults`, for AP: seven small tables of KEEL with at least 600 rows and 40 positives, which no earlier
study used, and two classes of images.
"""

from __future__ import annotations

from functools import partial

from benchmarks.defaults import BASE, OURS, UNSEEN, show, study
from benchmarks.study import from_command_line

JUDGED = {"ap": UNSEEN}
COMPARED = {"ap": (OURS, BASE, "smooth-ap 1")}

if __name__ == "__main__":
    from_command_line(
        __doc__,
        partial(study, judged=JUDGED, compared=COMPARED, name="unseen"),
        partial(show, judged=JUDGED, compared=COMPARED),
        seeds=8,
        out="results/unseen",
        data=True,
    )
