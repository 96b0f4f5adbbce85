"""The page that shows a data set: its contents, and how it behaves in a browser."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import Metadata, open_records, record, record_examples, report
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from tests.raising import raises
from tests.sounds import write_corpus, write_samples, write_sound

RATE = 8000
LATER = "what clips share only after 2 s: not compared"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: apt-get install chromium"
)

BAD_NAME = "</script><img src=x onerror=alert(1)>"


def tone(hz, level, seed):
    """Two seconds of a tone in noise."""
    noise = np.random.default_rng(seed).normal(0, 0.01, 2 * RATE)
    return level * np.sin(2 * np.pi * hz * np.arange(2 * RATE) / RATE) + noise


@pytest.fixture(scope="module")
def mess(tmp_path_factory):
    """A data set with a leak, silent files, a clipped class and constant bins."""
    folder = tmp_path_factory.mktemp("mess")
    clips = {}
    for k in range(20):
        clips[f"owl/{k}"] = tone(300 + 10 * k, 0.3, k)
        clips[f"hot/{k}"] = np.clip(tone(700 + 10 * k, 3.0, 100 + k), -1, 1)
        if k < 10:
            clips[f"mute/{k}"] = np.zeros(2 * RATE)
    clips[f"mute/{BAD_NAME.replace('/', '-')}"] = tone(500, 0.2, 1)
    for k in range(8):  # the same sounds under other names
        clips[f"owl/again-{k}"] = clips[f"owl/{k}"]
    for name, samples in clips.items():
        path = folder / "in" / f"{name}.wav"
        write_samples(path, samples, RATE)
    (folder / "in" / "owl" / "broken.wav").write_bytes(b"RIFF")
    record(
        folder / "in", folder / "out", win_seconds=2, splits="train=.6,test=.4",
        features={
            "mel": "log_mel(n_fft=256,hop=128,n_mels=20,floor=1.0)",
            "signal": "identity()",
        },
        max_rejected=1,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def page(mess):
    return Path(report(mess / "out", mess / "report.html"))


def contents(page):
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1], parse_constant=pytest.fail)


def reported(folder, **options):
    """What the page of a data set holds."""
    return contents(Path(report(folder, folder.with_suffix(".html"), **options)))


def heard(sample):
    flac = base64.b64decode(sample["sound"]["flac"])
    samples, rate = soundfile.read(io.BytesIO(flac))
    return samples * sample["sound"]["gain"], rate


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [v for k, v in attrs if k in ("src", "href") and v[0] != "#"]


def test_the_page_is_one_file_that_needs_no_network(page, mess):
    text = page.read_text()
    links = Links()
    links.feed(text)
    assert links.found == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(text) < 5_000_000
    # The same data set gives the same page.
    again = report(mess / "out", mess / "again.html")
    assert Path(again).read_bytes() == page.read_bytes()


def test_each_planted_problem_is_found(page, mess):
    shown = contents(page)
    wrong = {p["title"]: p for p in shown["problems"] if p["level"] == "wrong"}
    look = {p["title"]: p for p in shown["problems"] if p["level"] == "look"}
    leak = wrong["Same audio across splits"]
    assert any("again-" in line for line in leak["files"])
    heard_leaks = {shown["samples"][k]["label"] for k in leak["samples"]}
    assert "owl" in heard_leaks <= {"owl", "mute"}
    silent = wrong["10 files without any sound"]
    assert silent["files"] == sorted(f"mute/{k}.wav" for k in range(10))
    clipped = wrong["Class hot is clipped"]
    assert {shown["samples"][k]["label"] for k in clipped["samples"]} == {"hot"}
    (constant,) = (title for title in wrong if title.startswith("mel: "))
    assert re.search(r"bin [\d, andmore]+\.", wrong[constant]["text"])
    (line,) = look["1 clip rejected"]["files"]
    assert line.startswith("owl/broken.wav: not readable as audio")
    assert shown["rejects"][0]["files"][0]["path"] == "owl/broken.wav"
    assert shown["unchecked"] == [
        "same group: not recorded; name columns of the manifest with --group-by",
        "near-identical audio in the first 2 s: "
        "10 clips are silent, steady, or too short",
        LATER,
    ]
    # Counts are those of the data set.
    splits = shown["metadata"]["splits"].values()
    examples = len(open_records(mess / "out", ["test", "train"]))
    assert sum(split["examples"] for split in splits) == examples
    assert sum(shown["audio"]["lengths"]["counts"]) == shown["audio"]["clips"] == 59
    assert shown["audio"]["rates"] == {"8000 Hz": 59}
    assert shown["given"]["win_seconds"] == 2
    assert "hop" not in shown["given"]
    assert shown["asked"] == {"train": 0.6, "test": 0.4}
    assert shown["shards"]["count"] == sum(len(split["shards"]) for split in splits)


def test_what_was_not_looked_for(mess, tmp_path):
    """Clipping needs samples: those of the files, if inputs are given."""
    features = {"mel": "log_mel(n_fft=256,hop=128,n_mels=20)"}
    options = {"win_seconds": 2, "max_rejected": 1, "features": features}
    record(mess / "in", tmp_path / "out", **options)
    blind = reported(tmp_path / "out", clips=20)
    group, some, later, clipping = blind["unchecked"]
    assert group.endswith("--group-by")
    assert later == LATER
    assert clipping.startswith("clipped audio: the examples hold no samples")
    assert not any(sample["sound"] for sample in blind["samples"])
    seen = reported(tmp_path / "out", clips=20, input=mess / "in")
    assert seen["unchecked"] == [group, some, LATER]
    titles = [p["title"] for p in seen["problems"]]
    assert [title for title in titles if "clipped" in title] == ["Class hot is clipped"]
    assert all(sample["sound"] for sample in seen["samples"])
    (tmp_path / "none").mkdir()
    with raises(InputError, naming=[tmp_path / "none", "input"]):
        reported(tmp_path / "out", input=tmp_path / "none")


def test_sounds_are_those_of_the_examples(page, mess):
    for sample in contents(page)["samples"][::7]:
        samples, rate = heard(sample)
        example = open_records(mess / "out", sample["split"])[sample["number"]]
        assert rate == sample["sound"]["rate_hz"] == RATE
        limit = 2 * sample["sound"]["gain"] / 2**16
        np.testing.assert_allclose(samples, example["signal"], atol=limit)
        assert example["filepath"] == sample["path"]
        assert example["class"] == sample["label"]


def test_how_many_are_shown_and_which_come_first(mess):
    assert 0 < len(reported(mess / "out", bytes=100_000)["samples"]) < 20
    with pytest.warns(DataSetWarning, match="No example can be heard") as caught:
        assert reported(mess / "out", bytes=10)["samples"] == []
    least = re.search(r"`bytes` = (\d+) or more", str(caught[0].message))[1]
    some = reported(mess / "out", bytes=int(least))["samples"]
    assert len(some) == 1
    none = reported(mess / "out", clips=0)
    assert none["samples"] == []
    assert none["problems"]
    asked = {"test": [12, 0], "train": [3]}
    shown = reported(mess / "out", clips=5, examples=asked)["samples"]
    found = [(sample["split"], sample["number"]) for sample in shown]
    assert len(found) == 5
    assert set(found[:3]) == {("test", 0), ("test", 12), ("train", 3)}
    assert all(sample["why"][0] == "asked for" for sample in shown[:3])
    count = Metadata.load(mess / "out").splits["test"].examples
    with raises(OptionError, "examples", count, naming=["test", f"below {count}"]):
        report(mess / "out", mess / "none.html", examples={"test": [0, count]})
    with raises(InputError, naming=["tset", "test", "train"]):
        report(mess / "out", mess / "none.html", examples={"tset": [0]})
    for wrong in ([1, 2], {"test": 3}):
        with raises(OptionError, "examples", naming=["split", str(wrong)]):
            report(mess / "out", mess / "none.html", examples=wrong)


def test_several_data_sets_are_one_page(tmp_path, monkeypatch, cli):
    """Their spectra are heard from the files."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "in")
    features = {"mel": "log_mel(n_fft=256,n_mels=8)"}
    first = record("in", "a", win_len=500, features=features)
    for k in range(5):
        write_sound(tmp_path / "in" / "owl" / f"new{k}.wav", 2000, seed=70 + k)
    (tmp_path / "in" / "owl" / "broken.wav").write_bytes(b"RIFF")
    more = record("in", "b", recipe="a", skip_recorded="a", max_rejected=1)
    said = cli("report", "a", "b", "--input", "in", "--clips", 999).out
    assert "a-b-report.html" in said
    shown = contents(tmp_path / "a-b-report.html")
    metadata = shown["metadata"]
    count = sum(each.splits["records"].examples for each in (first, more))
    assert shown["name"] == "a + b"
    assert metadata["splits"]["records"]["examples"] == count
    assert metadata["inputs"]["rejected"] == len(shown["rejects"]) == 1
    assert shown["audio"]["clips"] == sum(shown["audio"]["lengths"]["counts"])
    assert {"owl/new1.wav", "owl/owl_1.wav"} <= {s["path"] for s in shown["samples"]}
    records = open_records(["a", "b"])
    for sample in shown["samples"]:
        example = records[sample["number"]]
        start = example["win_start_idx"]
        whole, _ = soundfile.read(tmp_path / "in" / sample["path"])
        assert example["filepath"] == sample["path"]
        limit = {"atol": 2**-14}
        np.testing.assert_allclose(
            heard(sample)[0], whole[start : start + 500], **limit
        )


