"""Which package may import which, by reading the source of all modules."""

import ast
import importlib
import json
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import beam_pipeline
from beam_pipeline.transforms.steps import STEP_FIELDS, TRANSFORM
from tests.processes import run_python

PACKAGE = Path(beam_pipeline.__file__).parent

# From the ground up. A package imports only from floors below its own; the packages of
# one floor do not know each other.
FLOORS = [
    "text arrays",
    "errors",
    "parameters process",
    "permutation",
    "storage audio transforms",
    "encodings",
    "recipe",
    "inputs",
    "examples",
    "planning",
    "write",
    "dataset",
    "pipeline read elements",
    "run reporting",
    "api dofns tf_dataset tfrecorder conversion",
    "cli",
]
FLOOR_OF = {name: k for k, names in enumerate(FLOORS) for name in names.split()}

# Of one floor, but not beside each other.
NEVER = {("run", "read")}

# Library -> the only modules, or packages, that import it; in brackets: only within
# functions, because what imports those modules must start fast.
HOMES = {
    "apache_beam": "pipeline run dofns [storage.beam_filesystem] [run.engine] "
    "[transforms.own_code]",
    "tensorflow": "read.replay elements.record_dataset [conversion.records] "
    "tf_dataset [tfrecorder.factory] "
    "[examples.spec] [read.batches] [read.example_view]",
    "fastavro": "[inputs.table_files]",
    "obstore": "[storage.object_store]",
    "boto3": "[storage.object_store]",
    "soundfile": "audio.decoder [encodings] [read.example_view] [read.show]",
    "av": "[audio.decoder] [audio.formats]",
    "soxr": "audio.clip_reader",
    "tensorflow_metadata": "[dataset.metadata]",
    "ml_dtypes": "[arrays]",
    "pyarrow": "read.arrow [read.records] "
    "[storage.pages] [inputs.table_files] [dataset.tables] "
    "[dataset.side_by_side] [read.audit] "
    "read.conditions "
    "[cli.reports] [read.window_table] [read.predict] "
    "[reporting.problems] [write.window_rows]",
    "isal": "storage.tfrecord audio.sketch",
    "matplotlib": "[read.example_view]",
    "threadpoolctl": "[transforms.steps] [process]",
    "tqdm": "[dataset.progress]",
    "PIL": "[encodings]",
    "torch": "read.torch [read.predict]",
    "yaml": "[recipe.canonical]",
    "scipy": "transforms audio.sketch [read.batches] [read.audit]",
}


