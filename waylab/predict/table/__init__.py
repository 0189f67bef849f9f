"""The judge of models on tables: held-out cells, the choice of a model, and intervals."""
