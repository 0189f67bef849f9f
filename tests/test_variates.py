"""Compares the output of `waystage variates` with the distributions of scipy. Fixed seeds make the outcome constant."""

import subprocess

import numpy as np
import pytest
from programs import WAYSTAGE
from scipy import stats

DRAWS = 20_000
KEYS = 1000
# With fixed seeds a right distribution is either always or never below this; a wrong one is far below.
LEAST_P = 1e-3

# The specification, and the same distribution in scipy. The shape of its GEV has the other sign.
CONTINUOUS = {
    "uniform:10:20": stats.uniform(10, 10),
    "normal:100:15": stats.norm(100, 15),
    "lognormal:300:0.8": stats.lognorm(0.8, scale=300),
    "exp:50": stats.expon(scale=50),
    "exponential:0.5": stats.expon(scale=0.5),
    "pareto:15:214.476:0.348238": stats.genpareto(0.348238, 15, 214.476),
    "pareto:1:2:-0.3": stats.genpareto(-0.3, 1, 2),
    "pareto:-1:2:0": stats.genpareto(0, -1, 2),
    "pareto:0:1:0.9": stats.genpareto(0.9, 0, 1),
    "gev:30:8:0.2": stats.genextreme(-0.2, 30, 8),
    "gev:30:8:-0.2": stats.genextreme(0.2, 30, 8),
    "gev:30:8:0": stats.genextreme(0, 30, 8),
    "fb_key": stats.genextreme(-0.078688, 30.7984, 8.20449),
    "fb_ia": stats.genpareto(0.154971, 0, 16.0292),
}
HEAD = [0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606]
HEAD += [0.00023, 0.00837, 0.00837, 0.08989, 0.00092, 0.00326, 0.01980]
TAIL = stats.genpareto(0.348238, 15, 214.476)


def run(*arguments):
    """Run the program until it exits."""
    return subprocess.run(
        [WAYSTAGE, "variates", *map(str, arguments)], check=False, capture_output=True, text=True, timeout=60
    )


def draw(*arguments, count=DRAWS, seed=1):
    """Return the variates as an array."""
    done = run("--count", count, "--seed", seed, *arguments)
    assert done.returncode == 0, done.stderr
    values = np.array(done.stdout.split(), dtype=float)
    assert len(values) == count
    return values


def describe(*arguments):
    """Return the rows of a description by name."""
    done = run("--describe", *arguments)
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[2:])


def weights(count, exponent):
    """The sum of k^-exponent over k = 1 ... count: the first million exactly, the rest by the midpoint rule."""
    first = min(count, 1_000_000)
    total = (np.arange(1, first + 1, dtype=float) ** -exponent).sum()
    if count > first:
        ends = np.array([first + 0.5, count + 0.5])
        area = np.log(ends) if exponent == 1 else ends ** (1 - exponent) / (1 - exponent)
        total += area[1] - area[0]
    return total


def chi_square_p(values, shares, edges=None):
    """The p value of whole numbers from 0 against their shares; or of cells that end before `edges`."""
    edges = np.arange(len(shares) + 1) if edges is None else edges
    counts = np.histogram(values, edges)[0].astype(float)
    assert counts.sum() == len(values), "outside all cells"
    expected = np.asarray(shares) * len(values)
    # Cells with few expected values are merged with adjacent ones.
    cells = np.minimum(np.cumsum(expected) // 10, np.sum(expected) // 10 - 1).astype(int)
    counts, expected = np.bincount(cells, counts), np.bincount(cells, expected)
    used = expected > 0
    return stats.chisquare(counts[used], expected[used] * counts.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("spec", CONTINUOUS)
def test_variates_follow_their_distribution(spec):
    assert stats.kstest(draw(spec), CONTINUOUS[spec].cdf).pvalue > LEAST_P


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ("gev:30:8:0.2", stats.genextreme(0.2, 30, 8)),
        ("pareto:15:214.476:0.348238", stats.genpareto(0.28, 15, 214.476)),
        ("lognormal:300:0.8", stats.lognorm(0.85, scale=300)),
        ("exp:50", stats.expon(scale=52)),
    ],
)
def test_a_wrong_distribution_fails_the_test(spec, wrong):
    assert stats.kstest(draw(spec), wrong.cdf).pvalue < LEAST_P


