"""Rules that refute a hypothesis: how they are read, which are rejected before anything runs, how they are decided."""

import pytest
from made import made_trial
from msgspec import convert
from msgspec.structs import replace
from test_contrasts import made_trials

from waylab.analysis.across.answer.rules import rule_results
from waylab.cli import main
from waylab.errors import LabError
from waylab.predict.rules import median_interval, model_rules
from waylab.runfolder.prediction import MetricValues, Prediction
from waylab.runfolder.rule_words import claim_text, condition_text
from waylab.runfolder.rules import RefutationRule, hypothesis_verdict
from waylab.spec import read_spec, spec_as_dict

HEAD = 'question = "q"\nhypothesis = "h"\n'
FACTORS = "[factors]\nclients = [1, 8, 32]\nreplicas = [1, 3]\n"


def read(tmp_path, rule, rest=FACTORS):
    path = tmp_path / "x.toml"
    path.write_text(HEAD + rule + "\n" + rest)
    return read_spec(path)


def rules_of(spec):
    return convert(spec_as_dict(spec)["refuted_by"], list[RefutationRule])


def decided(tmp_path, rule, trials):
    return rule_results(rules_of(read(tmp_path, rule)), trials)


RATIO = '[[refuted_by]]\nmetric = "throughput_per_s"\nof = { replicas = 3 }\nto = { replicas = 1 }\n'


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            'refuted_by = "If it is slower."',
            "is a sentence, which no program evaluates; write [[refuted_by]] rules",
        ),
        ("", "refuted_by: is missing"),
        ("refuted_by = 3", "should be written [[refuted_by]]"),
        ("[[refuted_by]]\nabove = 1", "refuted_by[0].metric: is missing"),
        (
            '[[refuted_by]]\nmetric = "speed"\nabove = 1',
            "refuted_by[0].metric = 'speed': should be throughput_per_s",
        ),
        (
            '[[refuted_by]]\nmetric = "pop.response_mean_ns"\nabove = 1',
            "pop is no operation of this system; known: all, get, set",
        ),
        (
            RATIO.replace("3", "2") + "below = 1",
            "refuted_by[0].of[0].replicas = '2': is not a level of replicas",
        ),
        (RATIO.replace("replicas", "copies") + "below = 1", "refuted_by[0].of[0].copies: is not a factor"),
        (RATIO, "refuted_by[0]: needs below or above"),
        (RATIO + "below = 2\nabove = 1", "refuted_by[0].below = 2: must be smaller than above = 1"),
        (RATIO + "above = 0", "refuted_by[0].above = 0: must be above 0"),
        (RATIO + 'above = 1\nfactor = "replicas"', "has both factor and to"),
        (RATIO + "above = 1\nbeyond = 2", "refuted_by[0].beyond is not a key"),
        (RATIO.replace("of = { replicas = 3 }\n", "") + "above = 1", "refuted_by[0].of: is missing"),
        (
            '[[refuted_by]]\nmetric = "throughput_per_s"\nfactor = "copies"',
            "refuted_by[0].factor = 'copies': is not a factor",
        ),
        (
            '[[refuted_by]]\nmetric = "throughput_per_s"\nfactor = "replicas"',
            "only if every factor has two levels",
        ),
        (RATIO.replace("= 3 }", "= 1 }") + "above = 1", "refuted_by[0]: of and to are the same"),
        (
            RATIO + "above = 1.0\n" + RATIO + "below = 1.2",
            "refuted_by[1].below = 1.2: with refuted_by[0].above = 1, every value refutes the hypothesis",
        ),
        ('[[refuted_by]]\nmetric = "failed_trials"\nabove = 7', "refuted_by[0].above = 7: must be below 1"),
        (
            '[[refuted_by]]\nmetric = "failed_trials"\nof = { replicas = 3 }\nabove = 0.1',
            "refuted_by[0].of: must be left out, because failed_trials is the share of all trials",
        ),
        (
            '[[refuted_by]]\nmetric = "link_utilisation.server-1 sideways"\nabove = 1',
            "refuted_by[0].metric = 'link_utilisation.server-1 sideways': should be",
        ),
        (
            '[[refuted_by]]\nmetric = "throughput_per_s"\nmodel = "M/M/1"\nof = { replicas = 3 }\nabove = 0.1',
            "refuted_by[0].of: must be left out, because the error of a model is over all configurations",
        ),
        (RATIO + "above = nan", "refuted_by[0].above = nan: should be from 0"),
        ('[[refuted_by]]\nmetric = "response_p99_ns"\nmodel = "M/M/1"\nabove = 1', "models are judged by"),
    ],
)
def test_an_invalid_rule_raises_one_line_with_file_and_key(tmp_path, rule, message):
    with pytest.raises(LabError) as caught:
        read(tmp_path, rule)
    line = str(caught.value)
    assert message in line and line.startswith(str(tmp_path / "x.toml")) and "\n" not in line


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            "[design]\nexclude = [{ replicas = 3, clients = [1, 8, 32] }]\n",
            "refuted_by[0].of: selects no configuration of the design",
        ),
        (
            '[design]\nkind = "listed"\ntrials = [{ clients = 1, replicas = 1 }, { clients = 8, replicas = 3 }]\n',
            "refuted_by[0]: the design never runs both sides with the same levels",
        ),
    ],
)
def test_a_contrast_that_never_runs_raises_one_line(tmp_path, rest, message):
    with pytest.raises(LabError) as caught:
        read(tmp_path, RATIO + "below = 1", FACTORS + rest)
    assert message in str(caught.value) and "\n" not in str(caught.value)


