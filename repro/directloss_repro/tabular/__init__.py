"""The no-code path: a file with columns in, a trained scorer and an honest comparison out.

reading     CSV, Parquet, NPZ and svmlight files to one table
target      the column to predict as labels 0 and 1
columns     what is wrong or suspicious about the other columns
encoding    columns to numbers, with parameters that are plain data
measures    the metrics that can be asked for
config      the numbers of a fit
running     one training run, from its description to its record
comparing   the bootstrap on held-out data
modelfile   a trained model as a file that cannot run code
session     all of it, from the request to the finished folder
predicting  scores of new rows
"""
