"""The command `waylab validate`: predictions of runs or tables, judged by what was measured."""
