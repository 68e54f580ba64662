"""The papers' tables of VOC, copied right: the means that the paper prints are those of the rows."""

from __future__ import annotations

import pytest
from directloss_repro.data.voc import ACTIONS, OBJECTS
from directloss_repro.reports import voc
from directloss_repro.reports.describe import describe


@pytest.mark.parametrize(
    ("rows", "means", "classes"),
    [(voc.ACTIONS, voc.ACTION_MEANS, ACTIONS), (voc.OBJECTS, voc.OBJECT_MEANS, OBJECTS)],
    ids=["actions", "objects"],
)
def test_means_are_those_of_the_rows(
    rows: dict[str, voc.Numbers], means: voc.Numbers, classes: tuple[str, ...]
) -> None:
    assert tuple(rows) == classes
    for method, printed in means.items():
        for place, mean in enumerate(printed):
            column = [row[method][place] for row in rows.values()]
            if mean is None:
                assert set(column) == {None}
            else:
                # The paper rounds rows and means to one decimal.
                assert sum(value or 0.0 for value in column) / len(column) == pytest.approx(mean, abs=0.00051)


def test_some_numbers_by_hand() -> None:
    assert voc.ACTIONS["phoning"]["hinge-ap"] == (0.462, 0.312, 0.221, 0.108, 0.102)
    assert voc.OBJECTS["tvmonitor"] == {"x-ent": (0.574, None), "hinge-ap": (0.573, 0.0), "pos-ap": (0.613, 0.55)}
    assert voc.action_gap("pos-ap", "hinge-ap", False) == pytest.approx(-0.004)


@pytest.mark.parametrize("name", ["voc-action", "voc-detection"])
def test_descriptions_are_registered(name: str) -> None:
    reference = describe(name).reference
    assert reference is not None
    assert reference.dataset == "voc"
