"""From a table to a model without code: what `directloss fit` and `directloss predict` do. Needs the extra ``fit``.

reading     CSV, Parquet, NPZ and svmlight files to batches of rows
columns     what the columns hold, and what is suspicious about them
target      the column to predict as labels 0 and 1
encoding    columns to numbers, with parameters that are plain data
store       all rows in compact form, in memory or in a file
measures    the metrics that can be asked for
split       training, validation and test rows
search      settings of the networks, tried by optuna
baselines   what a practitioner would use instead
comparison  intervals on the test rows, and who wins
model       a trained model, and its file
planning    from the request to a plan, which has been checked
session     from the plan to the finished folder
report      the page and the tables
files       files that are written as a whole or not at all
"""
