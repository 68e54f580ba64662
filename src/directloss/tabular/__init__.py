"""From a table to a model without code: the work behind `directloss fit` and `directloss predict` (extra ``fit``).

reading     CSV and Parquet files as batches of rows, and a random sample that fits into memory
columns     what each column holds: numbers, categories or dates; and what looks suspicious
target      the column to predict, as label indices
encoding    columns as standardised numbers, with parameters that are plain data
measures    the metrics on offer, their thresholds, and their correction for wrong labels
methods     the networks and the models they are compared with, and how each is trained
comparison  confidence intervals on the test rows
model       a trained model and its file
fitting     from the request to the finished folder
report      the verdict, the HTML page and the tables
files       atomic file writes
"""
