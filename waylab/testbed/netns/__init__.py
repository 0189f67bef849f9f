"""The testbed `netns`: hosts emulated on this machine, with links and processors of their own. Needs root."""

from waylab.testbed.netns.testbed import NetnsTestbed

__all__ = ["NetnsTestbed"]
