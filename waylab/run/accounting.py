"""Detects whether the kernel counts interrupts and steal time as CPU time of a process."""

import gzip
import platform
from pathlib import Path

from waylab.runfolder.trial import CpuAccounting

# It exists only if the kernel measures interrupts by themselves.
_INTERRUPT_PRESSURE = "proc/pressure/irq"
_CONFIGURATIONS = ("proc/config.gz", "boot/config-{release}")


# Of other machines.
UNKNOWN_ACCOUNTING = CpuAccounting(interrupts_in_processes=None, steal_in_processes=None)


def cpu_accounting(root: Path = Path("/")) -> CpuAccounting:
    """Read the kernel's options; an option that cannot be read is None. `root` is for tests.

    The scheduler's clock leaves out interrupts with CONFIG_IRQ_TIME_ACCOUNTING, and steal time with
    CONFIG_PARAVIRT_TIME_ACCOUNTING (kernel/sched/core.c, update_rq_clock_task). CPU times of processes are in this
    clock. The columns of /proc/stat always keep the two apart.
    """
    options = _options(root)
    apart = (root / _INTERRUPT_PRESSURE).exists() or _option(options, "CONFIG_IRQ_TIME_ACCOUNTING")
    steal_apart = _option(options, "CONFIG_PARAVIRT_TIME_ACCOUNTING")
    return CpuAccounting(
        interrupts_in_processes=None if apart is None else not apart,
        steal_in_processes=None if steal_apart is None else not steal_apart,
    )


def _option(options: str | None, name: str) -> bool | None:
    return None if options is None else f"{name}=y" in options.splitlines()


def _options(root: Path) -> str | None:
    for name in _CONFIGURATIONS:
        path = root / name.format(release=platform.release())
        try:
            content = path.read_bytes()
            return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("ascii", "replace")
        except (OSError, EOFError):
            continue
    return None
