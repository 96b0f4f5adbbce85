"""Package metadata; also what Beam's ``--setup_file`` ships to remote workers."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (HERE / "beam_pipeline" / "__init__.py").read_text(),
    re.MULTILINE,
)[1]

setup(
    name="audio-tfrecords",
    version=VERSION,
    description="Audio files to sharded GZIP TFRecords by Apache Beam, and back",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["beam_pipeline*"]),
    package_data={
        "beam_pipeline": ["py.typed"],
        "beam_pipeline.recipe": ["keywords.pyi"],
        "beam_pipeline.dataset": [
            "metadata.schema.json",
            "elements.schema.json",
            "members.schema.json",
        ],
        "beam_pipeline.reporting": ["page.html", "page.css", "page.js"],
    },
    python_requires=">=3.11",
    install_requires=[
        "apache-beam>=2.77",  # the pipeline, its runners and file systems
        "fastavro>=1.7",  # manifests in Avro; comes with apache-beam
        "google-crc32c>=1.5",  # the checksum of TFRecord, in C
        "isal>=1.7",  # GZIP, several times as fast as zlib
        "numpy>=1.26",
        "obstore>=0.12",  # gs:// and s3://, with range reads and retries
        # Comes with tfx-bsl. Beam imports its dataframe module in IPython and Jupyter,
        # and with pandas 3 that import fails.
        "pandas>=2,<3",
        "pillow>=10",  # features stored as PNG or JPEG
        "pyarrow>=15",  # manifest.parquet
        "pyyaml>=6",  # recipes in YAML
        "scipy>=1.11",  # float32 FFTs
        "soundfile>=0.13",  # libsndfile: decoding
        "soxr>=0.5",  # resampling
        "tensorflow>=2.21",  # replay; tfx-bsl requires it; writing never imports it
        "tfx-bsl>=1.21",  # brings tensorflow-metadata: schema.pbtxt, which TFX reads
        "threadpoolctl>=3",  # one thread of BLAS for each worker
        "tqdm>=4.65",  # the progress bar
    ],
    extras_require={
        "gcp": [
            "apache-beam[gcp]>=2.77",  # Dataflow
            "setuptools>=77",  # Beam builds this package with it, for the workers
        ],
        "aws": ["boto3>=1.34"],  # credentials in the files of the AWS command line
        "formats": ["av>=14"],  # ffmpeg: m4a, mp4, webm, wma, aac, amr, wv, tta
        "plot": ["matplotlib>=3.8"],  # show --plot; notebooks
        "torch": [
            "torch>=2.4",  # DataLoader, and Records.to_torch
            "torchdata>=0.11",  # StatefulDataLoader, which restarts in mid-epoch
        ],
        "grain": ["grain>=0.2.12"],  # MapDataset.source
        "jax": ["jax>=0.4.34"],  # reads batches of arrays
        "huggingface": ["datasets>=4.3"],  # reads Records.to_arrow
        "site": [
            "mkdocs-material>=9.7,<10",  # docs/ as a site; brings MkDocs
            "mkdocstrings[python]>=1",  # the reference, from docstrings
        ],
        "release": [
            "build>=1",  # wheel and sdist
            "check-wheel-contents>=0.6",  # nothing missing in the wheel, nothing else
            "twine>=6",  # the metadata, as an index checks them
        ],
        "dev": [
            "apache-beam[gcp]>=2.77",  # the real runner of Dataflow
            "axe-playwright-python>=0.1.4",  # rules of accessible pages
            "av>=14",  # makes the files that only ffmpeg reads
            "boto3>=1.34",  # an independent client of S3
            "build>=1",  # what Beam builds --setup_file with
            "cryptography>=42",  # a service account's key, made up
            "hypothesis>=6.100",  # properties
            "ipykernel>=6.29",  # a notebook's kernel, in which Beam acts otherwise
            "jsonschema>=4.20",  # the metadata against their schema
            "kaldi-native-fbank>=1.20",  # the reference of kaldi_fbank
            "librosa>=0.10",  # the reference of most spectral features
            "matplotlib>=3.8",
            "moto[server]>=5.1",  # an object store on loopback
            "mypy>=1.10",
            "nbclient>=0.10",  # runs notebooks
            "playwright>=1.40",  # opens reports in Chromium
            "packaging>=24.2",  # versions in the image against those here; licences
            "pyloudnorm>=0.1",  # the reference of loudness
            "pytest>=8",
            "pytest-xdist>=3.5",  # the tests on two cores
            "ruff>=0.17,<0.18",  # another minor version formats otherwise
            "setuptools>=77",  # as in gcp
        ],
    },
    entry_points={
        "console_scripts": ["audio-tfrecords=beam_pipeline.cli.main:command"]
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Multimedia :: Sound/Audio",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
