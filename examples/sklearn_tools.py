"""scikit-learn: cross-validation, grid search and ranking with estimators that train on the metric.

python examples/sklearn_tools.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from directloss.integrations.sklearn import DirectLossClassifier, DirectLossRanker


def main() -> None:
    """Compare with logistic regression, search over metrics, and rank lists."""
    X, y = load_breast_cancer(return_X_y=True)
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    for name, estimator in (("logistic", logistic), ("direct", DirectLossClassifier("ap", random_state=0))):
        print(f"{name} AP {cross_val_score(estimator, X, y, scoring='average_precision', cv=3).mean():.3f}")

    search = GridSearchCV(DirectLossClassifier(random_state=0), {"metric": ["ap", "f1"]}, scoring="f1", cv=3)
    print(f"best metric to train for F1: {search.fit(X, y).best_params_['metric']}, F1 {search.best_score_:.3f}")

    draw = np.random.default_rng(0)
    items, query = draw.normal(size=(600, 5)), np.arange(600) // 10
    grades = np.clip(np.round(items[:, 0] + 0.5 * draw.normal(size=600)), 0, 3)
    ranker = DirectLossRanker("ndcg@5", random_state=0).fit(items[:400], grades[:400], qid=query[:400])
    print(f"ranker NDCG@5 {ranker.score(items[400:], grades[400:], qid=query[400:]):.3f}")


if __name__ == "__main__":
    main()