_PROXY, _DIRECT = FACTORS, FACTORS.replace("replicas = [1, 3]\n", "") + '[system]\nkind = "direct"\n'
_MESSAGES = '[factors]\nclients = [1, 8, 32]\n[system]\nkind = "messages"\n'
_CANNED = _MESSAGES + '[system.messages]\ndispatch = "canned"\n'


@pytest.mark.parametrize(
    ("metric", "rest", "needed"),
    [
        ("commits_per_request", _PROXY, "database"),
        ("wal_bytes_per_message", _PROXY, "database"),
        ("wal_syncs_per_request", _CANNED, "database"),
        ("cpu_per_request_ns.database", _PROXY, "database"),
        ("cpu_per_request_ns.messages", _PROXY, "messages"),
        ("cpu_per_request_ns.proxy", _DIRECT, "proxy"),
        ("cpu_per_request_ns.backends", _MESSAGES, "backends"),
    ],
)
def test_a_metric_that_no_trial_measures_raises_one_line(tmp_path, metric, rest, needed):
    """It would have no value after all trials, and a stopping rule would run the most blocks."""
    rule = '[[refuted_by]]\nmetric = "{}"\nof = {{ clients = 8 }}\nto = {{ clients = 1 }}\nbelow = 1\n'
    comparison = f'[[compare]]\nfactor = "clients"\nbaseline = 1\ncandidate = 8\nmetric = "{metric}"\n'
    stopping = f'[stopping]\nprecision = 0.05\nmetrics = ["{metric}"]\n'
    for where, text in (
        (r"refuted_by\[0\].metric", rule.format(metric) + rest),
        (r"compare\[0\].metric", rule.format("throughput_per_s") + rest + comparison),
        (r"stopping.metrics\[0\]", rule.format("throughput_per_s") + rest + stopping),
    ):
        with pytest.raises(
            LabError,
            match=f"x.toml: {where} = '{metric}': no trial measures it, because it needs the role {needed}",
        ):
            read(tmp_path, text, "")


def test_a_metric_that_some_configurations_measure_is_accepted(tmp_path):
    rule = '[[refuted_by]]\nmetric = "cpu_per_request_ns.proxy"\nof = { clients = 8 }\nto = { clients = 1 }\nbelow = 1'
    both = '[factors]\nclients = [1, 8]\nkind = ["proxy", "direct"]\n'
    assert read(tmp_path, rule, both).refuted_by[0].metric == "cpu_per_request_ns.proxy"


def test_too_few_blocks_for_the_model_raise_one_line(tmp_path):
    rest = "[factors]\nreplicas = [1, 3]\n[design]\nblocks = 2\n"
    with pytest.raises(LabError) as caught:
        read(tmp_path, RATIO + "below = 1", rest)
    assert "design.blocks = 2: too few to decide this comparison of 2 configurations" in str(caught.value)
    assert "at least 3" in str(caught.value) and "\n" not in str(caught.value)
    assert read(tmp_path, RATIO + "below = 1", rest.replace("= 2\n", "= 3\n"))
    # A rule about the trials themselves needs no model.
    assert read(tmp_path, '[[refuted_by]]\nmetric = "failed_trials"\nabove = 0', rest)


