"""Which module may import which, by reading the source of all of them."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import beam_pipeline
from beam_pipeline.transforms.catalogue import BUILT_IN
from beam_pipeline.transforms.expressions import STEP_FIELDS

PACKAGE = Path(beam_pipeline.__file__).parent

# Module -> the package's modules that it may import, at its top or within a function.
# Each stands below those that it imports.
ARROWS = {
    "errors": "",
    "stores": "errors",
    "beam_files": "errors",
    "files": "errors stores beam_files",
    "recipe": "errors",
    "recipe_files": "errors files recipe",
    "containers": "",
    "flac": "containers",
    "decoder": "errors flac",
    "probe": "errors containers decoder",
    "audio": "decoder probe",
    "windows": "errors recipe",
    "splits": "errors recipe windows",
    "places": "files",
    "manifests": "errors files",
    "rows": "errors recipe splits places manifests",
    "events": "errors files recipe",
    "sources": "errors files beam_files recipe places manifests rows events",
    "transforms.base": "errors",
    "transforms.quiet": "",
    "transforms.mel": "errors",
    "transforms.fourier": "errors transforms.base transforms.mel transforms.quiet",
    "transforms.spectral": "errors transforms.base transforms.fourier transforms.mel "
    "transforms.quiet",
    "transforms.kaldi": "errors transforms.base transforms.fourier transforms.mel "
    "transforms.quiet",
    "transforms.framewise": "errors transforms.base transforms.fourier transforms.mel "
    "transforms.spectral",
    "transforms.cepstral": "errors transforms.base transforms.framewise "
    "transforms.mel transforms.quiet",
    "transforms.shape": "errors transforms.base transforms.framewise transforms.mel "
    "transforms.quiet",
    "transforms.signals": "errors transforms.base transforms.mel transforms.quiet",
    "transforms.filters": "errors transforms.base transforms.quiet",
    "transforms.loudness": "errors transforms.base transforms.filters "
    "transforms.framewise transforms.mel transforms.quiet",
    "transforms.levels": "errors transforms.base transforms.filters "
    "transforms.loudness transforms.quiet transforms.signals",
    "transforms.ar": "errors transforms.base transforms.framewise transforms.mel "
    "transforms.quiet",
    "transforms.cqt": "errors transforms.base transforms.framewise transforms.mel "
    "transforms.quiet",
    "transforms.viterbi": "",
    "transforms.pitch": "errors transforms.base transforms.framewise transforms.mel "
    "transforms.quiet transforms.viterbi",
    "transforms.catalogue": "transforms.ar transforms.base transforms.cepstral "
    "transforms.cqt transforms.filters transforms.fourier transforms.kaldi "
    "transforms.levels transforms.loudness transforms.pitch transforms.shape "
    "transforms.signals transforms.spectral",
    "transforms.selection": "errors transforms.base",
    "transforms.augment": "errors transforms.base transforms.selection windows",
    "transforms": "transforms.ar transforms.augment transforms.base "
    "transforms.cepstral transforms.cqt transforms.filters transforms.fourier "
    "transforms.kaldi transforms.levels transforms.loudness transforms.pitch "
    "transforms.selection transforms.shape transforms.signals transforms.spectral",
    "streams": "errors transforms.base transforms.catalogue transforms.loudness",
    "expressions": "errors streams transforms.augment transforms.base "
    "transforms.catalogue transforms.selection",
    "features": "errors events recipe transforms.base expressions",
    "examples": "features",
    "tfrecord": "",
    "fingerprints": "windows",
    "plan": "recipe",
    "metadata": "errors files recipe features tfrecord fingerprints plan",
    "treatment": "errors recipe windows expressions plan",
    "blocks": "errors events files recipe sources decoder audio windows streams "
    "expressions features examples fingerprints plan treatment",
    "clips": "errors events files recipe decoder probe audio windows splits rows "
    "sources plan treatment blocks",
    "statistics": "features",
    "observations": "features plan blocks statistics",
    "progress": "errors files plan metadata",
    "finish": "errors files recipe plan metadata progress blocks observations",
    "show": "errors files recipe windows splits features examples plan metadata "
    "treatment blocks progress finish tfrecord",
    "listing": "errors streams expressions transforms.base",
    "verify": "errors files metadata tfrecord",
    "similarity": "",
    "auditor": "errors files recipe rows fingerprints metadata similarity",
    "sink": "errors files plan progress observations tfrecord",
    "stages": "events files recipe splits rows sources examples plan metadata "
    "treatment blocks clips observations progress finish sink",
    "pipeline": "recipe sources tfrecord finish sink stages",
    "local": "errors files plan progress blocks finish stages pipeline",
    "engines": "errors",
    "claims": "errors events files recipe sources expressions tfrecord plan metadata "
    "blocks progress finish pipeline local",
    "recorder": "errors engines events files recipe manifests sources splits "
    "expressions features plan metadata treatment progress blocks clips claims finish "
    "sink pipeline local",
    "cli": "__init__ errors recipe recipe_files metadata progress finish show listing "
    "verify auditor recorder",
    "reader": "errors files features plan metadata",
    # Lazily, whatever is asked for.
    "__init__": "auditor metadata reader recipe recorder sink streams transforms",
    "__main__": "cli",
}

# Library -> the only modules that may import it, and whether only within functions.
HOMES = {
    "apache_beam": (
        "beam_files engines recorder sink stages pipeline local",
        "beam_files engines recorder",
    ),
    "obstore": ("stores", "stores"),
    "boto3": ("stores", "stores"),
    "tensorflow": ("reader", ""),
    "soundfile": ("decoder", ""),
    "soxr": ("audio", ""),
    "tensorflow_metadata": ("metadata", "metadata"),
    "tfx_bsl": ("examples", "examples"),
    "pyarrow": ("files auditor metadata", "files auditor metadata"),
    "isal": ("tfrecord metadata statistics", ""),
    "matplotlib": ("show", "show"),
    "threadpoolctl": ("listing stages", ""),
    "tqdm": ("cli", "cli"),
    "yaml": ("recipe_files", "recipe_files"),
    "scipy": (
        "similarity transforms.ar transforms.augment transforms.filters "
        "transforms.fourier transforms.kaldi transforms.loudness transforms.mel "
        "transforms.pitch transforms.shape transforms.signals",
        "similarity transforms.filters",
    ),
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
                if child.module == "beam_pipeline":
                    found.extend(
                        (f"beam_pipeline.{alias.name}", inside) for alias in child.names
                    )
                else:
                    found.append((child.module, inside))
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(
                child.test
            )
            walk(child, inside or function or typing_only)

    walk(ast.parse(source), inside=False)
    return found


def violations(sources):
    """Every import in ``{module: source}`` that no arrow and no home allows."""
    bad = []
    for module, source in sources.items():
        if module not in ARROWS:
            bad.append(f"{module} stands in no layer")
            continue
        for name, inside in imports_of(source):
            root, _, rest = name.partition(".")
            if root == "beam_pipeline":
                # What is no module is a name of the package itself.
                target = rest if rest in sources else "__init__"
                if target not in ARROWS[module].split():
                    bad.append(f"{module} -> {target}")
            elif root in HOMES:
                homes, lazy = (text.split() for text in HOMES[root])
                if module not in homes:
                    bad.append(f"{module} -> {root}")
                elif module in lazy and not inside:
                    bad.append(f"{module} -> {root} at its top")
    return bad


def package_sources():
    sources = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        sources[name.replace("transforms.__init__", "transforms")] = path.read_text()
    return sources


def violations_of(module, source):
    """Those of one module, if this were its source."""
    bad = violations({**package_sources(), module: source})
    return [line for line in bad if line.startswith(f"{module} ")]


def test_every_import_is_along_an_arrow():
    sources = package_sources()
    assert len(sources) > 20
    assert violations(sources) == []


def test_the_table_has_no_arrow_too_many():
    sources = package_sources()
    assert set(ARROWS) == set(sources)
    for module, allowed in ARROWS.items():
        imported = {
            name.removeprefix("beam_pipeline.")
            for name, _ in imports_of(sources[module])
        }
        unused = set(allowed.split()) - imported - {"__init__"}
        assert unused == set(), module


def test_arrows_point_downwards():
    order = [name for name in ARROWS if name not in ("__init__", "__main__")]
    for module in order:
        for target in ARROWS[module].split():
            if target != "__init__":
                assert order.index(target) < order.index(module), (module, target)


@pytest.mark.parametrize(
    ("module", "source", "bad"),
    [
        ("errors", "import beam_pipeline.recipe", "errors -> recipe"),
        ("errors", "from beam_pipeline import recipe", "errors -> recipe"),
        ("errors", "from beam_pipeline.recipe import Recipe", "errors -> recipe"),
        ("plan", "def f():\n    from beam_pipeline import audio", "plan -> audio"),
        ("plan", "from beam_pipeline import __version__", "plan -> __init__"),
        ("plan", "try:\n    import apache_beam\nexcept E:\n    pass",
         "plan -> apache_beam"),
        ("beam_files", "from apache_beam.io import x",
         "beam_files -> apache_beam at its top"),
        ("reader", "import apache_beam as beam", "reader -> apache_beam"),
        ("stages", "class A:\n    def f(self):\n        import tensorflow as tf",
         "stages -> tensorflow"),
        ("blocks", "import soundfile, numpy", "blocks -> soundfile"),
        ("utils", "", "utils stands in no layer"),
    ],
)  # fmt: skip
def test_the_check_can_fail(module, source, bad):
    assert violations_of(module, source) == [bad]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("beam_files", "def f():\n    from apache_beam.io import filesystems"),
        ("stages", "import apache_beam"),
        ("recipe", "from beam_pipeline.errors import RecipeError\nimport numpy"),
    ],
)
def test_the_check_can_pass(module, source):
    assert violations_of(module, source) == []


def loaded_after(code):
    """The modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=PACKAGE.parent,
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_after("import beam_pipeline")
    assert "beam_pipeline" in loaded
    assert (
        loaded & {"apache_beam", "tensorflow", "numpy", "soundfile", "scipy"} == set()
    )
    assert {name for name in loaded if name.startswith("beam_pipeline.")} == set()


