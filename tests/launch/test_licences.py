"""docs/licences.md against setup.py; what each package says is not asked for here."""

from __future__ import annotations

import re

import pytest
from packaging.licenses import canonicalize_license_expression

from launch import licences


def listed() -> dict[str, dict[str, str]]:
    """Heading -> package -> licence, from the page."""
    parts = re.split(r"^## ", licences.PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        part.partition("\n")[0]: dict(re.findall(r"^\| (\S+) \| (.+) \|$", part, re.M))
        for part in parts
    }


def test_the_page_has_every_requirement_of_setup() -> None:
    page = listed()
    always = licences.requirements_of("install_requires")
    assert licences.named(always) == page["Always installed"].keys() - {"package"}
    for extra, wanted in licences.requirements_of("extras_require").items():
        assert licences.named(wanted) == page[f"Extra `{extra}`"].keys() - {"package"}


def test_every_licence_is_one_of_spdx() -> None:
    for part in listed().values():
        for name, licence in part.items():
            if name not in ("package", "matplotlib"):
                assert canonicalize_license_expression(licence) == licence
                assert "LicenseRef" not in licence


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "MIT AND 0BSD"}, "MIT AND 0BSD"),
        ({"license": "Apache License, Version 2.0"}, "Apache-2.0"),
        ({"license": "BSD 3-Clause License\n\n Copyright"}, "BSD-3-Clause"),
        ({"classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"name": "Python_dateutil", "license": "Dual"}, "Apache-2.0 OR BSD-3-Clause"),
    ],
)
def test_licences_from_metadata(metadata, licence) -> None:
    assert licences.licence_of({"name": "a", **metadata}) == licence


@pytest.mark.parametrize("said", ["BSD", "", "Copyright 2020"])
def test_a_licence_that_no_rule_knows_is_an_error(said) -> None:
    metadata = {"name": "some", "license": said, "classifier": ["License :: BSD"]}
    with pytest.raises(ValueError, match="some: no rule knows"):
        licences.licence_of(metadata)
