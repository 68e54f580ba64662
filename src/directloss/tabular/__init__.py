"""From a table to a model without code: the work behind `directloss fit` and `directloss predict` (extra ``fit``).

reading     CSV, Parquet, NPZ and svmlight files as batches of rows
columns     what each column holds, and what looks suspicious
target      the column to predict, as label indices
encoding    columns as numbers, with parameters that are plain data
store       all rows in compact form, in memory or in a file
measures    the metrics on offer
split       training, validation and test rows
search      hyperparameter search for the networks, with optuna
baselines   the models a practitioner would use instead
comparison  confidence intervals on the test rows, and who wins
model       a trained model and its file
planning    from the request to a checked plan
session     from the plan to the finished folder
report      the HTML page and the tables
files       atomic file writes
"""
