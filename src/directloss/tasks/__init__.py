"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists the registered names; `get(name)` returns the task of a name.
"""

from directloss import metrics
from directloss._registry import Measured, get, names, register, summaries
from directloss.task import Task
from directloss.tasks._counting import CountTask, Selection
from directloss.tasks.assignment import Assignment, Matching
from directloss.tasks.averages import ClassAverage
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
from directloss.tasks.functions import MetricFunction
from directloss.tasks.graded import GradedNDCG, GradedRanking
from directloss.tasks.knapsack import Choose, Knapsack
from directloss.tasks.paths import GridPath, ShortestPath
from directloss.tasks.programs import IntegerProgram
from directloss.tasks.ranking import (
    AUC,
    DCG,
    NDCG,
    AveragePrecision,
    PartialAUC,
    PositionTask,
    PrecisionAtK,
    PrecisionAtRecall,
    Ranking,
    RankingTask,
    RecallAtFPR,
    RecallAtK,
    ReciprocalRank,
)
from directloss.tasks.solver import SolverTask

_ALSO = {
    "ap": ("average_precision", "average_precision_score", "map", "mean_average_precision", "auprc", "pr_auc"),
    "assignment": ("hungarian",),
    "auc": ("auroc", "roc_auc", "roc_auc_score", "area_under_the_roc_curve"),
    "chain": ("viterbi",),
    "error": ("zero_one", "binary_accuracy"),
    "f1": ("f1_score", "f_measure", "f_score"),
    "fbeta": ("f_beta", "f2", "f3", "f05", "f0.5"),
    "gmean": ("g_mean", "geometric_mean"),
    "iou": ("intersection_over_union", "miou"),
    "kappa": ("cohen_kappa", "cohens_kappa"),
    "mcc": ("matthews", "matthews_correlation_coefficient"),
    "mrr": ("reciprocal_rank", "mean_reciprocal_rank"),
    "ndcg": ("ndcg_score",),
    "pauc": ("partial_auc",),
    "precision": ("p", "precision_at_k"),
    "precision_at_recall": ("precision_at_fixed_recall",),
    "recall": ("r", "recall_at_k"),
    "recall_at_fpr": ("tpr_at_fpr", "recall_at_fixed_fpr"),
    "topk": ("top_k", "top_k_accuracy"),
}
"""Words that users may try, for which the error message suggests the name."""

for _name, _factory, _measured, _summary in (
    ("ap", AveragePrecision, Measured(metrics.average_precision), "average precision of a ranking"),
    ("ndcg", NDCG, Measured(metrics.ndcg, "k"), "normalised DCG with binary gains; ndcg@k for the first k ranks"),
    ("dcg", DCG, Measured(metrics.dcg, "k"), "discounted cumulative gain, binary gains; dcg@k for the first k ranks"),
    ("mrr", ReciprocalRank, Measured(metrics.reciprocal_rank), "one over the rank of the first relevant item"),
    ("auc", AUC, Measured(metrics.auc), "area under the ROC curve"),
    ("pauc", PartialAUC, Measured(metrics.partial_auc, "max_fpr"), "AUC up to a false positive rate: pauc@0.1"),
    (
        "recall_at_fpr",
        RecallAtFPR,
        Measured(metrics.recall_at_fpr, "max_fpr"),
        "recall at a false positive rate: recall_at_fpr@0.01",
    ),
    (
        "precision_at_recall",
        PrecisionAtRecall,
        Measured(metrics.precision_at_recall, "recall"),
        "precision where the recall reaches a level: precision_at_recall@0.9",
    ),
    (
        "graded_ndcg",
        GradedNDCG,
        Measured(metrics.graded_ndcg, "k"),
        "NDCG with graded relevance, gains 2^grade - 1; graded_ndcg@k for the first k",
    ),
    ("assignment", Assignment, None, "each row gets a column of its own; the share of rows with a wrong one"),
    ("chain", lambda: Chain(), None, "one label for each position of a sequence; the share of wrong labels"),
    ("f1", lambda: FBeta(1.0), Measured(metrics.f_beta), "F1 of yes-or-no decisions, positive above 0"),
    ("fbeta", FBeta, Measured(metrics.f_beta, "beta"), "F-beta of decisions; for fbeta@2 recall counts twice as much"),
    (
        "precision",
        lambda k=None: Precision() if k is None else PrecisionAtK(k),
        Measured(metrics.precision, "k", other=metrics.precision_at_k),
        "precision of yes-or-no decisions; precision@k among the first k of a ranking",
    ),
    (
        "recall",
        lambda k=None: Recall() if k is None else RecallAtK(k),
        Measured(metrics.recall, "k", other=metrics.recall_at_k),
        "recall of yes-or-no decisions; recall@k among the first k of a ranking",
    ),
    ("iou", IoU, Measured(metrics.iou), "intersection over union of the predicted and the true set"),
    ("jaccard", IoU, Measured(metrics.iou), "another name for iou"),
    ("dice", Dice, Measured(metrics.dice), "Dice coefficient of the predicted and the true set"),
    ("mcc", Matthews, Measured(metrics.matthews), "Matthews' correlation coefficient"),
    ("kappa", Kappa, Measured(metrics.kappa), "Cohen's kappa"),
    ("balanced_accuracy", BalancedAccuracy, Measured(metrics.balanced_accuracy), "mean accuracy of both classes"),
    ("gmean", GMean, Measured(metrics.g_mean), "geometric mean of the accuracies on positives and on negatives"),
    ("error", Error, Measured(metrics.binary_accuracy), "0-1 loss of a yes-or-no decision, item by item"),
    ("accuracy", Accuracy, Measured(metrics.accuracy, event_dims=2), "0-1 loss of the best class"),
    ("topk", TopK, Measured(metrics.top_k_accuracy, "k", 2), "whether the right class is among the k best: topk@5"),
):
    register(_name, _factory, _summary, _ALSO.get(_name, ()), _measured)

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
    "ClassAverage",
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
    "MetricFunction",
    "PartialAUC",
    "PositionTask",
    "Precision",
    "PrecisionAtK",
    "PrecisionAtRecall",
    "Ranking",
    "RankingTask",
    "Recall",
    "RecallAtFPR",
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