@pytest.mark.parametrize("spec", CONTINUOUS)
def test_describe_prints_the_quantiles_and_the_mean(spec):
    rows = describe(spec)
    printed = {float(name[1:]): float(row) for name, row in rows.items() if name[0] == "p"}
    assert list(printed) == [1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9]
    for percent, value in printed.items():
        assert value == pytest.approx(CONTINUOUS[spec].ppf(percent / 100), rel=1e-5)
    assert float(rows["mean"]) == pytest.approx(CONTINUOUS[spec].mean(), rel=1e-5)


def test_value_sizes_follow_the_table_and_its_tail():
    sizes = draw("fb_value", "--unit", "bytes")
    small = sizes[sizes < 15]
    assert chi_square_p(np.minimum(sizes, 15), [*HEAD, 1 - sum(HEAD)]) > LEAST_P
    assert (small == small.astype(int)).all()
    assert stats.kstest(sizes[sizes >= 15], TAIL.cdf).pvalue > LEAST_P
    mean = sum(size * share for size, share in enumerate(HEAD)) + (1 - sum(HEAD)) * TAIL.mean()
    assert describe("fb_value")["mean"] == f"{mean:.3f}"


def test_times_are_in_nanoseconds():
    assert stats.kstest(draw("exp:1ms", "--unit", "time"), stats.expon(scale=1e6).cdf).pvalue > LEAST_P
    gaps = draw("fb_ia", "--unit", "time")
    assert stats.kstest(gaps, stats.genpareto(0.154971, 0, 16029.2).cdf).pvalue > LEAST_P
    assert describe("--unit", "time", "fixed:1500us")["mean"] == "1.5 ms"


def test_lists_follow_their_weights():
    values = draw("list:4k:0.2,100:0.5,1000:0.3", "--unit", "bytes")
    numbers = {100: 0, 1000: 1, 4096: 2}
    assert chi_square_p([numbers[value] for value in values], [0.5, 0.3, 0.2]) > LEAST_P


@pytest.mark.parametrize("exponent", [0, 0.5, 0.99, 1, 1.0001, 1.2, 2, 3])
def test_ranks_follow_zipf(exponent):
    ranks = draw("--keys", KEYS, "--pattern", f"zipf:{exponent}", "--ranks")
    shares = (
        stats.zipfian(exponent, KEYS).pmf(np.arange(1, KEYS + 1)) if exponent else np.full(KEYS, 1 / KEYS)
    )
    assert chi_square_p(ranks, shares) > LEAST_P
    wrong = np.arange(1, KEYS + 1) ** -(exponent + 0.2)
    assert chi_square_p(ranks, wrong / wrong.sum()) < LEAST_P


@pytest.mark.parametrize("exponent", [0.5, 0.99, 1, 1.2])
def test_ranks_follow_zipf_among_very_many_keys(exponent):
    keys = 2**27
    ranks = draw("--keys", keys, "--pattern", f"zipf:{exponent}", "--ranks")
    edges = np.unique(np.append((2 ** np.arange(0, 27, 0.5)).astype(int) - 1, keys))
    sums = np.array([weights(edge, exponent) if edge else 0 for edge in edges])
    assert chi_square_p(ranks, np.diff(sums) / sums[-1], edges) > LEAST_P


def test_ranks_are_scattered_over_the_keys_in_the_same_way_every_time():
    arguments = ("--keys", KEYS, "--pattern", "zipf:0.99")
    pairs = set()
    for seed in (1, 2):
        pairs |= set(zip(draw(*arguments, "--ranks", seed=seed), draw(*arguments, seed=seed), strict=True))
    ranks, keys = map(set, zip(*pairs, strict=True))
    assert len(ranks) == len(keys) == len(pairs)
    popular = [key for rank, key in sorted(pairs)[:100]]
    assert 0.3 < np.mean(np.array(popular) < KEYS / 2) < 0.7
    assert np.mean(np.abs(np.diff(popular)) == 1) < 0.05