def test_events_are_drawn_where_they_are(tmp_path):
    write_samples(tmp_path / "in" / "a.wav", tone(500, 0.3, 0), RATE)
    (tmp_path / "e.csv").write_text(
        "path,start_s,end_s,class\na.wav,0.5,1.0,owl\na.wav,0.75,2.0,tit\n"
    )
    record(
        tmp_path / "in", tmp_path / "out", win_seconds=2,
        events=str(tmp_path / "e.csv"), event_targets="multi_hot,mask:mel",
        features={"mel": "log_mel(n_fft=64,hop=8,n_mels=8)"},
    )  # fmt: skip
    (sample,) = reported(tmp_path / "out")["samples"]
    assert sample["label"] == "owl, tit"
    owl, tit = sample["events"]
    assert (owl["label"], tit["label"]) == ("owl", "tit")
    found = [owl["from"], owl["to"], tit["from"], tit["to"]]
    assert found == pytest.approx([0.25, 0.5, 0.375, 1.0], abs=0.01)


def test_what_record_warns_of(tmp_path, cli):
    """Rates that differ, a class with one recording; and NaN, which JSON has not."""
    rows = []
    for k, (label, split, rate) in enumerate(
        [("a", "train", RATE), ("b", "train", RATE), ("a", "test", RATE),
         ("b", "test", RATE), ("b", "test", 2 * RATE)]
    ):  # fmt: skip
        path = tmp_path / "in" / f"{k}.wav"
        write_sound(path, RATE, rate=rate, seed=k)
        depth = 2.5 if k else None
        rows.append({"path": str(path), "kind": label, "part": split, "depth": depth})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    page = tmp_path / "page.html"
    words = ["record", "--input", tmp_path / "m.parquet", "--output", tmp_path / "out"]
    words += ["--win-len", 500, "--label-from", "kind", "--split-column", "part"]
    words += ["--feature", "level=rms(frame=100,hop=100)", "--report", page]
    assert f"{page}: shows the data set" in cli(*words).out
    shown = contents(page)
    titles = [problem["title"] for problem in shown["problems"]]
    assert "split test has a single recording of a" in titles
    assert any("2 sample rates" in title for title in titles)
    assert {sample["values"]["depth"] for sample in shown["samples"]} == {"nan", "2.5"}
    assert all(sample["sound"] for sample in shown["samples"])


