"""The testbed `netns`: hosts emulated on this machine, each with its own link and CPU quota. Needs root."""

from waylab.testbed.netns.testbed import NetnsTestbed

__all__ = ["NetnsTestbed"]
