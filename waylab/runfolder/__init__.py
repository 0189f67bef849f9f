"""The run folder: the names, types and formats of its files. The bottom of the lab: every other package may import it.

The running and the analysing half of the lab share nothing else. It must not know how any number is made.
"""
