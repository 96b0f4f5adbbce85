"""Local files."""

from beam_pipeline.storage import files


def test_links_that_lead_to_each_other_are_files(tmp_path):
    (tmp_path / "a.wav").symlink_to("b.wav")
    (tmp_path / "b.wav").symlink_to("a.wav")
    (tmp_path / "c").symlink_to("c")
    assert list(files.list_files(str(tmp_path))) == ["a.wav", "b.wav", "c"]