def test_data_sets_of_elements(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ({"x": np.full((4, 3), k, np.float32), "word": "a"} for k in range(9))
    record_examples(rows, "a")
    assert report("a", clips=4) == str(tmp_path / "a-report.html")
    shown = contents(tmp_path / "a-report.html")
    assert shown["metadata"]["splits"]["records"]["examples"] == 9
    assert len(shown["samples"]) == 4
    assert shown["audio"] == {}


def test_wrong_calls(mess, tmp_path):
    page = tmp_path / "a.html"
    with raises(InputError, naming=tmp_path / "none"):
        report(tmp_path / "none", page)
    with raises(OptionError, "clips"):
        report(mess / "out", page, clips=-1)
    with raises(OptionError, "output"):
        report(mess / "out", mess / "out" / "metadata.json")
    broken = shutil.copytree(mess / "out", tmp_path / "out")
    (broken / "manifest.parquet").write_bytes(b"")
    with raises(InputError, naming="manifest.parquet"):
        report(broken, page)
    assert not page.exists()


# In a browser.


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, page):
    """The page in a tab, which must not complain."""
    tab = chromium.new_page(viewport={"width": 1280, "height": 900})
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.goto(page.as_uri())
    yield tab
    tab.close()
    assert said == []


@needs_browser
def test_what_is_wrong_is_on_the_first_screen(opened):
    for title in (
        "Same audio across splits", "10 files without any sound",
        "Class hot is clipped", "constant bin",
    ):  # fmt: skip
        box = opened.get_by_role("heading", name=title).first.bounding_box()
        assert box["y"] + box["height"] < 900, title
    assert BAD_NAME.replace("/", "-") in opened.inner_text("#sample-cards")


