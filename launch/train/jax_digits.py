"""JAX learns spoken digits: ``jax_digits.py FSDD_FOLDER [--epochs N]``.

Grain reads the examples. It is tested with speakers that it has never heard.
"""

import grain
import jax
import jax.numpy as jnp
import numpy as np
from digits import parse_arguments, record_digits, show_results

from beam_pipeline import open_records

RATE, DECAY, DROPOUT = 2e-3, 1e-2, 0.4


def init(key, bins, classes):
    """Returns the weights of each layer, scaled as He et al. (2015) do."""
    shapes = {
        "conv1": (3, 3, 1, 16),
        "conv2": (3, 3, 16, 32),
        "conv3": (5, bins // 4 * 32, 96),
        "conv4": (3, 96, 96),
        "dense": (96, classes),
    }
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def convolve(x, kernel):
    """Convolves, normalises each example, and cuts below 0."""
    axes = ("NHWC", "HWIO", "NHWC") if x.ndim == 4 else ("NWC", "WIO", "NWC")
    strides = (1,) * (x.ndim - 2)
    x = jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=axes)
    over = tuple(range(1, x.ndim))
    return jax.nn.relu(jax.nn.standardize(x, over, epsilon=1e-3))


def pool(x, *size):
    """The maximum of each block of (frames, bins) or of frames."""
    for axis, n in enumerate(size, start=1):
        # On a CPU, the gradient of reduce_window is slower.
        blocks = x.shape[axis] // n
        x = jax.lax.slice_in_dim(x, 0, blocks * n, axis=axis)
        x = x.reshape(*x.shape[:axis], blocks, n, *x.shape[axis + 1 :]).max(axis + 1)
    return x


def logits(weights, mel, key=None):  # (batch, frames, bins)
    x = pool(convolve(mel[..., None], weights["conv1"]), 1, 2)
    x = pool(convolve(x, weights["conv2"]), 2, 2)
    x = x.reshape(*x.shape[:2], -1)  # time stays an axis
    x = pool(convolve(x, weights["conv3"]), 2)
    x = convolve(x, weights["conv4"]).max(axis=1)
    if key is not None:  # dropout, in training
        x *= jax.random.bernoulli(key, 1 - DROPOUT, x.shape) / (1 - DROPOUT)
    return x @ weights["dense"]


def loss_of(weights, mel, target, key):
    found = jax.nn.log_softmax(logits(weights, mel, key))
    wanted = jax.nn.one_hot(target, found.shape[1])
    smooth = 0.9 * wanted + 0.1 / found.shape[1]  # six and eight may sound alike
    return -(smooth * found).sum(axis=1).mean()


@jax.jit
def train_step(weights, means, squares, step, rate, mel, target):
    """One step of AdamW (Loshchilov and Hutter, 2019)."""
    key = jax.random.key(step)
    loss, slopes = jax.value_and_grad(loss_of)(weights, mel, target, key)
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, slopes)
    squares = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, squares, slopes)

    def update(w, m, s):
        m, s = m / (1 - 0.9**step), s / (1 - 0.99**step)
        return w - rate * (m / (jnp.sqrt(s) + 1e-8) + DECAY * w)

    return jax.tree.map(update, weights, means, squares), means, squares, loss


def main():
    arguments = parse_arguments(__doc__, epochs=12)
    records = record_digits(arguments.sounds, arguments.out, arguments.test)
    names = ["mel", "target"]
    train = open_records(records, "train", features=names)
    test = open_records(records, "test", features=names)
    mixed = grain.MapDataset.source(train).seed(arguments.seed).shuffle()
    batches = mixed.repeat(arguments.epochs).batch(64, drop_remainder=True)

    bins = train.features["mel"].shape[1]
    weights = init(jax.random.key(arguments.seed), bins, train.num_classes)
    means = squares = jax.tree.map(jnp.zeros_like, weights)
    for step, batch in enumerate(batches.to_iter_dataset(), start=1):
        rate = RATE * (1 + np.cos(np.pi * step / len(batches))) / 2
        weights, means, squares, loss = train_step(
            weights, means, squares, step, rate, batch["mel"], batch["target"]
        )
        if step % 100 == 0 or step == len(batches):
            print(f"step {step} of {len(batches)}: loss {loss:.3f}", flush=True)

    found = [logits(weights, batch["mel"]) for batch in test.batches(250)]
    show_results(records, np.asarray(jax.nn.softmax(jnp.concatenate(found))))


if __name__ == "__main__":
    main()
