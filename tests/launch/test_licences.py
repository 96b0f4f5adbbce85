"""The licences of docs/evidence.md against setup.py; no index is asked."""

from __future__ import annotations

import pytest
from packaging.licenses import canonicalize_license_expression

from launch import licences


def rows() -> list[list[str]]:
    """The cells of the table of the page, below its first two lines."""
    section = licences.PAGE.read_text().partition(licences.HEADING)[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert tuple(cells[0]) == licences.COLUMNS
    return cells[2:]


def test_the_page_has_every_requirement_of_setup() -> None:
    always = licences.requirements_of("install_requires")
    listed = [name for _, names in rows() for name in names.split(", ")]
    assert sorted(licences.named(always)) == sorted(listed)


def test_every_licence_is_one_of_spdx() -> None:
    for licence, *_ in rows():
        assert canonicalize_license_expression(licence) == licence
        assert "LicenseRef" not in licence


def test_the_table_has_a_row_for_each_licence() -> None:
    licence_by_name = {"B": "MIT", "a": "MIT", "c": "ISC"}
    packages = [{"name": n, "license": said} for n, said in licence_by_name.items()]
    assert licences.table(packages).splitlines()[2:] == [
        "| ISC | c |",
        "| MIT | a, b |",
    ]


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "MIT AND 0BSD"}, "MIT AND 0BSD"),
        ({"license": "Apache License, Version 2.0"}, "Apache-2.0"),
        ({"license": "BSD 3-Clause License\n\n Copyright"}, "BSD-3-Clause"),
        ({"classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"name": "SciPy", "license": "Dual"}, "BSD-3-Clause"),
    ],
)
def test_licences_from_metadata(metadata, licence) -> None:
    assert licences.licence_of({"name": "a", **metadata}) == licence


@pytest.mark.parametrize("said", ["BSD", "", "Copyright 2020"])
def test_a_licence_that_no_rule_knows_is_an_error(said) -> None:
    metadata = {"name": "some", "license": said, "classifier": ["License :: BSD"]}
    with pytest.raises(ValueError, match="some: no rule knows"):
        licences.licence_of(metadata)