# Without loudspeakers, the clock of sound jumps: what happens is written down.
WATCH = """
seen = {pressed: [], clock: 0};
new MutationObserver((changes) => {
  for (const {target, type} of changes) {
    if (type == "attributes") seen.pressed.push(target.getAttribute("aria-pressed"));
    else if (target.tagName == "OUTPUT") seen.clock += 1;
  }
}).observe(document.body, {
  subtree: true, childList: true, attributes: true, attributeFilter: ["aria-pressed"],
});
"""


@needs_browser
def test_an_example_is_heard_by_one_click(opened):
    opened.evaluate(WATCH)
    opened.locator(".problem", has_text="Class hot").get_by_role("button").first.click()
    card = opened.locator(".sample.found")
    # It plays, the cursor moves, and it ends.
    opened.wait_for_function("seen.pressed.join() == 'true,false' && seen.clock > 3")
    drawn = """canvas => new Set(canvas.getContext('2d')
               .getImageData(0, 0, 640, 150).data).size"""
    assert card.locator("canvas.spectrum").evaluate(drawn) > 50


@needs_browser
def test_filters_and_keys(opened):
    shown = opened.locator(".sample:visible")
    everything = shown.count()
    opened.select_option("#by-class", "hot")
    assert 0 < shown.count() < everything
    assert set(shown.locator("h3").all_inner_texts()) == {"hot"}
    opened.fill("#search", "nothing has this name")
    assert shown.count() == 0
    assert "0 of" in opened.inner_text("#listen-count")
    opened.click("#reset")
    assert shown.count() == everything
    opened.locator("h2", has_text="Listen").click()
    opened.evaluate("document.activeElement.blur()")
    for key, number in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0)):
        opened.keyboard.press(key)
        assert opened.locator(".found").get_attribute("data-index") == str(number)
    opened.evaluate(WATCH)
    opened.keyboard.press("+")
    opened.keyboard.press(" ")
    opened.wait_for_function("seen.pressed[0] == 'true'")
    opened.wait_for_function("cards[0].view.to - cards[0].view.from == 0.5")


@needs_browser
def test_a_link_leads_to_an_example(opened, page):
    last, first = contents(page)["samples"][-1], contents(page)["samples"][0]
    name = f"{last['split']}-{last['number']}"
    opened.goto(f"{page.as_uri()}#{name}")
    opened.wait_for_function(f"document.querySelector('.found')?.id == '{name}'")
    opened.reload()
    opened.wait_for_function(f"document.querySelector('.found')?.id == '{name}'")
    assert opened.locator(".found").bounding_box()["y"] < 900
    # An example links to itself, also if a filter hides others.
    opened.evaluate("reveal(0, false)")
    opened.locator(".found a").click()
    assert opened.url.endswith(f"#{first['split']}-{first['number']}")


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_hinders_readers(opened, theme):
    from axe_playwright_python.sync_playwright import Axe

    opened.evaluate(f"useTheme('{theme}')")
    found = Axe().run(opened)
    assert found.violations_count == 0, found.generate_report()
    # Nothing is wider than a phone.
    opened.set_viewport_size({"width": 390, "height": 800})
    opened.wait_for_function("document.documentElement.scrollWidth <= 390")