def test_an_unknown_model_raises_one_line_before_anything_runs(tmp_path, capsys):
    path = tmp_path / "x.toml"
    path.write_text(HEAD + '[[refuted_by]]\nmetric = "throughput_per_s"\nmodel = "M/G/1"\nabove = 0.1\n')
    assert main(["run", str(path), "--results", str(tmp_path / "results")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"waylab: {path}: refuted_by[0].model = 'M/G/1': is not a model; known:")
    assert said.count("\n") == 1 and not (tmp_path / "results").exists()


CLAIMED = {
    "above = 1.03": "at most 1.03",
    "above = 1.3": "at most 1.3",
    "above = 1.1": "at most 1.1",
    "below = 1.3": "at least 1.3",
    "below = 0.9": "at least 0.9",
    "below = 0.9\nabove = 1.3": "between 0.9 and 1.3",
    "below = 0.9\nabove = 1.02": "between 0.9 and 1.02",
}
CONCLUDED = {
    "refuted": "The whole interval is ",
    "not refuted": "The whole interval agrees with the claim.",
    "undecided": "The interval contains the limit ",
}


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        ("above = 1.03", "refuted"),
        ("above = 1.3", "not refuted"),
        ("above = 1.1", "undecided"),
        ("below = 1.3", "refuted"),
        ("below = 0.9", "not refuted"),
        ("below = 0.9\nabove = 1.3", "not refuted"),
        ("below = 0.9\nabove = 1.02", "refuted"),
    ],
)
def test_a_ratio_is_decided_by_its_interval(tmp_path, limit, verdict):
    """The true ratio is 1.1."""
    (found,) = decided(tmp_path, RATIO + limit, made_trials(blocks=6, spread=0.02))
    assert found.verdict == verdict and found.low < 1.1 < found.high
    assert found.said.startswith(
        f"{verdict.capitalize()}: throughput with 3 replicas is {CLAIMED[limit]} times "
    )
    assert f"times that with 1 replica. Measured: {found.value:.3g} times" in found.said
    assert f"95 % interval {found.low:.3g} to {found.high:.3g}, 6 blocks" in found.said
    assert CONCLUDED[verdict] in found.said


def test_an_undecided_rule_names_the_limit_and_a_refuted_one_the_side(tmp_path):
    trials = made_trials(blocks=6, spread=0.02)
    (undecided,) = decided(tmp_path, RATIO + "above = 1.1", trials)
    assert undecided.said.endswith(
        "The interval contains the limit 1.1, so the true value may be on either side of it."
    )
    (refuted,) = decided(tmp_path, RATIO + "below = 1.3", trials)
    assert refuted.said.endswith("The whole interval is below 1.3.")


def test_an_interval_beyond_the_limit_is_not_said_to_contain_it(tmp_path):
    """A rule that is refuted alone may be undecided among ten rules; the sentence gives the reason."""
    trials = made_trials(blocks=6, spread=0.02)
    (alone,) = decided(tmp_path, RATIO + "above = 1.03", trials)
    limit = f"above = {alone.low - 1e-4}"
    (tight,) = decided(tmp_path, RATIO + limit, trials)
    assert tight.verdict == "refuted"
    several = decided(tmp_path, RATIO + limit + "\n" + (RATIO + "above = 5\n") * 9, trials)
    assert several[0].verdict == "undecided" and "Holm's adjustment" in several[0].said


def test_a_rule_names_the_levels_over_which_it_is_averaged(tmp_path):
    trials = made_trials(clients=("1", "8"), blocks=6, spread=0.02)
    (found,) = decided(tmp_path, RATIO + "above = 1.03", trials)
    assert "6 blocks, averaged over 1 and 8 clients)" in found.said


def test_a_value_is_decided_in_its_unit(tmp_path):
    rule = (
        '[[refuted_by]]\nmetric = "throughput_per_s"\nof = { clients = 1, replicas = 1 }\nabove = {limit}\n'
    )
    trials = [
        made_trial({"clients": "1", "replicas": "1"}, block, throughput_per_s=1000.0 + block).content
        for block in (1, 2, 3)
    ]
    for limit, verdict in ((900, "refuted"), (1002, "undecided"), (1100, "not refuted")):
        (found,) = decided(tmp_path, rule.replace("{limit}", str(limit)), trials)
        assert found.verdict == verdict and f"{limit:,} requests/s" in found.said
    (few,) = decided(tmp_path, rule.replace("{limit}", "900"), trials[:2])
    assert few.verdict == "undecided" and "It takes 3 blocks" in few.said


def test_a_rule_about_trials_needs_no_test(tmp_path):
    rule = '[[refuted_by]]\nmetric = "failed_trials"\nabove = 0\n'
    good = [made_trial({"clients": "1"}, block).content for block in (1, 2)]
    bad = made_trial({"clients": "1"}, 3, used=False).content
    (found,) = decided(tmp_path, rule, good)
    assert found.verdict == "not refuted" and "0 of 2 trials" in found.said
    (found,) = decided(tmp_path, rule, [*good, bad])
    assert found.verdict == "refuted" and found.value == pytest.approx(1 / 3)
    (found,) = decided(tmp_path, rule.replace("failed", "unsteady"), good)
    assert found.verdict == "undecided" and "No trial is long enough" in found.said


