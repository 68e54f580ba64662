"""The papers' tables, copied right: the means that a paper prints are those of its rows."""

from __future__ import annotations

import pytest
from directloss_repro.data.voc import ACTIONS, OBJECTS
from directloss_repro.experiments import FILES, ablations, get_experiment, pose, voc_action, voc_detection


@pytest.mark.parametrize(
    ("table", "classes"), [(voc_action, ACTIONS), (voc_detection, OBJECTS)], ids=["actions", "objects"]
)
def test_means_are_those_of_the_rows(table: object, classes: tuple[str, ...]) -> None:
    rows, means = table.PRINTED, table.MEANS  # type: ignore[attr-defined]
    assert tuple(rows) == classes
    for method, printed in means.items():
        for place, mean in enumerate(printed):
            column = [row[method][place] for row in rows.values()]
            if mean is None:
                assert set(column) == {None}
            else:
                # The paper rounds rows and means to one decimal.
                assert sum(column) / len(column) == pytest.approx(mean, abs=0.051)


def test_some_numbers_by_hand() -> None:
    assert voc_action.PRINTED["phoning"]["hinge-ap"] == (46.2, 31.2, 22.1, 10.8, 10.2)
    row = {"x-ent": (57.4, None), "hinge-ap": (57.3, 0.0), "pos-ap": (61.3, 55.0)}
    assert voc_detection.PRINTED["tvmonitor"] == row
    assert voc_action.CLAIMS[2].comparisons[0].paper == pytest.approx(-0.4)


def test_the_tables_of_uniloss_are_complete() -> None:
    assert max(pose.TABLE_1.values()) == pose.TABLE_1["3"] == 95.74
    assert max(ablations.TABLE_3, key=lambda size: ablations.TABLE_3[size]) == 128
    assert {tuple(row) for row in ablations.TABLE_4.values()} == {(5, 10, 16)}
    assert ablations.PRINTED["uniloss-pckh:anchors=5"] == 94.79


def test_references_name_methods_of_the_paper_preset() -> None:
    for name in FILES:
        experiment = get_experiment(name)
        reference = experiment.description.reference
        if reference:
            assert set(reference.means) & set(experiment.config("paper").methods), name
            assert all(len(row) == len(reference.noises) for row in reference.means.values()), name
