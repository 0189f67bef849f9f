"""`environment.json`: the machine and the programs of a run, so that a stranger can judge and repeat it."""

from msgspec import Struct


class Program(Struct, frozen=True, kw_only=True):
    """One program."""

    path: str  # where it was found
    version: str | None  # what it reports with --version
    sha256: str  # hash of the file


class Source(Struct, frozen=True, kw_only=True):
    """The commit that a program was built from."""

    commit: str  # hash of the commit
    changed: bool  # whether files differ from the commit


class Environment(Struct, frozen=True, kw_only=True):
    """The machine, its system and the programs at the start of a run."""

    format: str  # waylab-environment/1
    taken_unix_s: float  # when this was read, in seconds since 1970
    waylab: str  # version of the lab
    python: str  # version of Python
    packages: dict[str, str | None]  # versions of Python packages; null for one that is not installed
    programs: dict[str, Program | None]  # programs by name; null for one that is not needed or not there
    source: Source | None  # commit of waystage, if its folder is a repository
    kernel: str  # release of the kernel
    system: str  # name of the system and architecture
    processor: str  # model of the CPU
    cores: int | None  # logical cores
    cores_physical: int | None  # physical cores
    cores_usable: int | None  # cores that the lab may use; null if the machine is unknown
    governor: str | None  # governor of the CPU's frequency
    clock_source: str | None  # clock source of the kernel
    transparent_hugepages: str | None  # setting of the kernel
    memory_bytes: int | None  # memory of the machine, in bytes; null if the machine is unknown
    virtual_machine: bool  # whether the machine is virtual
    load_average: list[float]  # over 1, 5 and 15 minutes
