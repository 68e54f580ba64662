"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists the registered names; `get(name)` returns the task of a name.
"""

from directloss import metrics
from directloss._registry import Measured, get, names, register, summaries
from directloss.task import Task
from directloss.tasks._counting import CountTask, Selection
from directloss.tasks.assignment import Assignment, Matching
from directloss.tasks.auc import AUC
from directloss.tasks.chain import Chain
from directloss.tasks.classes import Accuracy, CostMatrix, Error, TopK
from directloss.tasks.confusion import (
    BalancedAccuracy,
    CountMetric,
    Dice,
    FBeta,
    GMean,
    IoU,
    Kappa,
    Matthews,
    Precision,
    Recall,
)
from directloss.tasks.decomposable import Decomposable
from directloss.tasks.graded import GradedNDCG, GradedRanking
from directloss.tasks.knapsack import Choose, Knapsack
from directloss.tasks.paths import GridPath, ShortestPath
from directloss.tasks.programs import IntegerProgram
from directloss.tasks.ranking import (
    DCG,
    NDCG,
    AveragePrecision,
    PartialAUC,
    PositionTask,
    PrecisionAtK,
    Ranking,
    RankingTask,
    RecallAtK,
    ReciprocalRank,
)
from directloss.tasks.solver import SolverTask
from directloss.tasks.tours import Tour
from directloss.tasks.trees import SpanningTree

register(
    "ap",
    AveragePrecision,
    "average precision of a ranking",
    ("average_precision", "map", "mean_average_precision"),
    measured=Measured(metrics.average_precision),
)
register(
    "ndcg",
    NDCG,
    "normalised discounted cumulative gain, binary gains; ndcg@k for the first k ranks",
    measured=Measured(metrics.ndcg, "k"),
)
register(
    "dcg",
    DCG,
    "discounted cumulative gain, binary gains; dcg@k for the first k ranks",
    measured=Measured(metrics.dcg, "k"),
)
register(
    "mrr",
    ReciprocalRank,
    "one over the rank of the first relevant item",
    ("reciprocal_rank", "mean_reciprocal_rank"),
    measured=Measured(metrics.reciprocal_rank),
)
register(
    "auc",
    AUC,
    "area under the ROC curve",
    ("auroc", "roc_auc", "area_under_the_roc_curve"),
    measured=Measured(metrics.auc),
)
register(
    "pauc",
    PartialAUC,
    "area under the ROC curve up to a false positive rate: pauc@0.1",
    ("partial_auc",),
    measured=Measured(metrics.partial_auc, "max_fpr"),
)
register(
    "graded_ndcg",
    GradedNDCG,
    "NDCG with graded relevance, gains 2^grade - 1; graded_ndcg@k for the first k",
    measured=Measured(metrics.graded_ndcg, "k"),
)
register(
    "assignment", Assignment, "each row gets a column of its own; the share of rows with a wrong one", ("hungarian",)
)
register("chain", lambda: Chain(), "one label for each position of a sequence; the share of wrong labels", ("viterbi",))


def _precision(k: int | None = None) -> Task:
    """The precision of yes-or-no decisions; with a number after the @ that of the first k of a ranking."""
    return Precision() if k is None else PrecisionAtK(k)


def _recall(k: int | None = None) -> Task:
    """The recall of yes-or-no decisions; with a number after the @ that of the first k of a ranking."""
    return Recall() if k is None else RecallAtK(k)


register(
    "f1",
    lambda: FBeta(1.0),
    "F1 of yes-or-no decisions, positive above 0",
    ("f1_score", "f_measure", "f_score"),
    measured=Measured(metrics.f_beta),
)
register(
    "fbeta",
    FBeta,
    "F-beta of yes-or-no decisions: fbeta@2 weighs recall twice as much as precision",
    ("f_beta", "f2", "f3", "f05", "f0.5"),
    measured=Measured(metrics.f_beta, "beta"),
)
register(
    "precision",
    _precision,
    "precision of yes-or-no decisions; precision@k among the first k of a ranking",
    measured=Measured(metrics.precision, "k", other=metrics.precision_at_k),
)
register(
    "recall",
    _recall,
    "recall of yes-or-no decisions; recall@k among the first k of a ranking",
    measured=Measured(metrics.recall, "k", other=metrics.recall_at_k),
)
register(
    "iou",
    IoU,
    "intersection over union of the predicted and the true set",
    ("intersection_over_union", "miou"),
    measured=Measured(metrics.iou),
)
register("jaccard", IoU, "another name for iou", measured=Measured(metrics.iou))
register("dice", Dice, "Dice coefficient of the predicted and the true set", measured=Measured(metrics.dice))
register(
    "mcc",
    Matthews,
    "Matthews' correlation coefficient",
    ("matthews", "matthews_correlation_coefficient"),
    measured=Measured(metrics.matthews),
)
register("kappa", Kappa, "Cohen's kappa", ("cohen_kappa", "cohens_kappa"), measured=Measured(metrics.kappa))
register(
    "balanced_accuracy",
    BalancedAccuracy,
    "mean of the accuracies on positives and on negatives",
    measured=Measured(metrics.balanced_accuracy),
)
register(
    "gmean",
    GMean,
    "geometric mean of the accuracies on positives and on negatives",
    ("g_mean", "geometric_mean"),
    measured=Measured(metrics.g_mean),
)
register(
    "error",
    Error,
    "0-1 loss of a yes-or-no decision, item by item",
    ("zero_one", "binary_accuracy"),
    measured=Measured(metrics.binary_accuracy),
)
register("accuracy", Accuracy, "0-1 loss of the best class", measured=Measured(metrics.accuracy, event_dims=2))
register(
    "topk",
    TopK,
    "whether the right class is among the k best: topk@5",
    ("top_k", "top_k_accuracy"),
    measured=Measured(metrics.top_k_accuracy, "k", event_dims=2),
)

__all__ = [
    "AUC",
    "DCG",
    "NDCG",
    "Accuracy",
    "Assignment",
    "AveragePrecision",
    "BalancedAccuracy",
    "Chain",
    "Choose",
    "CostMatrix",
    "CountMetric",
    "CountTask",
    "Decomposable",
    "Dice",
    "Error",
    "FBeta",
    "GMean",
    "GradedNDCG",
    "GradedRanking",
    "GridPath",
    "IntegerProgram",
    "IoU",
    "Kappa",
    "Knapsack",
    "Matching",
    "Matthews",
    "Measured",
    "PartialAUC",
    "PositionTask",
    "Precision",
    "PrecisionAtK",
    "Ranking",
    "RankingTask",
    "Recall",
    "RecallAtK",
    "ReciprocalRank",
    "Selection",
    "ShortestPath",
    "SolverTask",
    "SpanningTree",
    "Task",
    "TopK",
    "Tour",
    "get",
    "names",
    "register",
    "summaries",
]
