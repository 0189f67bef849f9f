"""Draws random models, asks GNU Octave's package queueing about all of them in one process, and stores its answers.

Needs octave and octave-queueing (Debian), which the tests do not: they read answers.json.gz. Run it from here as
`python make_answers.py`; the models are the same every time. Knows nothing of waylab.
"""

import gzip
import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
SEED = 20260725
DELAY = -1


def draw():
    """Every model: the name of a function, what it is given, and how many of its answers are wanted."""
    rng = np.random.default_rng(SEED)
    kinds = {
        m_m_m: 90,
        m_m_m_room: 70,
        m_m_1_room: 50,
        m_m_infinite: 20,
        open_single: 130,
        open_several: 90,
        open_several_servers: 20,
        closed_mva: 150,
        closed_mva_large: 40,
        closed_rates: 70,
        closed_rates_large: 20,
        closed_convolution: 80,
        closed_convolution_large: 20,
        closed_convolution_rates: 60,
        closed_stable_rates: 40,
        chains: 180,
        chains_servers: 60,
        chains_switching: 40,
        mixed: 90,
        bounds_asymptotic: 40,
        bounds_balanced: 40,
        bounds_geometric: 60,
    }
    for kind, count in kinds.items():
        for _ in range(count):
            name, outputs, given = kind(rng)
            yield {"name": name, "outputs": outputs, "given": given, "kind": kind.__name__}


def short(values):
    """Four digits: the models are exact in JSON, and short."""
    return [float(f"{value:.3e}") for value in np.ravel(values)]


def number(rng, low, high):
    return short(np.exp(rng.uniform(np.log(low), np.log(high))))[0]


def whole(rng, low, high):
    return int(rng.integers(low, high + 1))


def times(rng, count):
    return short(np.exp(rng.uniform(np.log(0.05), np.log(5), count)))


def visits(rng, count):
    return short(rng.uniform(0.2, 3, count))


def servers(rng, count, most, delays=True):
    kinds = rng.choice(["single", "several", "delay" if delays else "single"], count, p=[0.5, 0.3, 0.2])
    kinds[rng.integers(count)] = "single"
    return [{"single": 1, "delay": DELAY, "several": whole(rng, 2, most)}[kind] for kind in kinds]


def table(rng, rows, columns, make=times):
    return [make(rng, columns) for _ in range(rows)]


def slower(rng, stations, most):
    """Service times with 1, 2, ... present: a station that speeds up with more, and may slow down again."""
    speeds = np.cumprod(rng.uniform(0.85, 1.5, (stations, most)), axis=1)
    return [short(first * row[0] / row) for first, row in zip(times(rng, stations), speeds, strict=True)]


def m_m_m(rng):
    count, service = whole(rng, 1, 64), number(rng, 0.1, 10)
    return "qsmmm", 6, [short([rng.uniform(0.05, 0.98) * count * service])[0], service, count]


def m_m_m_room(rng):
    count = whole(rng, 1, 12)
    return "qsmmmk", 6, [number(rng, 0.1, 20), number(rng, 0.5, 5), count, count + whole(rng, 0, 20)]


def m_m_1_room(rng):
    return "qsmm1k", 6, [number(rng, 0.1, 5), number(rng, 0.5, 5), whole(rng, 1, 30)]


def m_m_infinite(rng):
    return "qsmminf", 5, [number(rng, 0.1, 20), number(rng, 0.1, 5)]


def open_single(rng):
    count = whole(rng, 1, 6)
    service, ratios, hands = times(rng, count), visits(rng, count), servers(rng, count, 12)
    most = min(hand / s / v for s, v, hand in zip(service, ratios, hands, strict=True) if hand > 0)
    return "qnos", 4, [short([most * rng.uniform(0.05, 0.97)])[0], [service], [ratios], [hands]]


def open_several(rng, hands=None):
    classes, count = whole(rng, 2, 4), whole(rng, 1, 5)
    hands = hands or [DELAY if rng.random() < 0.2 else 1 for _ in range(count)]
    count = len(hands)
    service, ratios = table(rng, classes, count), table(rng, classes, count, visits)
    if max(hands) > 1:
        service = service[:1] * classes
    mix = rng.dirichlet(np.ones(classes))
    # The package counts visits per request of any class: a class's rate goes into its visits.
    ratios = [short(share * np.array(row)) for share, row in zip(mix, ratios, strict=True)]
    load = (np.array(service) * np.array(ratios)).sum(axis=0) / np.abs(hands)
    total = short([rng.uniform(0.05, 0.95) / load.max()])[0]
    rates = short(total * mix)
    return "qnom", 4, [[rates], service, ratios, [hands]]


def open_several_servers(rng):
    return open_several(rng, [1, whole(rng, 2, 5), whole(rng, 2, 8)])


def think(rng):
    return short([rng.choice([0.0, rng.uniform(0.1, 20)])])[0]


def closed_mva(rng, least=1, most=30, hands=6):
    count = whole(rng, 1, 6)
    given = [whole(rng, least, most), [times(rng, count)], [visits(rng, count)], [servers(rng, count, hands)]]
    return "qncsmva", 4, [*given, think(rng)]


def closed_mva_large(rng):
    return closed_mva(rng, 40, 120, 16)


