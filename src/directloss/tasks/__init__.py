"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists what can be asked for by name, `get(name)` makes the object that a name stands for.
"""

from directloss.task import Task, get, names, register, summaries
from directloss.tasks.assignment import Assignment
from directloss.tasks.auc import AUC
from directloss.tasks.chain import Chain
from directloss.tasks.classes import Accuracy, CostMatrix, Error, TopK
from directloss.tasks.confusion import (
    BalancedAccuracy,
    CountMetric,
    CountTask,
    Dice,
    FBeta,
    GMean,
    IoU,
    Kappa,
    Matthews,
    Precision,
    Recall,
    Selection,
)
from directloss.tasks.graded import GradedNDCG, GradedRanking
from directloss.tasks.paths import GridPath, ShortestPath
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
from directloss.tasks.solver import Decomposable, SolverTask

register(
    "ap", AveragePrecision, "average precision of a ranking", ("average_precision", "map", "mean_average_precision")
)
register("ndcg", NDCG, "normalised discounted cumulative gain, binary gains; ndcg@k for the first k ranks")
register("dcg", DCG, "discounted cumulative gain, binary gains; dcg@k for the first k ranks")
register(
    "mrr", ReciprocalRank, "one over the rank of the first relevant item", ("reciprocal_rank", "mean_reciprocal_rank")
)
register("auc", AUC, "area under the ROC curve", ("auroc", "roc_auc", "area_under_the_roc_curve"))
register("pauc", PartialAUC, "area under the ROC curve up to a false positive rate: pauc@0.1", ("partial_auc",))
register("graded_ndcg", GradedNDCG, "NDCG with graded relevance, gains 2^grade - 1; graded_ndcg@k for the first k")
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


register("f1", lambda: FBeta(1.0), "F1 of yes-or-no decisions, positive above 0", ("f1_score", "f_measure", "f_score"))
register("fbeta", FBeta, "F-beta of yes-or-no decisions: fbeta@2 weighs recall twice as much as precision", ("f_beta",))
register("precision", _precision, "precision of yes-or-no decisions; precision@k among the first k of a ranking")
register("recall", _recall, "recall of yes-or-no decisions; recall@k among the first k of a ranking")
register("iou", IoU, "intersection over union of the predicted and the true set", ("intersection_over_union", "miou"))
register("jaccard", IoU, "another name for iou")
register("dice", Dice, "Dice coefficient of the predicted and the true set")
register("mcc", Matthews, "Matthews' correlation coefficient", ("matthews", "matthews_correlation_coefficient"))
register("kappa", Kappa, "Cohen's kappa", ("cohen_kappa", "cohens_kappa"))
register("balanced_accuracy", BalancedAccuracy, "mean of the accuracies on positives and on negatives")
register("gmean", GMean, "geometric mean of the accuracies on positives and on negatives", ("g_mean", "geometric_mean"))
register("error", Error, "0-1 loss of a yes-or-no decision, item by item", ("zero_one", "binary_accuracy"))
register("accuracy", Accuracy, "0-1 loss of the best class")
register("topk", TopK, "whether the right class is among the k best: topk@5", ("top_k", "top_k_accuracy"))

__all__ = [
    "AUC",
    "DCG",
    "NDCG",
    "Accuracy",
    "Assignment",
    "AveragePrecision",
    "BalancedAccuracy",
    "Chain",
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
    "IoU",
    "Kappa",
    "Matthews",
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
    "Task",
    "TopK",
    "get",
    "names",
    "register",
    "summaries",
]