def imports_of(source):
    """(what is imported, whether within a function), for each import of a source."""
    found = []

    def walk(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, "imports are absolute"
                # A name may be a module: ``from beam_pipeline.storage import files``.
                found.extend(
                    (f"{child.module}.{alias.name}", inside) for alias in child.names
                )
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(
                child.test
            )
            walk(child, inside or function or typing_only)

    walk(ast.parse(source), inside=False)
    return found


def in_room(module, rooms):
    """Whether a module is one of some rooms, or in one that is a package."""
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def violations_of(module, source):
    """Every import of a module that no floor and no home allows."""
    bad = []
    package = module.partition(".")[0]
    if package not in FLOOR_OF:
        return [f"{package} is on no floor"]
    for name, inside in imports_of(source):
        root, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if root == "beam_pipeline" and target in FLOOR_OF:
            above = FLOOR_OF[target] >= FLOOR_OF[package]
            if target != package and (above or (package, target) in NEVER):
                bad.append(f"{package} -> {target}")
        elif root == "beam_pipeline" and package != "cli":
            bad.append(f"{package} -> {name}")
        elif root in HOMES:
            homes = HOMES[root].split()
            lazy = [home.strip("[]") for home in homes if home.startswith("[")]
            if not in_room(module, [home.strip("[]") for home in homes]):
                bad.append(f"{module} -> {root}")
            elif in_room(module, lazy) and not inside:
                bad.append(f"{module} -> {root} at its top")
    return bad


@pytest.fixture(scope="module")
def sources():
    """The text of each module, by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name not in ("__init__", "__main__"):
            found[name.removesuffix(".__init__")] = path.read_text()
    return found


def test_every_import_points_down(sources):
    assert len(sources) > 100
    bad = {module: violations_of(module, text) for module, text in sources.items()}
    assert {module: lines for module, lines in bad.items() if lines} == {}


def test_every_package_has_its_floor(sources):
    assert {module.partition(".")[0] for module in sources} == set(FLOOR_OF)


def test_every_home_is_used(sources):
    for library, homes in HOMES.items():
        for home in homes.replace("[", "").replace("]", "").split():
            assert any(
                name.partition(".")[0] == library
                for module, text in sources.items()
                if in_room(module, [home])
                for name, _ in imports_of(text)
            ), (library, home)


@pytest.mark.parametrize("package", sorted(FLOOR_OF))
def test_no_module_imports_itself_in_a_circle(package, sources):
    """Within a package, too: whoever reads a module can read those below it first."""
    own = {m for m in sources if in_room(m, [package])}
    arrows = {
        module: {
            target
            for name, _ in imports_of(sources[module])
            for target in [
                name.removeprefix("beam_pipeline."),
                name.removeprefix("beam_pipeline.").rpartition(".")[0],
            ]
            if target in own and target not in (module, package)
        }
        for module in own - {package}
    }
    TopologicalSorter(arrows).prepare()  # which raises where there is one


def test_packages_say_what_is_in_them(sources):
    for package in (p for p in FLOOR_OF if (PACKAGE / p).is_dir()):
        text = ast.get_docstring(ast.parse(sources[package])) or ""
        assert "In:" in text, package
        assert "Out:" in text, package
        assert "first" in text, package


@pytest.mark.parametrize(
    ("module", "source", "bad"),
    [
        ("errors", "import beam_pipeline.recipe.recipe", "errors -> recipe"),
        ("audio.sketch", "from beam_pipeline.storage import files", "audio -> storage"),
        ("planning.clips", "def f():\n    from beam_pipeline import run",
         "planning -> run"),
        ("planning.clips", "from beam_pipeline import __version__",
         "planning -> beam_pipeline.__version__"),
        ("run.local", "from beam_pipeline.read.replay import replay", "run -> read"),
        ("storage.beam_filesystem", "from apache_beam.io import x",
         "storage.beam_filesystem -> apache_beam at its top"),
        ("write.shard", "import soundfile, numpy", "write.shard -> soundfile"),
        ("utils", "", "utils is on no floor"),
    ],
)  # fmt: skip
def test_the_check_can_fail(module, source, bad):
    assert violations_of(module, source) == [bad]


def loaded_after(code):
    """The modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    return set(json.loads(run_python("-c", script).stdout.splitlines()[-1]))


HEAVY = {"apache_beam", "tensorflow"}


@pytest.mark.parametrize(
    ("code", "loads", "never"),
    [
        ("import beam_pipeline", set(), HEAVY | {"numpy", "soundfile", "scipy"}),
        ("import beam_pipeline.cli.main, beam_pipeline.api", {"api"}, HEAVY),
        ("from beam_pipeline import Metadata, Recipe, transforms", {"transforms"},
         HEAVY | {"soundfile"}),
        ("import beam_pipeline.run.local; from beam_pipeline import record, transforms",
         {"run.local", "pipeline.graph"}, {"tensorflow"}),
        ("import beam_pipeline; beam_pipeline.encode_example({'a': ['b']})\n"
         "from beam_pipeline.tfrecorder import Example, factory, checker\n"
         "from beam_pipeline import convert, replay_files",
         {"tfrecorder.checker", "run.elements"}, HEAVY | {"tfx_bsl"}),
        ("from beam_pipeline.storage import files; files.exists('/')", {"storage"},
         {"http.client", "boto3", "obstore"}),
    ],
)  # fmt: skip
def test_imports_load_nothing_heavy(code, loads, never):
    loaded = loaded_after(code)
    assert loaded & never == set()
    ours = {name for name in loaded if name.startswith("beam_pipeline.")}
    assert {f"beam_pipeline.{name}" for name in loads} <= ours
    assert bool(ours) == bool(loads)


def test_public_names_are_sorted_and_resolve():
    assert beam_pipeline.__all__ == sorted(set(beam_pipeline.__all__))
    for name in beam_pipeline.__all__:
        if name != "replay":  # which loads TensorFlow
            value = getattr(beam_pipeline, name)
            assert value.__name__ == name
            assert getattr(importlib.import_module(value.__module__), name) is value
    assert set(beam_pipeline.__all__) < set(dir(beam_pipeline))
    with pytest.raises(AttributeError, match="reocrd"):
        _ = beam_pipeline.reocrd


def test_the_names_for_type_checkers_are_the_public_ones():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.asname or alias.name for node in block.body for alias in node.names]
    assert sorted(names) == beam_pipeline.__all__


def test_every_transform_can_be_imported():
    tables = TRANSFORM.table, *(kind.table for kind in STEP_FIELDS.values())
    for cls in (cls for table in tables for cls in table.values()):
        assert getattr(beam_pipeline.transforms, cls.__name__) is cls
    assert len(beam_pipeline.__all__) <= 30
    assert beam_pipeline.transforms.__all__ == sorted(beam_pipeline.transforms.__all__)