def test_the_largest_effect_is_decided_by_the_difference_of_two_effects(tmp_path):
    factors = "[factors]\nclients = [1, 8]\nreplicas = [1, 3]\n"
    trials = made_trials(clients=("1", "8"), blocks=4, spread=0.02)
    verdicts = {}
    for factor in ("clients", "replicas"):
        rule = f'[[refuted_by]]\nmetric = "throughput_per_s"\nfactor = "{factor}"\n'
        (found,) = rule_results(rules_of(read(tmp_path, rule, factors)), trials)
        verdicts[factor] = found.verdict
        assert "2.8" in found.said and "1.1" in found.said
    assert verdicts == {"clients": "not refuted", "replicas": "refuted"}


def test_several_rules_are_adjusted_for_their_number(tmp_path):
    """One rule alone refutes at p just below 2.5 %; among nine others it does not."""
    trials = made_trials(blocks=6, spread=0.02)
    (alone,) = decided(tmp_path, RATIO + "above = 1.03", trials)
    many = decided(tmp_path, RATIO + "above = 1.03\n" + (RATIO + "above = 5\n") * 9, trials)
    assert many[0].p == pytest.approx(10 * alone.p)


def test_a_rule_without_data_is_undecided(tmp_path):
    (found,) = decided(tmp_path, RATIO + "above = 1.03", [])
    assert found.verdict == "undecided" and found.value is None and "No pair of trials" in found.said
    assert hypothesis_verdict([found]) == "undecided"


def made_prediction(error):
    return Prediction(
        model="m",
        configuration="c",
        x=1.0,
        series="all",
        role="",
        applies=True,
        reason=None,
        source=None,
        parameters=None,
        measured=MetricValues(),
        predicted=None,
        error=MetricValues(throughput_per_s=error),
    )


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.005, "refuted"), (0.05, "not refuted"), (0.021, "undecided")]
)
def test_a_model_is_judged_by_the_median_of_its_errors(limit, verdict):
    rule = RefutationRule(
        text="t",
        kind="model",
        metric="throughput_per_s",
        of={},
        to={},
        factor="",
        model="m",
        below=None,
        above=limit,
    )
    entries = [made_prediction(0.001 * step) for step in range(11, 32)]
    (found,) = model_rules([rule], entries)
    assert found.verdict == verdict and found.value == pytest.approx(0.021) and found.blocks == 21


def test_the_interval_of_a_median_is_that_of_the_order_statistics():
    """David and Nagaraja, 7.1: for ten values the second and the ninth, with a level of 97.9 %."""
    assert median_interval(list(range(1, 11))) == (2, 9)
    assert median_interval([1, 2, 3, 4, 5]) == (None, None) and median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)


def test_a_block_without_a_configuration_does_not_change_a_value(tmp_path):
    """The mean of an incomplete block is over fewer configurations: here 2.2 times that of a complete block."""
    rule = '[[refuted_by]]\nmetric = "throughput_per_s"\nof = { replicas = 1 }\nabove = 3500\n'
    trials = made_trials(blocks=5)
    whole = [trial for trial in trials if trial.block not in (2, 4)]
    lost = [
        replace(trial, used=trial.block not in (2, 4) or trial.levels["clients"] != "1") for trial in trials
    ]
    (expected,), (found,) = decided(tmp_path, rule, whole), decided(tmp_path, rule, lost)
    assert (found.value, found.low, found.high, found.blocks) == (
        expected.value,
        expected.low,
        expected.high,
        3,
    )
    never = [
        replace(trial, used=trial.levels["clients"] == ("1" if trial.block % 2 else "8")) for trial in trials
    ]
    (found,) = decided(tmp_path, rule, never)
    assert found.verdict == "undecided" and "block has a used trial of each" in found.said


@pytest.mark.parametrize(
    ("rule", "condition", "claim"),
    [
        (
            RATIO + "above = 1.25",
            "throughput with 3 replicas is more than 1.25 times that with 1 replica",
            "throughput with 3 replicas is at most 1.25 times that with 1 replica",
        ),
        (
            '[[refuted_by]]\nmetric = "response_p99_ns"\nabove = 2e6',
            "99th percentile of the response time is more than 2 ms",
            "99th percentile of the response time is at most 2 ms",
        ),
        (
            '[[refuted_by]]\nmetric = "failed_trials"\nabove = 0.1',
            "the share of trials that failed a gate is more than 10 %",
            "the share of trials that failed a gate is at most 10 %",
        ),
    ],
)
def test_a_condition_and_its_claim_have_the_same_words(tmp_path, rule, condition, claim):
    (found,) = rules_of(read(tmp_path, rule))
    assert found.text == condition_text(found) == condition
    assert claim_text(found) == claim
