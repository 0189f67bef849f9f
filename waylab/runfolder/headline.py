"""The part of `analysis.json` that answers first: what happened along the figures, and what limits the system."""

from msgspec import Struct, field


class ResourceUse(Struct, frozen=True, kw_only=True):
    """How busy one resource was, on average over the trials of a configuration."""

    name: str  # the resource in words, for example "CPU of the machine"
    share: float  # share of its capacity that was used


class Headline(Struct, frozen=True, kw_only=True):
    """The answer of a run in sentences, and the utilisations behind the last one."""

    sentences: list[str] = field(default_factory=list)  # empty if no trial was used
    warnings: list[str] = field(
        default_factory=list
    )  # warnings that precede the answer, such as a busy machine
    busiest: str | None = None  # configuration with the highest throughput; null if no trial was used
    limit: str | None = None  # the resource that limits it; null if none of those measured does
    longest_stage: str | None = None  # the stage in which its requests spend most time; null without records
    utilisation: dict[str, list[ResourceUse]] = field(default_factory=dict)  # by configuration, busiest first