def test_writing_never_loads_tensorflow():
    code = "import beam_pipeline.api, beam_pipeline.cli.main, beam_pipeline.run.local"
    loaded = loaded_after(f"{code}\nfrom beam_pipeline import LogMel, record")
    assert {"apache_beam", "beam_pipeline.pipeline.stages"} <= loaded
    assert "tensorflow" not in loaded


def test_the_command_line_starts_without_beam():
    loaded = loaded_after("import beam_pipeline.cli.main, beam_pipeline.api")
    assert loaded & {"apache_beam", "tensorflow"} == set()


def test_metadata_and_transforms_load_no_beam():
    loaded = loaded_after("from beam_pipeline import Metadata, LogMel, Recipe")
    assert loaded & {"apache_beam", "tensorflow", "soundfile"} == set()


def test_reading_never_loads_beam():
    loaded = loaded_after("from beam_pipeline import replay")
    assert "tensorflow" in loaded
    assert "apache_beam" not in loaded


def test_public_names_are_sorted_and_resolve():
    assert beam_pipeline.__all__ == sorted(set(beam_pipeline.__all__))
    for name in beam_pipeline.__all__:
        if name != "replay":  # above, where TensorFlow does not stay loaded
            value = getattr(beam_pipeline, name)
            assert value.__name__ == name
            assert getattr(importlib.import_module(value.__module__), name) is value
    assert set(beam_pipeline.__all__) < set(dir(beam_pipeline))
    with pytest.raises(AttributeError, match="no attribute 'reocrd'"):
        _ = beam_pipeline.reocrd


def test_the_names_for_type_checkers_are_the_public_ones():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.asname or alias.name for node in block.body for alias in node.names]
    assert sorted(names) == ["*", *beam_pipeline.__all__]


def test_every_transform_can_be_imported():
    tables = BUILT_IN, *(kind.table for kind in STEP_FIELDS.values())
    for cls in (cls for table in tables for cls in table.values()):
        assert getattr(beam_pipeline, cls.__name__) is cls
        if cls is not beam_pipeline.ClipGain:
            assert cls.__name__ in beam_pipeline.transforms.__all__
    assert beam_pipeline.transforms.__all__ == sorted(beam_pipeline.transforms.__all__)


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()
