"""Tasks: one file per family of inference and loss-augmented inference.

`names()` lists what can be asked for by name, `get(name)` makes the object that a name stands for.
"""

from directloss.task import Task, get, names, register, summaries
from directloss.tasks.assignment import Assignment
from directloss.tasks.chain import Chain
from directloss.tasks.graded import GradedNDCG, GradedRanking
from directloss.tasks.paths import GridPath, ShortestPath
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
from directloss.tasks.solver import Decomposable, SolverTask

register("ap", AveragePrecision, "average precision of a ranking")
register("ndcg", NDCG, "normalised discounted cumulative gain, binary gains; ndcg@k for the first k ranks")
register("dcg", DCG, "discounted cumulative gain, binary gains; dcg@k for the first k ranks")
register("mrr", ReciprocalRank, "one over the rank of the first relevant item")
register("auc", AUC, "area under the ROC curve")
register("pauc", PartialAUC, "area under the ROC curve up to a false positive rate: pauc@0.1")
register("graded_ndcg", GradedNDCG, "NDCG with graded relevance, gains 2^grade - 1; graded_ndcg@k for the first k")
register("assignment", Assignment, "each row gets a column of its own; the share of rows with a wrong one")
register("chain", Chain, "one label for each position of a sequence; the share of wrong labels")

__all__ = [
    "AUC",
    "DCG",
    "NDCG",
    "Assignment",
    "AveragePrecision",
    "Chain",
    "Decomposable",
    "GradedNDCG",
    "GradedRanking",
    "GridPath",
    "PartialAUC",
    "PositionTask",
    "PrecisionAtK",
    "Ranking",
    "RankingTask",
    "RecallAtK",
    "ReciprocalRank",
    "ShortestPath",
    "SolverTask",
    "Task",
    "get",
    "names",
    "register",
    "summaries",
]
