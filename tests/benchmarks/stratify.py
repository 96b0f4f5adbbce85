"""How far splits are from their shares, beside scikit-learn's StratifiedGroupKFold.

    python -m tests.benchmarks.stratify [--corpora 1000] [--folder CORPORA/fsdd]

Each corpus is made up at random: its groups, their classes and examples, the number of
splits and their shares. scikit-learn makes folds of equal size, so shares are several
folds together. It is not a dependency; install it for this benchmark.

The distance of a class in a split from its share is |examples / all of the class -
share|. The table has the mean over corpora of its mean and of its maximum; of the plain
hash, of what moves groups, and of scikit-learn. Of corpora with few groups, all ways to
fill the splits are tried, too: none is nearer to the shares than the best of them.
"""

import argparse
import itertools
import os
import random
import statistics
import time
import warnings
from collections import Counter, defaultdict

from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.planning.balance import balance, tally_groups
from beam_pipeline.planning.clips import Clip
from beam_pipeline.recipe.recipe import Recipe

UNITS = (
    {"train": 8, "eval": 1, "test": 1},
    {"train": 3, "eval": 1, "test": 1},
    {"train": 4, "test": 1},
    {"a": 1, "b": 1},
    {f"fold{k}": 1 for k in range(5)},
)
MOST_WAYS = 70_000
WAYS = ("hash", "stratify", "scikit-learn")


def random_corpus(seed):
    """Returns (group, class, examples) of clips, and the folds of each split."""
    rng = random.Random(seed)
    groups = rng.choice([rng.randint(2, 12), rng.randint(10, 60), rng.randint(40, 300)])
    classes = rng.choice([1, 2, 3, 5, 10, 30])
    of_group, skew = rng.choice(["one", "some", "all"]), rng.choice([0, 1, 2])
    sizes = rng.choice(["one", "few", "heavy"])
    weights = [1 / (k + 1) ** skew for k in range(classes)]
    clips = []
    for group in range(groups):
        several = 1 if of_group == "one" else rng.randint(1, 6)
        held = rng.choices(range(classes), weights, k=several)
        for label in range(classes) if of_group == "all" else held:
            heavy = int(rng.paretovariate(1.1)) % 50 + 1
            examples = {"one": 1, "few": rng.randint(1, 5), "heavy": heavy}[sizes]
            clips.append((f"g{group}", f"c{label}", examples))
    return clips, rng.choice(UNITS)


def by_hash(clips, units):
    splitter = Splitter(shares_of(units))
    return {g: splitter.split_of(group_key(0, g)) for g, _, _ in clips}


def by_stratify(clips, units):
    recipe = Recipe(win_len=1, splits=shares_of(units), stratify=True)
    made = [
        Clip(0, 0, "", label, "", 1, 1, 1, "", "", 1, 1, n, group=group)
        for group, label, n in clips
    ]
    splitter = Splitter(shares_of(units))
    moved = balance(tally_groups([made], recipe), splitter)
    keys = {group: group_key(0, group) for group, _, _ in clips}
    return {g: moved.get(key, splitter.split_of(key)) for g, key in keys.items()}


def by_scikit_learn(clips, units):
    """The splits of each group; None if scikit-learn refuses the corpus."""
    import numpy as np
    from sklearn.model_selection import StratifiedGroupKFold

    examples = [n for _, _, n in clips]
    labels = np.repeat([label for _, label, _ in clips], examples)
    groups = np.repeat([group for group, _, _ in clips], examples)
    folds = sum(units.values())
    names = [name for name, several in units.items() for _ in range(several)]
    if len(set(groups)) < folds:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = list(StratifiedGroupKFold(folds).split(labels, labels, groups))
    except ValueError:
        return None
    return {
        str(group): name
        for name, (_, test) in zip(names, parts, strict=True)
        for group in set(groups[test])
    }


def shares_of(units):
    total = sum(units.values())
    return {name: several / total for name, several in units.items()}


def distances(clips, found, units):
    """Returns the mean and the maximum over classes and splits."""
    counts = defaultdict(Counter)
    for group, label, examples in clips:
        counts[label][found[group]] += examples
    apart = [
        abs(of_class[name] / of_class.total() - share)
        for of_class in counts.values()
        for name, share in shares_of(units).items()
    ]
    return statistics.mean(apart), max(apart)


