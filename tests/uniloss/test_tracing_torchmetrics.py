"""The real functions of torchmetrics, with no change to their code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from directloss import DirectLossError
from directloss._uniloss.tracing import record
from tests.uniloss.test_tracing import CLASSES, GRADES, KINDS, LABELS, C, N, strict

pytest.importorskip("torchmetrics")
import torchmetrics.functional.classification as tm
import torchmetrics.functional.regression as tr
import torchmetrics.functional.retrieval as ret
import torchmetrics.functional.segmentation as seg

Metric = Callable[[Tensor, Tensor], Any]
MULTI = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0]] * 2)
PIXELS = torch.arange(32).reshape(2, 4, 4) % 3
WISHED = torch.linspace(0.05, 0.95, N)[torch.tensor([3, 7, 1, 11, 0, 5, 9, 2, 8, 4, 10, 6])]
GROUPS = torch.tensor([0, 0, 1] * 4)
CURVES = {
    "precision_at_fixed_recall": "min_recall",
    "recall_at_fixed_precision": "min_precision",
    "sensitivity_at_specificity": "min_specificity",
    "specificity_at_sensitivity": "min_sensitivity",
}
COUNTS = [
    "accuracy", "f1_score", "hamming_distance", "jaccard_index", "matthews_corrcoef", "negative_predictive_value",
    "precision", "recall", "specificity",
]  # fmt: skip
AREAS = ["auroc", "average_precision", "logauc"]


def first(function: Any, **settings: Any) -> Metric:
    """The metric, of a pair of metric and threshold; the mean over classes where there are several."""
    return lambda s, t: function(s, t, **settings)[0].mean()


def any_of(function: Any, *more: Tensor) -> Metric:
    return lambda s, t: next(iter(function(s, t, *more).values()))


BINARY: dict[str, Metric] = {
    **{name: getattr(tm, f"binary_{name}") for name in [*COUNTS, *AREAS, "cohen_kappa", "eer"]},
    **{name: first(getattr(tm, f"binary_{name}"), **{setting: 0.5}) for name, setting in CURVES.items()},
    "fbeta_score": partial(tm.binary_fbeta_score, beta=2.0),
    "auroc up to 0.3": partial(tm.binary_auroc, max_fpr=0.3),
    "auroc in bins": partial(tm.binary_auroc, thresholds=5),
    "average precision in bins": partial(tm.binary_average_precision, thresholds=5),
    "stat_scores": lambda s, t: tm.binary_stat_scores(s, t)[0],
    "confusion_matrix": lambda s, t: tm.binary_confusion_matrix(s, t)[0, 1],
    "fairness": any_of(tm.binary_fairness, GROUPS),
    "demographic_parity": lambda s, t: next(iter(tm.demographic_parity(s, GROUPS).values())),
    "equal_opportunity": any_of(tm.equal_opportunity, GROUPS),
    **{
        f"retrieval_{name}": getattr(ret, f"retrieval_{name}")
        for name in (
            "auroc", "average_precision", "fall_out", "hit_rate", "normalized_dcg", "precision", "r_precision",
            "recall", "reciprocal_rank",
        )
    },
    **{
        f"retrieval_{name} at 3": partial(getattr(ret, f"retrieval_{name}"), top_k=3)
        for name in ("fall_out", "hit_rate", "normalized_dcg", "precision", "recall")
    },
    "retrieval_precision_recall_curve": lambda s, t: ret.retrieval_precision_recall_curve(s, t)[0].mean(),
}  # fmt: skip
MULTICLASS: dict[str, Metric] = {
    **{
        f"multiclass_{name}": partial(getattr(tm, f"multiclass_{name}"), num_classes=C)
        for name in [*COUNTS, *AREAS, "cohen_kappa"]
    },
    **{
        f"multiclass_{name}": first(getattr(tm, f"multiclass_{name}"), num_classes=C, **{setting: 0.5})
        for name, setting in CURVES.items()
    },
    "multiclass_eer": lambda s, t: tm.multiclass_eer(s, t, C).mean(),
    "multiclass_fbeta_score": partial(tm.multiclass_fbeta_score, beta=2.0, num_classes=C),
    "multiclass_accuracy, micro": partial(tm.multiclass_accuracy, average="micro", num_classes=C),
    "multiclass_accuracy, top 2": partial(tm.multiclass_accuracy, top_k=2, num_classes=C),
    "multiclass_auroc in bins": partial(tm.multiclass_auroc, thresholds=5, num_classes=C),
    "multiclass_stat_scores": lambda s, t: tm.multiclass_stat_scores(s, t, num_classes=C)[0],
    "multiclass_confusion_matrix": lambda s, t: tm.multiclass_confusion_matrix(s, t, C)[0, 1],
}
MULTILABEL: dict[str, Metric] = {
    **{
        f"multilabel_{name}": partial(getattr(tm, f"multilabel_{name}"), num_labels=C)
        for name in [*COUNTS, *AREAS, "coverage_error", "exact_match", "ranking_average_precision", "ranking_loss"]
    },
    **{
        f"multilabel_{name}": first(getattr(tm, f"multilabel_{name}"), num_labels=C, **{setting: 0.5})
        for name, setting in CURVES.items()
    },
    "multilabel_eer": lambda s, t: tm.multilabel_eer(s, t, C).mean(),
    "multilabel_fbeta_score": partial(tm.multilabel_fbeta_score, beta=2.0, num_labels=C),
    "multilabel_auroc in bins": partial(tm.multilabel_auroc, thresholds=5, num_labels=C),
    "multilabel_stat_scores": lambda s, t: tm.multilabel_stat_scores(s, t, num_labels=C).flatten()[0],
    "multilabel_confusion_matrix": lambda s, t: tm.multilabel_confusion_matrix(s, t, C)[0, 0, 1],
}
SEGMENTATION: dict[str, Metric] = {
    "mean_iou": lambda s, t: seg.mean_iou(s.argmax(1), t, num_classes=3, input_format="index").mean(),
    "mean_iou, mixed": lambda s, t: seg.mean_iou(s, t, num_classes=3, input_format="mixed").mean(),
    "dice_score": lambda s, t: seg.dice_score(s.argmax(1), t, num_classes=3, input_format="index").mean(),
    "generalized_dice_score": lambda s, t: seg.generalized_dice_score(
        s.argmax(1), t, num_classes=3, input_format="index"
    ).mean(),
    "multiclass_jaccard_index of pixels": partial(tm.multiclass_jaccard_index, num_classes=3),
    "multiclass_exact_match": partial(tm.multiclass_exact_match, num_classes=3),
}
ORDER: dict[str, Metric] = {
    "spearman_corrcoef": tr.spearman_corrcoef,
    "kendall_rank_corrcoef": tr.kendall_rank_corrcoef,
    "critical_success_index": partial(tr.critical_success_index, threshold=0.5),
}
CASES: dict[str, tuple[Metric, tuple[int, ...], Tensor]] = {
    **{name: (metric, (N,), LABELS) for name, metric in BINARY.items()},
    "normalized_dcg of grades": (ret.retrieval_normalized_dcg, (N,), GRADES),
    **{name: (metric, (N, C), CLASSES) for name, metric in MULTICLASS.items()},
    **{name: (metric, (N, C), MULTI) for name, metric in MULTILABEL.items()},
    **{name: (metric, (2, 3, 4, 4), PIXELS) for name, metric in SEGMENTATION.items()},
    **{name: (metric, (N,), WISHED) for name, metric in ORDER.items()},
}


@pytest.mark.filterwarnings("ignore")  # torchmetrics warns of classes that never occur, and the like
@pytest.mark.parametrize("kind", ["continuous", "tied", "probabilities"])
@pytest.mark.parametrize("name", CASES)
def test_a_record_answers_for_other_scores(name: str, kind: str) -> None:
    metric, shape, target = CASES[name]
    generator = torch.Generator().manual_seed(3)

    def draw() -> Tensor:
        scores = KINDS[kind](generator, shape)
        return (
            scores.softmax(-1)
            if name.startswith("multiclass") and kind == "probabilities" and len(shape) == 2
            else scores
        )

    strict(metric, draw, target)


def test_there_are_many() -> None:
    assert len(CASES) >= 90


USES_VALUES: dict[str, tuple[Metric, tuple[int, ...], Tensor, str]] = {
    "calibration": (tm.binary_calibration_error, (N,), LABELS, "calibration_error.py"),
    "calibration of classes": (
        partial(tm.multiclass_calibration_error, num_classes=C), (N, C), CLASSES, "calibration_error.py",
    ),
    "hinge": (tm.binary_hinge_loss, (N,), LABELS, "hinge.py"),
    "hinge of classes": (partial(tm.multiclass_hinge_loss, num_classes=C), (N, C), CLASSES, "hinge.py"),
    "pearson": (tr.pearson_corrcoef, (N,), WISHED, "values of scores"),
    "absolute error": (tr.mean_absolute_error, (N,), WISHED, "mae.py"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES_VALUES)
def test_metrics_of_values_are_refused(name: str) -> None:
    metric, shape, target, words = USES_VALUES[name]
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        DirectLossError, match=r"depend only on comparisons of scores.*has a gradient of its own"
    ) as told:
        record(metric, scores, target)
    assert words in str(told.value)
