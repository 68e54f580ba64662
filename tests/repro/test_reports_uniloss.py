"""Reports of UniLoss's experiments: curves over epochs, numbers in names, keypoints on images, the paper's numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from directloss_repro.data import Part
from directloss_repro.data.shown import FILE, first_items, highest_pixels, store_frames
from directloss_repro.reports import write_report
from directloss_repro.reports.claims import OURS
from directloss_repro.reports.describe import Figure, describe
from directloss_repro.reports.figures import Panel, draw, draw_all
from directloss_repro.reports.frames import RIGHT, WRONG, load_frames
from directloss_repro.reports.labels import short
from directloss_repro.reports.page import build
from directloss_repro.reports.stored import load_run
from directloss_repro.reports.tables import NOTHING, Table, result_tables
from directloss_repro.reports.uniloss import TABLE_1, TABLE_3, TABLE_4, UNILOSS
from directloss_repro.reports.wording import metrics_of

from directloss import DirectLossError
from tests.repro.fake_records import make_run, records, run_info, write_run

TRUE = torch.tensor([[[3.0, 3.0, 1.5], [10.0, 4.0, 1.5], [0.0, 0.0, 0.0]]]).repeat(4, 1, 1)
"""Four images with three keypoints, of which one is not known."""
POINTS = [[[3, 4], [2, 12], [7, 7]]] * 3
"""Right, wrong, and not counted, on each of the three images that are stored."""


def frames_run(folder: Path, **changes: Any) -> Path:
    lines = records("pose", 2)
    for line in lines:
        if line["stage"] == "final" and line["seed"] == 0:
            line["shown"] = {"points": POINTS, **changes}
    write_run(folder, lines, run_info("pose"))
    images = torch.linspace(-0.5, 0.5, 64).repeat(64, 1).expand(4, 3, 64, 64)
    store_frames(folder, Part(images, TRUE), 4)
    return folder


def drawn(folder: Path, figure: Figure) -> Panel:
    panel = draw(load_run(folder), figure, "name")
    assert panel is not None
    return panel


# ---------------------------------------------------------------------- keypoints


def test_stored_frames_are_read_as_they_were(tmp_path: Path) -> None:
    found = load_frames(load_run(frames_run(tmp_path)))
    assert found is not None
    assert found.images.shape == (3, 64, 64, 3)  # the fourth is not stored
    assert (int(found.images.min()), int(found.images.max())) == (0, 255)
    np.testing.assert_array_equal(found.keypoints, TRUE[:3].double().numpy())
    assert found.shrinks == 4
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_highest_pixel_is_the_prediction(generator: torch.Generator) -> None:
    heatmaps = torch.randn(2, 3, 5, 7, generator=generator)
    for image, joints in zip(heatmaps, highest_pixels(heatmaps), strict=True):
        for heatmap, (x, y) in zip(image, joints, strict=True):
            assert heatmap[y, x] == heatmap.max()
    assert len(first_items(Part(torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, 3)))) == 2


def test_right_and_wrong_predictions_differ_in_shape_and_are_told(tmp_path: Path) -> None:
    panel = drawn(frames_run(tmp_path), UNILOSS["pose"].figures[-1])
    best = max((m for m in TABLE_1 if f"mse-{m}" in panel.alt), key=str, default=None)
    assert best is not None
    assert "uniloss-pckh 3 of 6" in panel.alt
    assert "3 of 6 right" in panel.caption
    root = ET.fromstring(panel.svg)
    assert len(root.findall(".//{*}image")) == 6  # three images for each of two methods
    inline = panel.inline
    assert inline.count("1 of 2 right") == 6
    for label in ("true place", "right prediction", "wrong prediction"):
        assert label in inline
    marks = {colour: re.findall(rf'<use [^>]*xlink:href="#([^"]+)"[^>]*{colour}', inline) for colour in (RIGHT, WRONG)}
    assert all(marks.values())
    assert not set(marks[RIGHT]) & set(marks[WRONG])  # other shapes, not only other colours
    assert panel.png.startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_picture(tmp_path: Path) -> None:
    one, other = (drawn(frames_run(tmp_path / name), UNILOSS["pose"].figures[-1]) for name in ("one", "other"))
    assert one == other
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "other" / FILE).read_bytes()


def test_a_report_of_keypoints_has_its_picture(tmp_path: Path) -> None:
    page = write_report(frames_run(tmp_path)).read_text()
    assert "Keypoints on test images" in page
    assert (tmp_path / "figures" / "frames-val-pck.png").is_file()
    (tmp_path / FILE).unlink()
    assert "Keypoints on test images" not in write_report(tmp_path).read_text()


def test_without_predictions_there_is_no_picture(tmp_path: Path) -> None:
    write_run(tmp_path, records("pose", 2), run_info("pose"))
    store_frames(tmp_path, Part(torch.zeros(1, 3, 8, 8), TRUE[:1]), 4)
    assert draw(load_run(tmp_path), UNILOSS["pose"].figures[-1], "name") is None


def _other_shape(folder: Path) -> None:
    np.savez(folder / FILE, images=np.zeros((3, 8, 8), np.uint8), keypoints=np.zeros((3, 1, 3)), shrinks=4.0)


def _without_keypoints(folder: Path) -> None:
    np.savez(folder / FILE, images=np.zeros((3, 8, 8, 3), np.uint8))


def _objects(folder: Path) -> None:
    np.savez(folder / FILE, images=np.array([object()]), keypoints=np.zeros((3, 1, 3)), shrinks=4.0, allow_pickle=True)


def _cut_off(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:100])


@pytest.mark.parametrize("spoil", [_other_shape, _without_keypoints, _objects, _cut_off])
def test_spoilt_frames_are_refused(spoil: Any, tmp_path: Path) -> None:
    spoil(frames_run(tmp_path))
    with pytest.raises(DirectLossError, match=r"frames\.npz must hold images and keypoints.*Delete it"):
        draw(load_run(tmp_path), UNILOSS["pose"].figures[-1], "name")


@pytest.mark.parametrize("points", [POINTS[:2], "none", [[["a", 1]]]])
def test_spoilt_predictions_are_refused(points: Any, tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match=r"'shown' of .* must have points of shape \(3, 3, 2\)"):
        draw(load_run(frames_run(tmp_path, points=points)), UNILOSS["pose"].figures[-1], "name")


# ---------------------------------------------------------------------- curves and numbers in names


def test_training_and_validation_stand_in_one_panel_over_epochs(tmp_path: Path) -> None:
    panel = drawn(make_run(tmp_path, "cifar10", seeds=3), UNILOSS["cifar10"].figures[0])
    for name in ("x-ent val", "x-ent train", "uniloss val", "uniloss train"):
        assert name in panel.inline
        assert name in panel.alt
    assert ">epoch<" in panel.inline
    assert ">20<" in panel.inline  # the last epoch
    assert "Compare with UniLoss, Fig. 2" in panel.caption


def test_a_longer_schedule_has_more_epochs(tmp_path: Path) -> None:
    info = run_info("cifar100")
    info["config"] |= {"stretch": 5}
    panel = drawn(write_run(tmp_path, records("cifar100", 2), info), UNILOSS["cifar100"].figures[0])
    assert ">100<" in panel.inline


def test_of_many_widths_the_best_one_is_the_rival(tmp_path: Path) -> None:
    lines = records("pose", 3)
    for line in lines:
        if line["method"] == "mse-10" and line["stage"] == "final":
            line["metrics"]["val_pck"] = 0.99
    panel = drawn(write_run(tmp_path, lines, run_info("pose")), UNILOSS["pose"].figures[1])
    assert "mse-10 val" in panel.alt
    assert "mse-3" not in panel.alt


def test_sizes_are_read_from_names_and_stand_beside_the_papers(tmp_path: Path) -> None:
    panel = drawn(make_run(tmp_path, "ablation-batch", seeds=3), UNILOSS["ablation-batch"].figures[0])
    for size in TABLE_3:
        assert f"{size}: " in panel.alt
        assert f">{size}<" in panel.inline
    assert ">paper<" in panel.inline
    without = drawn(tmp_path, UNILOSS["ablation-batch"].figures[1])
    assert ">paper<" not in without.inline


@pytest.mark.parametrize("figure", [Figure("epochs", "f1"), Figure("sizes", first="batch"), Figure("frames")])
def test_no_data_no_figure(tmp_path: Path, figure: Figure) -> None:
    assert draw(load_run(make_run(tmp_path, "cifar10", seeds=2)), figure, "name") is None


@pytest.mark.parametrize("name", [name for name in UNILOSS if name.startswith("ablation")])
def test_ablations_have_all_their_figures_verdicts_and_a_page(name: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path, name, seeds=3)
    run, description = load_run(folder), describe(name)
    panels = draw_all(run, description, metrics_of(run, description.metrics))
    assert len(panels) == sum(figure.kind != "frames" for figure in description.figures)
    report = build(run)
    assert "Of the paper's" in report.summary
    own = [claim for claim in description.claims if claim.source == OURS]
    assert ("Of our own" in report.summary) == bool(own)
    assert len(report.judgements) == len(description.claims)
    assert "paper" in write_report(folder).read_text()


def test_rivals_are_counted_only_where_one_method_has_several(tmp_path: Path) -> None:
    assert "the strongest of 2 rivals" in build(load_run(make_run(tmp_path / "one", "ablation-batch", seeds=3))).summary
    assert "rivals" not in build(load_run(make_run(tmp_path / "several", "ablation-ap", seeds=3))).summary


def test_names_with_options_stay_readable() -> None:
    assert short("uniloss-accuracy:batch=1024") == "…:batch=1024"
    assert short("uniloss-ap:bits") == "uniloss-ap:bits"


# ---------------------------------------------------------------------- the paper's numbers


def _column(table: Table, label: str) -> dict[str, str]:
    place = [column.label for column in table.columns].index(label)
    return {row[0].text: row[place].text for row in table.rows}


def table_of(folder: Path, name: str) -> Table:
    run, description = load_run(folder), describe(name)
    return result_tables(run, description, metrics_of(run, description.metrics))[0]


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path) -> None:
    table = table_of(make_run(tmp_path, "ablation-ap", seeds=3), "ablation-ap")
    found = _column(table, "paper")
    assert found["uniloss-ap:anchors=5"] == "99.88"
    assert found["uniloss-ap:anchors=10"] == "99.87"
    assert found["uniloss-ap:spline"] == NOTHING
    assert "Paper, Table 4: MNIST; other data than ours" in table.notes[-1]


MNIST = {"dataset": "mnist", "points": 0}


@pytest.mark.parametrize(
    ("config", "data", "words"),
    [
        ({"dataset": "mnist", "points": 100}, None, "the same data, of which we take a part"),
        (MNIST, None, "the same data, in parts of our own"),
        (MNIST, {"published": "mnist", "checkable": True}, "the same data, in parts of our own"),
        (MNIST, {"published": None, "checkable": True}, "its files are not those that were published"),
        (MNIST, {"published": None, "checkable": False}, "its files could not be checked"),
        ({"dataset": "fashion-mnist"}, None, "other data than ours"),
    ],
)
def test_the_note_says_whose_data_it_is(
    config: dict[str, Any], data: dict[str, Any] | None, words: str, tmp_path: Path
) -> None:
    write_run(tmp_path, records("mnist-ap", 2), {**run_info("mnist-ap", config=config), "data": data})
    assert words in table_of(tmp_path, "mnist-ap").notes[-1]


def test_the_tables_of_the_paper_are_complete() -> None:
    assert max(TABLE_1.values()) == TABLE_1["3"] == 95.74
    assert max(TABLE_3, key=lambda size: TABLE_3[size]) == 128
    assert {tuple(row) for row in TABLE_4.values()} == {(5, 10, 16)}
    pose = UNILOSS["pose"].reference
    assert pose is not None
    assert pose.means["mse-0.1"] == (0.9131,)
