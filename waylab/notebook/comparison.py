"""Two sides, for example two versions, as a data frame, text and HTML."""

from __future__ import annotations

from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from waylab.notebook.frames import frame
from waylab.runfolder.comparison import RunComparison

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = ("metric", "configuration", "ratio", "low", "high", "verdict")


class ComparedRuns:
    """The ratios candidate / baseline of `waylab compare`, with its verdict.

    `content` has everything that `compare.json` has.
    """

    def __init__(self, content: RunComparison) -> None:
        self.content = content

    @property
    def verdict(self) -> str:
        """`worse`, `no worse`, `undecided` or, with a single run on a side, `not replicated`."""
        return self.content.verdict

    @property
    def sentences(self) -> list[str]:
        """The verdict on each metric with its evidence, and what weakens the comparison."""
        return [*(one.text for one in self.content.metrics), *self.content.notes]

    @cached_property
    def frame(self) -> DataFrame:
        """One row for each metric over all configurations (`all`), and one for each configuration."""
        rows = []
        for metric in self.content.metrics:
            for name, ratio in (("all", metric.overall), *((one.name, one) for one in metric.configurations)):
                found = asdict(ratio)
                row = {"metric": metric.metric, "configuration": name, "blocks": ratio.blocks}
                row |= {key: found[key] for key in ("ratio", "low", "high", "p", "p_family")}
                rows.append(row | {"verdict": metric.verdict if name == "all" else ""})
        return frame(rows, _COLUMNS)

    def __repr__(self) -> str:
        """Return the verdict and the sentences."""
        return "\n".join([f"{self.content.name}: {self._verdict}", *(f"  {text}" for text in self.sentences)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(text)}</li>" for text in self.sentences)
        shown = self.frame[[*_COLUMNS]].to_html(index=False, na_rep="", float_format="{:.4g}".format)
        return f"<p><b>{escape(self.content.name)}: {escape(self._verdict)}</b></p>{shown}<ul>{notes}</ul>"

    @property
    def _verdict(self) -> str:
        withheld = self.content.withheld
        return f"{self.verdict} (cannot be called no worse, because {withheld})" if withheld else self.verdict
