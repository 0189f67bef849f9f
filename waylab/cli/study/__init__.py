"""The command `waylab study`: all experiments of a published study."""
