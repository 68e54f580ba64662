"""Figures: colours that everybody can tell apart, names that do not overlap, pictures that are well-formed."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from directloss_repro.experiments import describe
from directloss_repro.records import METHODS, load_run
from directloss_repro.reports.description import Description, Figure
from directloss_repro.reports.figures import KINDS, Panel, draw, draw_all
from directloss_repro.reports.formatting import metrics_of
from directloss_repro.reports.style import FAMILIES, INK, look, short
from matplotlib.figure import Figure as Canvas
from PIL import Image

from tests.repro.fake_records import make_run, record, records, run_info, write_run

PAGES = ("#ffffff", "#0d1117")


def channels(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(0.05 + float(channels(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return high / low


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", [0, 1])
def test_every_colour_stands_out_from_the_page(mode: int) -> None:
    for family, colours in FAMILIES.items():
        assert contrast(colours[mode], PAGES[mode]) >= 3, family


# Simulation of full colour blindness in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ np.clip(linear, 0, 1) / [0.9505, 1, 1.089], 1e-6, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_families_stay_apart_for_the_colour_blind(kind: str, mode: int) -> None:
    seen = {family: lab(np.array(BLINDNESS[kind]) @ channels(colours[mode])) for family, colours in FAMILIES.items()}
    for one, other in itertools.combinations(seen, 2):
        # Several times the difference (about 2.3) that an eye just notices.
        assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)


def test_no_two_methods_share_marker_or_look() -> None:
    looks = [look(method) for method in (*METHODS, "uniloss-ap")]
    assert len({seen.marker for seen in looks}) == len(looks)
    assert len({(seen.colour, str(seen.dash)) for seen in looks}) == len(looks)


def test_unknown_methods_have_a_steady_look() -> None:
    assert look("my-own-loss") == look("my-own-loss")
    assert look("pos-f1").colour == FAMILIES["pos"][0]


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Panel]]:
    found = {}
    for name in ("synthetic", "linear", "robustness", "digits-noise"):
        run = load_run(make_run(tmp_path_factory.mktemp(name), name, seeds=3))
        description = describe(name)
        found[name] = draw_all(run, description, metrics_of(run, description.metrics))
    return found


def test_every_figure_that_was_asked_for_is_drawn(panels: dict[str, list[Panel]]) -> None:
    for name, drawn in panels.items():
        assert len(drawn) == len(describe(name).figures)
        assert len({panel.name for panel in drawn}) == len(drawn)


def test_pictures_are_well_formed_and_follow_the_page(panels: dict[str, list[Panel]]) -> None:
    ids: list[str] = []
    for panel in panels["robustness"]:
        root = ET.fromstring(panel.svg)
        assert root.tag.endswith("svg")
        ET.fromstring(panel.inline)
        ids += re.findall(r'\bid="([^"]+)"', panel.inline)
        assert set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)", panel.inline)) <= {
            pair for name in ids for pair in ((name, ""), ("", name))
        }
        # The page decides about the colour of text and axes, and nothing paints a background.
        assert INK not in panel.inline
        assert "currentColor" in panel.inline
        assert "#ffffff" not in panel.inline
        assert "<style" not in panel.inline
        assert "prefers-color-scheme: dark" in panel.svg.decode()
    assert len(ids) == len(set(ids)), "several pictures share a page, and ids must be unique in it"


def test_pictures_tell_their_content_in_words(panels: dict[str, list[Panel]]) -> None:
    panel = panels["robustness"][0]
    assert panel.alt.startswith("Test AP against label noise. At 40 % flipped labels: direct-ap 8")
    root = ET.fromstring(panel.inline)
    assert root.get("role") == "img"
    named = [child for child in root if child.get("id") in (root.get("aria-labelledby") or "").split()]
    assert [child.text for child in named] == [panel.title, panel.alt]
    words = " ".join(root.itertext())
    assert all(method in words for method in METHODS), "every line carries its name"


def test_png_has_a_size_and_ink(panels: dict[str, list[Panel]]) -> None:
    for panel in itertools.chain(*panels.values()):
        image = np.asarray(Image.open(io.BytesIO(panel.png)).convert("L"))
        assert image.shape == (660, 880)
        assert 0.005 < (image < 128).mean() < 0.3
        edge = np.concatenate([image[:, :3].ravel(), image[:, -3:].ravel(), image[:3].ravel(), image[-3:].ravel()])
        assert (edge > 250).all(), f"{panel.name}: something is cut off at the edge"


def test_the_same_records_give_the_same_files(tmp_path: Path, panels: dict[str, list[Panel]]) -> None:
    run = load_run(make_run(tmp_path, "robustness", seeds=3))
    again = draw(run, describe("robustness").figures[0], "noise-test-ap")
    assert again == panels["robustness"][0]


def test_lines_that_end_close_together_are_shown_from_close(panels: dict[str, list[Panel]]) -> None:
    assert "The axis starts at" in panels["linear"][0].caption
    assert "The axis starts at" not in panels["synthetic"][0].caption


@pytest.mark.parametrize("figure", [Figure("noise"), Figure("lead", first="pos-ap"), Figure("curve", "test_f1")])
def test_no_data_no_figure(tmp_path: Path, figure: Figure) -> None:
    run = load_run(make_run(tmp_path, "synthetic", seeds=2, methods=["pos-ap", "x-ent"]))
    assert draw(run, figure, "name") is None


def test_an_experiment_without_description_gets_the_usual_figures(tmp_path: Path) -> None:
    run = load_run(
        write_run(
            tmp_path, [record("own", "x-ent", seed) | {"method": "my-own-loss-with-a-long-name"} for seed in (0, 1)]
        )
    )
    drawn = draw_all(run, Description("own", ""), metrics_of(run, ()))
    assert [panel.name for panel in drawn] == ["curve-test-ap", "curve-test-accuracy", "methods-test-ap"]
    assert "my-own-loss-with-a-long…" in drawn[0].inline


def test_gaps_in_a_curve_are_left_open(tmp_path: Path) -> None:
    lines = [record("linear", "x-ent", seed) for seed in (0, 1)]
    lines[0]["curve"]["test_ap"][-3:] = [None, float("nan"), None]
    panel = draw(load_run(write_run(tmp_path, lines)), Figure("curve"), "name")
    assert panel is not None
    assert "x-ent" in panel.alt


def test_intervals_end_where_the_metric_ends(tmp_path: Path) -> None:
    lines = [record("robustness", "pos-ap", seed, noise) for noise in (0.0, 0.4) for seed in range(2)]
    for line, value in zip(lines, (0.99, 1.0, 0.01, 0.0), strict=True):
        line["metrics"] = {"test_ap": value}
    canvas = Canvas()
    assert KINDS["noise"](load_run(write_run(tmp_path, lines)), Figure("noise"), canvas)
    bars = [segment[:, 1] for lines in canvas.axes[0].collections for segment in lines.get_segments()]  # type: ignore[attr-defined]
    assert (np.min(bars), np.max(bars)) == (0, 100)


# ---------------------------------------------------------------------- figures of UniLoss


def drawn(folder: Path, name: str, place: int) -> Panel:
    panel = draw(load_run(folder), describe(name).figures[place], "name")
    assert panel is not None
    return panel


def test_training_and_validation_stand_in_one_panel_over_epochs(tmp_path: Path) -> None:
    panel = drawn(make_run(tmp_path, "cifar10", seeds=3), "cifar10", 0)
    for name in ("x-ent val", "x-ent train", "uniloss val", "uniloss train"):
        assert name in panel.inline
        assert name in panel.alt
    assert ">epoch<" in panel.inline
    assert ">20<" in panel.inline  # the last epoch
    assert "Compare with UniLoss, Fig. 2" in panel.caption


def test_a_longer_schedule_has_more_epochs(tmp_path: Path) -> None:
    info = run_info("cifar100")
    info["config"] |= {"stretch": 5}
    panel = drawn(write_run(tmp_path, records("cifar100", 2), info), "cifar100", 0)
    assert ">100<" in panel.inline


def test_of_many_widths_the_best_one_is_the_rival(tmp_path: Path) -> None:
    lines = records("pose", 3)
    for line in lines:
        if line["method"] == "mse-10" and line["stage"] == "final":
            line["metrics"]["val_pck"] = 0.99
    panel = drawn(write_run(tmp_path, lines, run_info("pose")), "pose", 1)
    assert "mse-10 val" in panel.alt
    assert "mse-3" not in panel.alt


def test_sizes_are_read_from_names_and_stand_beside_the_papers(tmp_path: Path) -> None:
    panel = drawn(make_run(tmp_path, "ablation-batch", seeds=3), "ablation-batch", 0)
    for size in (8, 16, 32, 64, 128, 256, 512, 1024):
        assert f"{size}: " in panel.alt
        assert f">{size}<" in panel.inline
    assert ">paper<" in panel.inline
    without = drawn(tmp_path, "ablation-batch", 1)
    assert ">paper<" not in without.inline


@pytest.mark.parametrize("figure", [Figure("epochs", "f1"), Figure("sizes", first="batch"), Figure("frames")])
def test_no_data_no_figure_of_uniloss(tmp_path: Path, figure: Figure) -> None:
    assert draw(load_run(make_run(tmp_path, "cifar10", seeds=2)), figure, "name") is None


def test_names_with_options_stay_readable() -> None:
    assert short("uniloss-accuracy:batch=1024") == "…:batch=1024"
    assert short("uniloss-ap:bits") == "uniloss-ap:bits"