def closed_rates(rng, least=1, most=20):
    count, clients = whole(rng, 1, 4), whole(rng, least, most)
    return "qncsmvald", 4, [clients, slower(rng, count, clients), [visits(rng, count)], think(rng)]


def closed_rates_large(rng):
    return closed_rates(rng, 30, 60)


def closed_convolution(rng, least=1, most=30):
    count = whole(rng, 2, 6)
    given = [whole(rng, least, most), [times(rng, count)], [visits(rng, count)], [servers(rng, count, 6)]]
    return "qncsconv", 4, given


def closed_convolution_large(rng):
    return closed_convolution(rng, 50, 120)


def closed_convolution_rates(rng):
    count, clients = whole(rng, 2, 4), whole(rng, 1, 20)
    return "qncsconvld", 4, [clients, slower(rng, count, clients), [visits(rng, count)]]


def closed_stable_rates(rng):
    count, clients = whole(rng, 2, 5), whole(rng, 2, 30)
    last = slower(rng, 1, clients)
    return "qncscmva", 4, [clients, [times(rng, count - 1)], last, [visits(rng, count)], think(rng)]


def populations(rng, classes):
    return [whole(rng, 1, {1: 20, 2: 14, 3: 5}[classes]) for _ in range(classes)]


def chains(rng):
    classes, count = whole(rng, 2, 3), whole(rng, 1, 5)
    hands = [DELAY if rng.random() < 0.2 else 1 for _ in range(count)]
    given = [
        [populations(rng, classes)],
        table(rng, classes, count),
        table(rng, classes, count, visits),
        [hands],
    ]
    return "qncmmva", 4, [*given, [[think(rng) for _ in range(classes)]]]


def chains_servers(rng):
    classes, count = whole(rng, 1, 3), whole(rng, 2, 4)
    given = [[populations(rng, classes)], table(rng, 1, count) * classes, table(rng, classes, count, visits)]
    return "qncmmva", 4, [*given, [servers(rng, count, 5)], [[think(rng) for _ in range(classes)]]]


def chains_switching(rng):
    """Probabilities from class and station to class and station; all above zero, so that there is one chain."""
    classes, count = 2, whole(rng, 2, 4)
    routes = rng.dirichlet(np.ones(classes * count), (count, classes)).swapaxes(0, 1)
    routes = np.round(routes.reshape(classes, count, classes, count), 4) + 1e-3
    routes /= routes.sum(axis=(2, 3), keepdims=True)
    values = {"sizes": list(routes.shape), "values": [float(x) for x in routes.ravel(order="F")]}
    return "qncmmva", 4, [[[whole(rng, 1, 8), whole(rng, 0, 5)]], table(rng, classes, count), values]


def mixed(rng):
    """Single servers only: with a delay station the package's function stops with an error."""
    closed, opened = whole(rng, 1, 2), whole(rng, 1, 2)
    classes, count = closed + opened, whole(rng, 1, 4)
    service, ratios = table(rng, classes, count), table(rng, classes, count, visits)
    rates = rng.uniform(0.1, 1, opened)
    load = (rates[:, None] * np.array(service[closed:]) * np.array(ratios[closed:])).sum(axis=0)
    rates = short(rates / load.max() * rng.uniform(0.05, 0.9))
    given = [[[0.0] * closed + rates], [populations(rng, closed) + [0] * opened], service, ratios]
    return "qnmix", 4, given


def bounds_asymptotic(rng):
    return "qncsaba", 4, singles(rng)


def bounds_balanced(rng):
    return "qncsbsb", 4, singles(rng)


def bounds_geometric(rng):
    return "qncsgb", 4, singles(rng)


def singles(rng):
    count = whole(rng, 2, 6)
    return [whole(rng, 1, 60), [times(rng, count)], [visits(rng, count)], [[1] * count], think(rng)]


def answers(models):
    """Ask Octave; for each model a list of its answers, each a list of numbers, row by row, None for no number."""
    with tempfile.TemporaryDirectory() as scratch:
        question, reply = Path(scratch, "models.json"), Path(scratch, "answers.json")
        letters = "abcdefgh"
        question.write_text(
            json.dumps(
                [{**model, "given": dict(zip(letters, model["given"], strict=False))} for model in models]
            )
        )
        command = ["octave-cli", "--no-gui", "--norc", "--no-history", str(FOLDER / "answer.m")]
        subprocess.run([*command, str(question), str(reply)], check=True)
        found = json.loads(reply.read_text())
    for model, answer in zip(models, found, strict=True):
        if "error" in answer:
            raise SystemExit(f"Octave refuses {model}: {answer['error']}")
        texts = [answer[f"o{index + 1}"].split() for index in range(model["outputs"])]
        yield [[float(text) if np.isfinite(float(text)) else None for text in numbers] for numbers in texts]


def main():
    """Draw, ask, store."""
    models = list(draw())
    content = [
        {"kind": model["kind"], "name": model["name"], "given": model["given"], "answers": answer}
        for model, answer in zip(models, answers(models), strict=True)
    ]
    text = json.dumps(content, separators=(",", ":"))
    # Without a time of writing the same models make the same file.
    (FOLDER / "answers.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name, count in Counter(model["name"] for model in models).items():
        print(f"{count:5d} {name}")
    print(f"{len(models):5d} in all")


if __name__ == "__main__":
    main()
