"""Configs: complete, strict, and with the same budget for every method."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from directloss import DirectLossError
from directloss.lab.config import SEARCH_SEED, Config, Grid
from directloss.lab.experiments import EXPERIMENTS, PRESETS
from directloss.lab.methods import PAPER_METHODS, parse_method

TINY = Config(
    methods=("pos-ap", "hinge-ap", "x-ent"),
    direct=Grid((0.01,), (0.0,), (1.0, "auto")),
    hinge=Grid((0.01,), (0.0,), (1.0, 10.0)),
    plain=Grid((0.01, 0.02)),
    iterations=3,
    evaluate_every=1,
    seeds=2,
    hidden=(4,),
)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_of_every_preset_has_the_same_number_of_trials(name: str, preset: str) -> None:
    config = EXPERIMENTS[name].config(preset)
    budgets = {len(config.grid(parse_method(method)).points()) for method in PAPER_METHODS}
    assert len(budgets) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_configs_survive_a_round_trip(name: str, preset: str) -> None:
    config = EXPERIMENTS[name].config(preset)
    again = EXPERIMENTS[name].config_from(config.to_dict())
    assert again == config
    assert again.digest() == config.digest()


def test_grid_points_are_all_combinations_in_order() -> None:
    assert Grid((1, 2), (0,), (0.5, "auto")).points() == [
        {"learning_rate": 1.0, "weight_decay": 0.0, "epsilon": 0.5},
        {"learning_rate": 1.0, "weight_decay": 0.0, "epsilon": "auto"},
        {"learning_rate": 2.0, "weight_decay": 0.0, "epsilon": 0.5},
        {"learning_rate": 2.0, "weight_decay": 0.0, "epsilon": "auto"},
    ]


def test_whole_numbers_and_floats_are_the_same_setting() -> None:
    assert repr(Grid((1,), (0,))) == repr(Grid((1.0,), (0.0,)))


def test_digest_ignores_what_one_run_does_not_depend_on() -> None:
    same = TINY.changed({"seeds": 7, "methods": ["x-ent"], "noise": [0.1], "direct.epsilon": [2.0, "auto"]})
    assert same.digest() == TINY.digest()
    assert TINY.changed({"iterations": 4}).digest() != TINY.digest()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"iteration": 3}, "Did you mean 'iterations'"),
    ({"direct.epsilons": [1.0]}, "Did you mean 'epsilon'"),
    ({"iterations.deep": 1}, "config key must be a known one"),
    ({"iterations": 0}, "iterations must be a whole number of at least 1"),
    ({"iterations": 2.5}, "config 'iterations' must be of type int"),
    ({"iterations": True}, "config 'iterations' must be of type int"),
    ({"methods": "pos-ap"}, "config 'methods' must be a list"),
    ({"methods": []}, "methods must name at least one"),
    ({"methods": ["pos-ap", "pos-ap"]}, "methods must name each once"),
    ({"methods": ["pos-app"]}, "task must be a known name"),
    ({"methods": ["best-ap"]}, "method must be x-ent, or"),
    ({"noise": [0.7]}, "noise must be shares of flipped labels from 0 to 0.5"),
    ({"noise": [-0.1]}, "noise must be shares"),
    ({"noise": []}, "noise must name at least one"),
    ({"noise": ["much"]}, "config 'noise' must be of type float"),
    ({"noisy_parts": ["trains"]}, "noisy_parts must be one of"),
    ({"select_on": "test"}, "select_on must be one of 'train', 'val'"),
    ({"optimizer": "adamm"}, "Did you mean 'adam'"),
    ({"hidden": [0]}, "hidden must be a whole number"),
    ({"seeds": SEARCH_SEED + 1}, "seeds must be at most"),
    ({"direct": {"learning_rate": [0.1]}}, "grids must have the same number of points"),
    ({"direct": [0.1]}, "config 'direct' must be an object"),
    ({"plain.learning_rate": [0.1, 0.2, 0.3]}, "grids must have the same number of points"),
    ({"plain.epsilon": [1.0]}, "plain.epsilon must be empty"),
    ({"plain.learning_rate": [-1.0, 0.1]}, "learning_rate must be positive"),
    ({"plain.weight_decay": [-1.0]}, "weight_decay must be a number of at least 0"),
    ({"plain.learning_rate": []}, "must have at least one learning rate"),
    ({"direct.epsilon": [0.0, "auto"]}, "epsilon must be positive"),
    ({"direct.epsilon": ["auto", "automatic"]}, "epsilon must be a positive number or"),
    ({"direct.epsilon": [None, "auto"]}, "config 'epsilon' must be"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_configs_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DirectLossError) as caught:
        TINY.changed(changes)
    assert message in str(caught.value)


def test_missing_keys_are_refused() -> None:
    values = TINY.to_dict()
    del values["iterations"]
    with pytest.raises(DirectLossError, match="config must have every key, but it is without iterations"):
        Config.from_dict(values)


def test_runs_may_grow_but_not_change() -> None:
    TINY.changed({"seeds": 3, "methods": ["x-ent", "pos-ap", "hinge-ap", "per-ap"]}).check_grown_from(TINY, "runs/x")
    for change in ({"seeds": 1}, {"methods": ["x-ent"]}, {"iterations": 4}, {"plain.learning_rate": [0.1, 0.2]}):
        with pytest.raises(DirectLossError, match="must be what the run in runs/x has"):
            TINY.changed(change).check_grown_from(TINY, "runs/x")


def test_configs_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.iterations = 4  # type: ignore[misc]