def least_distances(clips, units):
    """The least mean and the least maximum of any way that fills all splits.

    None if there are too many ways, or more splits than groups.
    """
    import numpy as np

    groups = sorted({group for group, _, _ in clips})
    labels = sorted({label for _, label, _ in clips})
    if len(units) ** len(groups) > MOST_WAYS or len(groups) < len(units):
        return None
    held = np.zeros((len(groups), len(labels)))
    for group, label, examples in clips:
        held[groups.index(group), labels.index(label)] += examples
    ways = np.array(list(itertools.product(range(len(units)), repeat=len(groups))))
    of_split = [ways == k for k in range(len(units))]
    ways_fill = np.all([some.any(axis=1) for some in of_split], axis=0)
    apart = np.stack(
        [
            np.abs(some[ways_fill] @ held / held.sum(axis=0) - share)
            for some, share in zip(of_split, shares_of(units).values(), strict=True)
        ],
        axis=-1,
    )
    return apart.mean(axis=(1, 2)).min(), apart.max(axis=(1, 2)).min()


def compare_with_the_best(corpora, found):
    """Prints how far the corpora with few groups are from the best of all ways."""
    both = [
        (each["stratify"], least)
        for corpus, each in zip(corpora, found, strict=True)
        if (least := least_distances(*corpus)) is not None
    ]
    for k, name in enumerate(("mean", "max")):
        ours, least = (statistics.mean(pair[j][k] for pair in both) for j in range(2))
        equal = sum(a[k] <= b[k] + 1e-9 for a, b in both)
        print(
            f"  {len(both)} with few groups: {name} {ours:.4f}, of the best way "
            f"{least:.4f}; {equal} are the best"
        )


def measure(clips, units):
    found = {}
    for way, assign in zip(WAYS, (by_hash, by_stratify, by_scikit_learn), strict=True):
        start = time.perf_counter()
        splits = assign(clips, units)
        seconds = time.perf_counter() - start
        if splits is not None:
            found[way] = (*distances(clips, splits, units), seconds)
    return found


def fsdd(folder):
    """FSDD: digits of six speakers, as many windows of 0.1 s as each file has."""
    import soundfile

    rows = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".wav"):
            digit, speaker, _ = name.split("_")
            frames = soundfile.info(os.path.join(folder, name)).frames
            rows.append((name, speaker, digit, max(1, frames // 800)))
    some = random.Random(1).sample(rows, 1200)
    files = [(name, digit, n) for name, _, digit, n in some]
    speakers = [(speaker, digit, n) for _, speaker, digit, n in rows]
    fold = {f"fold{k}": 1 for k in range(4)}
    yield "1200 files, .6/.2/.2", files, UNITS[1]
    yield "1200 files, .8/.1/.1", files, UNITS[0]
    yield "6 speakers, .6/.2/.2", speakers, UNITS[1]
    yield "6 speakers, 4 folds", speakers, fold


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", type=int, default=1000)
    parser.add_argument("--folder", help="the folder of FSDD")
    args = parser.parse_args()
    corpora = [random_corpus(seed) for seed in range(args.corpora)]
    found = [measure(*corpus) for corpus in corpora]
    compared = [each for each in found if WAYS[2] in each]
    print(f"{args.corpora} corpora; scikit-learn takes {len(compared)} of them")
    for way in WAYS:
        mean, most, _ = (
            statistics.mean(each[way][k] for each in compared) for k in range(3)
        )
        slowest = max(each[way][2] for each in compared)
        print(f"  {way:12}  mean {mean:.4f}  max {most:.4f}  slowest {slowest:.2f} s")
    worse = sum(
        any(each[WAYS[1]][k] > 1.5 * each[WAYS[2]][k] + 1e-9 for k in range(2))
        for each in compared
    )
    print(f"  further than 1.5 times scikit-learn's: {worse} of {len(compared)}")
    compare_with_the_best(corpora, found)
    for name, clips, units in fsdd(args.folder) if args.folder else ():
        print(f"FSDD, {name}")
        for way, (mean, most, _) in measure(clips, units).items():
            print(f"  {way:12}  mean {mean:.4f}  max {most:.4f}")


if __name__ == "__main__":
    main()
