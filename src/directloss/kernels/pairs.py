"""Which of many rows of scores order a pair otherwise than the current scores do, compiled: the inner loop of UniLoss.

Indices are unsigned, and numbers have the type of the scores: otherwise numba does not vectorise the inner loops.
"""

from __future__ import annotations

from directloss.kernels.compiled import kernel


@kernel
def differing(columns, left, right, here, start, units, out):
    """Fill ``out[i, k]`` with 1 where row k orders pair ``start + i`` otherwise than ``here``, and with 0 elsewhere.

    Shapes: columns (m, k), the transposed rows; left, right and here (pairs,), unsigned and boolean; units 0 and 1;
    out (some, k).
    """
    no, yes = units[0], units[1]
    for i in range(len(out)):
        a, b, row = columns[left[start + i]], columns[right[start + i]], out[i]
        if here[start + i]:
            for k in range(len(row)):
                row[k] = no if a[k] > b[k] else yes
        else:
            for k in range(len(row)):
                row[k] = yes if a[k] > b[k] else no
