"""The licences of docs/evidence.md against setup.py; no index is asked."""

from packaging.licenses import canonicalize_license_expression

from launch import licences


def rows():
    """The cells of the table of the page, below its first two lines."""
    section = licences.PAGE.read_text().partition(licences.HEADING)[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert tuple(cells[0]) == licences.COLUMNS
    return cells[2:]


def test_the_page_has_every_requirement_of_setup():
    always = licences.requirements_of("install_requires")
    listed = [name for _, names in rows() for name in names.split(", ")]
    assert sorted(licences.named(always)) == sorted(listed)


def test_every_licence_is_one_of_spdx():
    for licence, *_ in rows():
        assert canonicalize_license_expression(licence) == licence
        assert "LicenseRef" not in licence
