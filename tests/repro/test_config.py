"""Configs: complete, strict, and with the same budget for every method."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from directloss_repro.config import SEARCH_SEED, Config, EpochConfig, Grid
from directloss_repro.experiments import FILES, get_experiment
from directloss_repro.methods import PAPER_METHODS, parse_method
from pydantic import ValidationError

from directloss import DirectLossError
from directloss._uniloss.interpolation import as_interpolation

NAN, INF = float("nan"), float("inf")

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


PRESETS = [(name, preset) for name in FILES for preset in get_experiment(name).presets]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_every_method_of_every_preset_has_the_same_number_of_trials(name: str, preset: str) -> None:
    config = get_experiment(name).config(preset)
    budgets = {len(config.grid(parse_method(method)).points()) for method in PAPER_METHODS}
    assert len(budgets) == 1


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_configs_survive_a_round_trip(name: str, preset: str) -> None:
    config = get_experiment(name).config(preset)
    again = get_experiment(name).config_from(config.to_dict())
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
    ({"iteration": 3}, "config key must be a known one, but it is 'iteration'. Did you mean 'iterations'"),
    ({"direct.epsilons": [1.0]}, "config key must be a known one, but it is 'direct.epsilons'. Did you mean 'epsilon'"),
    ({"iterations.deep": 1}, "config key must be a known one"),
    ({"iterations": 0}, "config iterations must be at least 1, but it is 0"),
    ({"iterations": 2.5}, "config iterations must be a whole number, but it is 2.5"),
    ({"iterations": True}, "config iterations must be a whole number, but it is True"),
    ({"iterations": "3"}, "config iterations must be a whole number, but it is '3'"),
    ({"momentum": "0.9"}, "config momentum must be a number, but it is '0.9'"),
    ({"methods": "pos-ap"}, "config methods must be a list"),
    ({"methods": []}, "methods must have at least one"),
    ({"methods": ["pos-ap", "pos-ap"]}, "methods must have at least one, and each once"),
    ({"methods": ["pos-app"]}, "task must be a known name"),
    ({"methods": ["best-ap"]}, "method must be one of x-ent, focal, gce, or"),
    ({"noise": [0.7]}, "config noise must be at most 0.5, but it is 0.7"),
    ({"noise": [-0.1]}, "config noise must be at least 0"),
    ({"noise": []}, "noise must have at least one"),
    ({"noise": ["much"]}, "config noise must be a number, but it is 'much'"),
    ({"noisy_parts": ["trains"]}, "config noisy_parts must be 'train', 'val' or 'test', but it is 'trains'. Did you"),
    ({"select_on": "test"}, "config select_on must be 'train' or 'val'"),
    ({"optimizer": "adamm"}, "Did you mean 'adam'"),
    ({"hidden": [0]}, "config hidden must be at least 1"),
    ({"seeds": SEARCH_SEED + 1}, "config seeds must be at most 1000"),
    ({"direct": {"learning_rate": [0.1]}}, "grids must have the same number of points"),
    ({"direct": {"epsilon": [0.1]}}, "grid must have at least one learning rate"),
    ({"direct": [0.1]}, "config direct must be an object"),
    ({"plain.learning_rate": [0.1, 0.2, 0.3]}, "grids must have the same number of points"),
    ({"plain.epsilon": [1.0]}, "plain.epsilon must be empty"),
    ({"plain.learning_rate": [-1.0, 0.1]}, "config plain.learning_rate must be above 0"),
    ({"plain.weight_decay": [-1.0]}, "config plain.weight_decay must be at least 0"),
    ({"plain.learning_rate": []}, "must have at least one learning rate"),
    ({"direct.epsilon": [0.0, "auto"]}, "epsilon must be positive"),
    ({"direct.epsilon": ["auto", "automatic"]}, "epsilon must be a positive number or"),
    ({"direct.epsilon": [None, "auto"]}, "config direct.epsilon must be a number"),
    ({"direct.epsilon": [NAN, "auto"]}, "epsilon must be positive and finite"),
    ({"optimizer": "sgd", "momentum": -3}, "config momentum must be at least 0, but it is -3"),
    ({"search_seeds": 10**30}, "config search_seeds must be at most 1000000000"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_configs_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DirectLossError) as caught:
        TINY.changed(changes)
    assert message in str(caught.value)


BAD_NUMBERS: list[tuple[str, dict[str, Any], str]] = [
    ("robustness", {"inner": 1300.0}, "inner must be at most outer, 1200, but it is 1300.0"),
    ("synthetic", {"positive_share": 2}, "config positive_share must be below 1, but it is 2"),
    ("synthetic", {"positive_share": 1e-9}, "positive_share must leave points of both labels among 20000"),
    ("synthetic", {"train_points": 20_000}, "train_points must be less than points, 20000, but it is 20000"),
    ("linear", {"train_points": 30_000}, "train_points must be less than points, 20000, but it is 30000"),
    ("mnist-ap", {"iterations": 5}, "config iterations must be 0, but it is 5"),
    ("mnist-ap", {"interpolation": "spline"}, "config interpolation must be 'inverse-distance' or 'distance-spline'"),
    ("cifar10", {"drops": [0]}, "config drops must be at least 1"),
    ("pose", {"depth": 40}, "config depth must be at most 10"),
]


@pytest.mark.parametrize(("name", "changes", "message"), BAD_NUMBERS, ids=[message for _, _, message in BAD_NUMBERS])
def test_bad_numbers_of_experiments_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DirectLossError) as caught:
        get_experiment(name).config("paper").changed(changes)
    assert message in str(caught.value)


KINDS = sorted({type(one.config("quick")) for one in map(get_experiment, FILES)}, key=str)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [NAN, INF, -INF, -1, True, "3"])
def test_no_number_of_any_config_takes_such_values(kind: type[Config], bad: Any) -> None:
    """A number without a rule would be found out by a traceback in the middle of a run."""
    config = next(one.config("quick") for one in map(get_experiment, FILES) if type(one.config("quick")) is kind)
    numbers = {
        name: value
        for name, value in config.to_dict().items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    assert {"seeds", "momentum"} <= set(numbers)
    for name in numbers:
        with pytest.raises(DirectLossError, match=f"config {name} must be"):
            config.changed({name: bad})


def test_interpolations_are_those_of_the_library() -> None:
    for name in typing.get_args(EpochConfig.model_fields["interpolation"].annotation):
        as_interpolation(name)


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
    with pytest.raises(ValidationError, match="frozen"):
        TINY.iterations = 4  # type: ignore[misc]