@pytest.mark.parametrize(
    ("pattern", "centre", "deviation"),
    [
        ("gaussian", KEYS / 2, (KEYS - 1) / 6),
        ("G", KEYS / 2, (KEYS - 1) / 6),
        ("gaussian:100:80", 100.5, 80),
        ("gaussian:999:5000", 999.5, 5000),
    ],
)
def test_gaussian_keys_follow_a_truncated_normal(pattern, centre, deviation):
    keys = draw("--keys", KEYS, "--pattern", pattern)
    normal = stats.truncnorm(-centre / deviation, (KEYS - centre) / deviation, centre, deviation)
    assert chi_square_p(keys, np.diff(normal.cdf(np.arange(KEYS + 1)))) > LEAST_P


def test_hot_uniform_and_sequential_keys():
    ranks = draw("--keys", KEYS, "--pattern", "hot:0.1:0.9", "--ranks")
    assert chi_square_p(ranks, [0.9 / 100] * 100 + [0.1 / 900] * 900) > LEAST_P
    assert chi_square_p(draw("--keys", KEYS, "--pattern", "uniform"), [1 / KEYS] * KEYS) > LEAST_P
    assert list(draw("--keys", 3, "--pattern", "sequential", count=7)) == [0, 1, 2, 0, 1, 2, 0]


def test_describe_prints_the_shares_of_popular_keys():
    printed = run("--describe", "--keys", 2**27, "--pattern", "zipf:0.99").stdout.splitlines()
    shares = {int(line.split()[0]): float(line.split(": ")[1].split()[0]) for line in printed[2:-1]}
    assert list(shares) == [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 2**27]
    for top, share in shares.items():
        assert share == pytest.approx(weights(top, 0.99) / weights(2**27, 0.99), abs=1e-6)


def test_the_same_seed_gives_the_same_values():
    assert list(draw("fb_value", count=50)) == list(draw("fb_value", count=50))
    assert list(draw("fb_value", count=50)) != list(draw("fb_value", count=50, seed=2))


def test_a_reader_may_close_the_pipe_early():
    command = [WAYSTAGE, "variates", "exp:1", "--count", "1000000000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert float(program.stdout.readline()) > 0
        program.stdout.close()
        assert program.wait(timeout=60) == 0
        assert program.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["pareto:1:2"], "wanted LOCATION:SCALE:SHAPE, not 2 values; for example pareto:1:10:0.3"),
        (["normal:1ms:-1ms", "--unit", "time"], "DEVIATION"),
        (["gev:0:1:nan"], "SHAPE"),
        (["exp:inf"], "MEAN"),
        (["list:"], "the list is empty"),
        (["fb_ia", "--unit", "bytes"], "it draws times"),
        (["weibull:1"], "is none of fixed,"),
        (["exp:1", "--unit", "hours"], "hours"),
        (["exp:1", "--count", "many"], "many"),
        (["exp:1", "--keys", "3", "--pattern", "R"], "SPEC"),
        (["--keys", "10"], "--pattern"),
        (["--keys", "0", "--pattern", "zipf:1"], "cannot be drawn from 0 keys"),
        (["--keys", "10", "--pattern", "gaussian:10:1"], "CENTRE 10 is above the last"),
        (["--keys", "10", "--pattern", "zipf:-1"], "EXPONENT -1 is below 0"),
        (["--keys", "10", "--pattern", "uniform", "--ranks"], "no ranks in uniform"),
        ([], "SPEC"),
    ],
)
def test_invalid_input_raises_one_line(arguments, part):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("waystage: ") and done.stderr.count("\n") == 1
    assert part in done.stderr
