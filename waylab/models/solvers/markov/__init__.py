"""The Markov chain of all states of a small network: the exact reference for approximations."""
