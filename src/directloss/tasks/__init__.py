"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists what can be asked for by name, `get(name)` makes the object that a name stands for.
"""

from directloss.task import Task, get, names, register, summaries
from directloss.tasks.ranking import (
    AUC,
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

register("ap", AveragePrecision, "average precision of a ranking")
register("ndcg", NDCG, "normalised discounted cumulative gain, binary gains; ndcg@k for the first k ranks")
register("dcg", DCG, "discounted cumulative gain, binary gains; dcg@k for the first k ranks")
register("mrr", ReciprocalRank, "one over the rank of the first relevant item")
register("auc", AUC, "area under the ROC curve")
register("pauc", PartialAUC, "area under the ROC curve up to a false positive rate: pauc@0.1")

__all__ = [
    "AUC",
    "DCG",
    "NDCG",
    "AveragePrecision",
    "PartialAUC",
    "PositionTask",
    "PrecisionAtK",
    "Ranking",
    "RankingTask",
    "RecallAtK",
    "ReciprocalRank",
    "Task",
    "get",
    "names",
    "register",
    "summaries",
]
