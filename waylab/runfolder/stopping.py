"""`stopping.json`: the decisions of a stopping rule, one after each block."""

from msgspec import Struct


class StoppingRuleSettings(Struct, frozen=True, kw_only=True):
    """The rule as the specification has it."""

    precision: float  # largest half-width of an interval, as a share of the mean
    metrics: list[str]  # metrics that must be precise enough
    blocks_min: int  # first block after which the run may end
    blocks_max: int  # last block
    budget_s: float  # time for all trials in seconds; 0 for no limit


class BlockDecision(Struct, frozen=True, kw_only=True):
    """Whether a run goes on after a block, and why."""

    stop: bool  # whether the run ends
    kind: str  # precision, maximum, budget or continue
    reason: str  # the decision in words
    blocks: int  # number of whole blocks that were considered
    widths: dict[str, float | None]  # relative half-width of each metric; null where there is none yet
    blocks_expected: int | None  # forecast of the number of blocks
    block: int  # number of the block after which this was decided
    elapsed_s: float = 0.0  # duration of the trials so far, in seconds
    left_out: list[str] = []  # configurations that were not considered, with the reason


class Stopping(Struct, frozen=True, kw_only=True):
    """The last decision of a stopping rule, and all before it."""

    format: str  # waylab-stopping/1
    rule: StoppingRuleSettings  # the rule
    stop: bool  # whether the run ended
    kind: str  # kind of the last decision
    reason: str  # the last decision in words
    block: int  # number of the block after which it was made
    decisions: list[BlockDecision]  # all decisions in order
