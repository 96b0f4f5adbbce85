"""Models of PyTorch and Keras in files, also those that cannot be used."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.errors import InputError
from beam_pipeline.read.predict import model_of
from tests.frameworks.conftest import need

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")


@pytest.fixture(scope="module")
def network():
    torch = need("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_a_file_gives_the_scores_of_the_network(network, tmp_path, suffix):
    torch = need("torch")
    path, example = str(tmp_path / f"network{suffix}"), torch.zeros(2, 4, 3)
    if suffix == ".pt":
        torch.jit.trace(network, example).save(path)
    else:
        shapes = ({0: torch.export.Dim("windows")},)
        program = torch.export.export(network, (example,), dynamic_shapes=shapes)
        torch.export.save(program, path)
    values = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    for given, some in product((network, path, Path(path)), (values, values[:1])):
        expected = network(torch.from_numpy(some)).detach().numpy()
        scores = model_of(given)(some)
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["weights.pt", "weights.pt2", "empty.keras"])
def test_a_file_of_another_kind_is_refused(network, tmp_path, name):
    path = tmp_path / name
    if name.startswith("weights"):
        need("torch").save(network.state_dict(), path)
    else:
        need("keras")
        path.touch()
    with pytest.raises(InputError, match=r"cannot be loaded: .*`torch.export.save`"):
        model_of(str(path))
