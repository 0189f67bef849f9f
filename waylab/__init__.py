"""The lab of Waystage: it runs experiments on a memcached proxy, analyses the stage times and reports."""

__version__ = "0.1.0"
