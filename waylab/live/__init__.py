"""The page of a run while it runs (`waylab run --live`): a process of its own that serves it on this machine only.

The process reads the run folder and what the lab writes to its standard input. It computes nothing that a report shows.
"""
