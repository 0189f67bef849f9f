"""`waylab import`: arguments apart from the code that runs, so that `--help` is quick."""
