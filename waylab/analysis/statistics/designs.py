"""Designs of factors with two levels: all combinations, or a fraction of them with what it confounds.

Signs come from pyDOE; orders of runs are drawn in `waylab.plan`.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from waylab.errors import LabError

Array = NDArray[np.float64]

_FACTORS_MAX = 16


@dataclass(frozen=True, eq=False)
class TwoLevelPlan:
    """A 2^(k-p) design: signs of shape (runs, factors), each -1 or +1.

    `words` is the defining relation, each word the factors whose product is always +1 (or -1, with the sign given in
    `word_signs`); `resolution` the length of the shortest, None for a full design. `aliases` groups the effects, up
    to `order` factors, that no measurement of this design can tell apart, first the one with fewest factors.
    """

    factors: tuple[str, ...]
    signs: Array
    words: tuple[tuple[str, ...], ...]
    word_signs: tuple[int, ...]
    resolution: int | None
    aliases: tuple[tuple[str, ...], ...]

    @property
    def estimable(self) -> list[tuple[str, ...]]:
        """One effect for each group, the one with fewest factors: the `words` for `two_level_effects`."""
        return [tuple(group[0].split(" x ")) for group in self.aliases]


def two_level_plan(
    factors: Sequence[str], generators: Sequence[str] = (), order: int | None = None
) -> TwoLevelPlan:
    """Make the 2^(k-p) design of k named factors with p generators, say `["D=ABC"]`; A is the first factor.

    A generator sets the signs of a late factor to a product of earlier ones, with a minus for the opposite fraction
    (`E=-ABC`). Without any it is the full 2^k design, the first factor varying slowest. Confounding follows from the
    defining relation: all products of the words I = ABCD and so on (Jain, chapter 19; Box, Hunter and Hunter 1978).

    Raises:
        LabError: for factors that are none or too many or the same, and generators that make no design.
    """
    names = tuple(factors)
    if not 1 <= len(names) <= _FACTORS_MAX or len(set(names)) != len(names):
        raise LabError(
            f"design: needs 1 to {_FACTORS_MAX} different factors, not {len(names)}: {', '.join(names)}"
        )
    made = dict(_generator(text, len(names)) for text in generators)
    if len(made) != len(generators):
        raise LabError("design: two generators make the same factor")
    base = [number for number in range(len(names)) if number not in made]
    for number, (product, _) in made.items():
        later = sorted(set(product) - set(base))
        if later:
            letters = ", ".join(string.ascii_uppercase[index] for index in later)
            raise LabError(
                f"design: the generator of {string.ascii_uppercase[number]} uses {letters}, which is itself made"
            )
    # It loads all of its designs, which takes a second.
    from pydoe import fracfact  # noqa: PLC0415

    letter = {number: string.ascii_lowercase[place] for place, number in enumerate(base)}
    terms = []
    for number in range(len(names)):
        if number in made:
            product, sign = made[number]
            terms.append(("-" if sign < 0 else "") + "".join(letter[index] for index in product))
        else:
            terms.append(letter[number])
    # pyDOE wants base factors first; the columns are put back in order afterwards.
    sequence = base + [number for number in range(len(names)) if number in made]
    signs = np.asarray(fracfact(" ".join(terms[number] for number in sequence)), dtype=float)
    signs = signs[:, np.argsort(sequence)]
    relation = _relation(made)
    words = sorted(relation, key=lambda word: (len(word), sorted(word)))
    return TwoLevelPlan(
        names,
        signs,
        tuple(tuple(names[index] for index in sorted(word)) for word in words),
        tuple(relation[word] for word in words),
        min((len(word) for word in words), default=None),
        _aliases(names, relation, order or len(names)),
    )


def _generator(text: str, count: int) -> tuple[int, tuple[tuple[int, ...], int]]:
    made, _, product = text.replace(" ", "").upper().partition("=")
    sign = -1 if product.startswith("-") else 1
    letters = product.lstrip("+-")
    known = string.ascii_uppercase[:count]
    if len(made) != 1 or made not in known or len(letters) < 2 or not set(letters) <= set(known) - {made}:
        raise LabError(
            f"design: generator {text!r} must read like D=ABC, with letters {known[0]} to {known[-1]}"
        )
    if len(set(letters)) != len(letters):
        raise LabError(f"design: generator {text!r} names a factor twice")
    return known.index(made), (tuple(sorted(known.index(one) for one in letters)), sign)


def _relation(made: dict[int, tuple[tuple[int, ...], int]]) -> dict[frozenset[int], int]:
    """All products of the generators' words, with the sign of each."""
    relation: dict[frozenset[int], int] = {frozenset(): 1}
    for number, (product, sign) in made.items():
        word = frozenset((*product, number))
        relation |= {known ^ word: known_sign * sign for known, known_sign in relation.items()}
    relation.pop(frozenset())
    return relation


def _aliases(
    names: tuple[str, ...], relation: dict[frozenset[int], int], order: int
) -> tuple[tuple[str, ...], ...]:
    seen: set[frozenset[int]] = set()
    groups = []
    for size in range(1, min(order, len(names)) + 1):
        for chosen in combinations(range(len(names)), size):
            effect = frozenset(chosen)
            if effect in seen or effect in relation:
                continue
            group = [(effect, 1), *((effect ^ word, sign) for word, sign in relation.items())]
            seen |= {member for member, _ in group}
            group.sort(key=lambda member: (len(member[0]), sorted(member[0])))
            first_sign = group[0][1]
            groups.append(
                tuple(
                    ("-" if sign != first_sign else "") + " x ".join(names[index] for index in sorted(member))
                    for member, sign in group
                    if len(member) <= order
                )
            )
    return tuple(groups)
