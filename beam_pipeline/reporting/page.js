"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const { metadata } = data;
// The data set by its metadata.json: splits and features by name.
const splits = Object.entries(metadata.splits).map(([name, split]) => ({ name, ...split }));
const features = Object.entries(metadata.features).map(([name, spec]) => ({ name, ...spec }));
const trained = splits.find((s) => s.name === "train") || splits[0];
const byId = (id) => document.getElementById(id);

// Elements. Texts of the data set are always text, never HTML.

function element(name, options, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options || {})) {
    if (value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
function shape(name, options, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const count = (n) => Number(n).toLocaleString("en");
const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const percent = (x) => (100 * x).toFixed(1) + " %";
function brief(x) {
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x)) return count(x);
  return Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(4));
}
function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < 4) { bytes /= 1000; unit += 1; }
  return `${bytes.toFixed(unit ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}
function hours(h) {
  if (h >= 1) return `${h.toFixed(1)} h`;
  return h * 60 >= 1 ? `${(h * 60).toFixed(1)} min` : `${(h * 3600).toFixed(1)} s`;
}

function table(caption, header, rows) {
  const head = header.map((name) =>
    element("th", { scope: "col", class: name.number ? "number" : null }, name.text || name));
  const body = rows.map((row) => element("tr", {}, row.map((cell, k) => {
    const plain = typeof cell === "string" || typeof cell === "number" || cell instanceof Node;
    const value = plain ? cell : String(cell);
    return element("td", { class: header[k].number ? "number" : "text" }, value);
  })));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)));
}
const number = (text) => ({ text, number: true });

function bar(share, asked) {
  const made = element("span", { class: "bar" }, element("span", { style: `width:${100 * Math.min(1, share)}%` }));
  if (asked !== null && asked !== undefined) {
    made.append(element("i", { style: `left:${100 * Math.min(1, asked)}%`, title: `asked for: ${percent(asked)}` }));
  }
  return made;
}

function histogram(label, edges, counts, unit) {
  const width = 320, height = 90, most = Math.max(...counts, 1), step = width / counts.length;
  const bars = counts.map((n, k) => shape("rect", {
    class: "b", x: (k * step).toFixed(2), width: Math.max(step - 1, 0.5).toFixed(2),
    y: (height * (1 - n / most)).toFixed(2), height: (height * n / most).toFixed(2),
  }, shape("title", {}, `${brief(edges[k])} to ${brief(edges[k + 1])}${unit}: ${count(n)}`)));
  const low = shape("text", { x: 0, y: height + 12 });
  low.textContent = brief(edges[0]) + unit;
  const high = shape("text", { x: width, y: height + 12, "text-anchor": "end" });
  high.textContent = brief(edges[edges.length - 1]) + unit;
  return shape("svg", { viewBox: `0 0 ${width} ${height + 16}`, role: "img", "aria-label": label }, ...bars, low, high);
}

function spread(label, mean, std) {
  const width = 320, height = 90;
  const low = Math.min(...mean.map((m, k) => m - std[k])), high = Math.max(...mean.map((m, k) => m + std[k]));
  const x = (k) => (mean.length > 1 ? k / (mean.length - 1) : 0.5) * width;
  const y = (v) => height * (1 - (v - low) / (high - low || 1));
  const line = mean.map((m, k) => `${k ? "L" : "M"}${x(k).toFixed(1)},${y(m).toFixed(1)}`).join("");
  const upper = mean.map((m, k) => `${k ? "L" : "M"}${x(k).toFixed(1)},${y(m + std[k]).toFixed(1)}`);
  const lower = mean.map((m, k) => `L${x(k).toFixed(1)},${y(m - std[k]).toFixed(1)}`).reverse();
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    shape("path", { class: "band", d: upper.join("") + lower.join("") + "Z" }), shape("path", { d: line }));
}

// What it is

function showHead() {
  byId("name").textContent = data.name;
  const parts = [counted(splits.reduce((sum, s) => sum + s.examples, 0), "example")];
  if (data.audio.clips) parts.unshift(`${hours(data.audio.hours)} of audio in ${counted(data.audio.clips, "clip")}`);
  if (metadata.num_classes) parts.push(`${count(metadata.num_classes)} classes`);
  parts.push(`${counted(data.shards.count, "shard")}, ${size(data.shards.bytes)}`);
  const rejected = metadata.inputs ? metadata.inputs.rejected : 0;
  if (rejected) parts.push(`${counted(rejected, "clip")} rejected`);
  byId("summary").textContent = parts.join(" · ");
}

// A text in which `commands` are marked.
const marked = (text) => text.split("`").map((part, k) => k % 2 ? element("code", {}, part) : part);

function listOf(files) {
  return element("ul", { tabindex: "0" }, files.map((file) => element("li", {}, file)));
}

const ENTRIES_SHOWN = 3;
const unchecked = () => data.unchecked.map((text) => element("p", {}, marked(text)));

function showProblems() {
  const place = byId("problem-cards");
  for (const problem of data.problems) {
    const card = element("article", { class: `problem ${problem.level}` },
      element("span", { class: "mark" }, problem.level === "wrong" ? "Wrong" : "Look at it"),
      element("h3", {}, problem.title), element("p", {}, marked(problem.text)));
    if (problem.samples.length) {
      card.append(element("p", {}, problem.samples.map((k) => [
        element("button", { type: "button", onclick: () => reveal(k, true) }, `Hear ${nameOf(data.samples[k])}`), " "])));
    }
    const first = problem.files.slice(0, ENTRIES_SHOWN), rest = problem.files.slice(ENTRIES_SHOWN);
    if (first.length) card.append(listOf(first));
    if (rest.length) {
      card.append(element("details", {}, element("summary", {}, `and ${count(rest.length)} more`), listOf(rest)));
    }
    place.append(card);
  }
  if (!data.problems.length) {
    place.append(element("article", { class: "problem fine" }, element("span", { class: "mark" },
      data.unchecked.length ? "Nothing found in what was looked for" : "Nothing found"), unchecked()));
  } else if (data.unchecked.length) {
    place.append(element("article", { class: "problem" }, element("span", { class: "mark" }, "Not everything was looked for"),
      unchecked()));
  }
}

const nameOf = (sample) => sample.path.split("/").pop() || `${sample.split} ${sample.number}`;

function showOverview() {
  const place = byId("overview-body"), audio = data.audio;
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const seconds = sum(splits.map((s) => s.seconds || 0)), allAsked = sum(Object.values(data.asked));
  const share = (s) => (s.seconds || 0) / seconds;
  const asked = (s) => s.name in data.asked ? data.asked[s.name] / allAsked : null;
  const header = ["split", number("examples"), number("clips"), number("length of examples"), number("share"), "share, and what was asked for"];
  place.append(table("Splits", header, splits.map((s) => [
    s.name, count(s.examples), s.clips ? count(s.clips) : "", s.seconds ? hours(s.seconds / 3600) : "",
    seconds ? percent(share(s)) + (asked(s) === null ? "" : ` (asked: ${percent(asked(s))})`) : "",
    seconds ? bar(share(s), asked(s)) : ""])));
  const held = (s, c) => (s.examples_per_class || {})[c] || 0;
  const classes = metadata.classes.filter((c) => splits.some((s) => c in (s.examples_per_class || {})));
  if (classes.length) {
    const totals = classes.map((c) => sum(splits.map((s) => held(s, c))));
    const most = Math.max(...totals, 1);
    const rows = classes.map((c, k) => [c, count(totals[k]), bar(totals[k] / most, null),
      ...splits.map((s) => count(held(s, c)))]);
    place.append(element("h3", {}, "Examples of each class"),
      table("Examples of each class", ["class", number("all"), "of the largest", ...splits.map((s) => number(s.name))], rows));
  }
  if (!audio.clips) return;
  const columns = element("div", { class: "columns" });
  columns.append(element("div", {}, element("h3", {}, "Lengths of the clips"),
    histogram("Histogram of the lengths of the clips", audio.lengths.edges, audio.lengths.counts, " s")));
  for (const [key, title, noun] of [["rates", "Sample rates", "rate"], ["channels", "Channels", "channels"], ["formats", "Formats", "format"]]) {
    columns.append(element("div", {}, element("h3", {}, title),
      table(title, [noun, number("clips")], Object.entries(audio[key]).map(([name, n]) => [name, count(n)]))));
  }
  place.append(columns);
  const left = Object.entries(metadata.inputs.left_out || {}).filter(([, n]) => n);
  const windows = sum(splits.map((s) => s.left_out));
  if (windows) left.push(["windows, by keep or no_event", windows]);
  if (audio.without_windows) left.push(["clips without any window", audio.without_windows]);
  if (left.length) {
    place.append(element("h3", {}, "Left out"), table("Left out", ["why", number("number")], left.map(([why, n]) => [why, count(n)])));
  }
}

function showFeatures() {
  const place = byId("features-body");
  const dims = (f) => f.shape === null ? "of any shape" : f.shape.length ? f.shape.map((n) => n === null ? "?" : n).join(" × ") : "scalar";
  const statistics = ((trained || {}).statistics || {}).features || {};
  const plain = features.filter((f) => !statistics[f.name]);
  for (const f of features) {
    if (plain.includes(f)) continue;
    const box = element("div", {}, element("h3", {}, f.name),
      element("p", { class: "soft" }, `${f.dtype} ${dims(f)}, stored as ${f.encoding}: ${f.description}`));
    const columns = element("div", { class: "columns" });
    const found = statistics[f.name], bins = (found || {}).bins || {};
    if (found) {
      const numbers = ["count", "mean", "std", "min", "max", "nonfinite_share"].filter((key) => key in found);
      const rows = [...numbers.map((key) => [key, found[key]]), ...Object.entries(found.quantiles || {}).map(([q, v]) => [`quantile ${q}`, v])];
      columns.append(element("div", {}, table(`Statistics of ${f.name} in ${trained.name}`, [`in ${trained.name}`, number("value")],
        rows.map(([key, value]) => [key.replace(/_/g, " "), brief(value)]))));
    }
    if (bins.mean && bins.mean.length > 1) {
      columns.append(element("div", {}, element("p", { class: "soft" }, `Mean of each of ${bins.mean.length} bins, and a standard deviation around it`),
        spread(`Mean and standard deviation of the bins of ${f.name}`, bins.mean, bins.std)));
    }
    if (columns.childElementCount) box.append(columns);
    place.append(box);
  }
  if (plain.length) {
    place.append(element("h3", {}, "Others"), table("Others", ["name", "type", "shape", "stored as", "what it is"],
      plain.map((f) => [f.name, f.dtype, dims(f), f.encoding, f.description])));
  }
}

function showRejects() {
  const place = byId("rejects-body");
  if (!data.rejects.length) { place.append(element("p", {}, "No clip was rejected.")); return; }
  for (const kind of data.rejects) {
    const shown = kind.files.map((f) => `${f.path}: ${f.reason}`);
    if (kind.count > shown.length) shown.push(`... and ${count(kind.count - shown.length)} more in rejected.jsonl`);
    place.append(element("details", { open: data.rejects.length < 4 ? "" : null },
      element("summary", {}, `${kind.error}: ${count(kind.count)}`), listOf(shown)));
  }
}

function showFiles() {
  const place = byId("files-body"), shards = splits.flatMap((s) => s.shards);
  const rows = (values) => Object.entries(values).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
  place.append(element("p", { class: "soft" }, data.folder), element("h3", {}, "Options that were given"),
    table("Options that were given", ["option", "value"], rows(data.given)),
    element("h3", {}, "Written with"), table("Written with", ["package", "version"], rows(metadata.writer)),
    element("h3", {}, "Shards"), table("Shards", ["file", number("examples"), number("size")],
      shards.map((s) => [s.file, count(s.examples), size(s.bytes)])));
  if (data.shards.count > shards.length) {
    place.append(element("p", { class: "soft" }, `... and ${count(data.shards.count - shards.length)} more shards.`));
  }
}

// Sound

let speaker = null, playing = null;

function viridis(x) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const at = Math.min(Math.max(x, 0), 1) * 4, k = Math.min(Math.floor(at), 3), r = at - k;
  return stops[k].map((c, i) => c + r * (stops[k + 1][i] - c));
}
const PALETTE = Uint8ClampedArray.from({ length: 256 * 3 }, (_, i) => viridis(Math.floor(i / 3) / 255)[i % 3]);

async function decoded(sample) {
  if (sample.samples) return sample.samples;
  const sound = sample.sound, text = atob(sound.flac), bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
  // A context at the rate of the file: nothing is resampled.
  const buffer = await new OfflineAudioContext(1, 1, sound.declared_hz).decodeAudioData(bytes.buffer);
  sample.samples = buffer.getChannelData(0).map((v) => v * sound.gain);
  return sample.samples;
}

// The power spectrum, in place, of 2^k complex numbers (Cooley and Tukey, 1965).
function transform(re, im) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i += 1) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) { [re[i], re[j]] = [re[j], re[i]]; [im[i], im[j]] = [im[j], im[i]]; }
  }
  for (let length = 2; length <= n; length <<= 1) {
    const angle = -2 * Math.PI / length, half = length >> 1;
    for (let i = 0; i < n; i += length) {
      for (let k = 0; k < half; k += 1) {
        const c = Math.cos(angle * k), s = Math.sin(angle * k), a = i + k, b = a + half;
        const x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        re[b] = re[a] - x; im[b] = im[a] - y; re[a] += x; im[a] += y;
      }
    }
  }
}

function drawSpectrum(canvas, samples, view) {
  const width = canvas.width, height = canvas.height;
  const first = view.from * samples.length, last = view.to * samples.length;
  let n = 256;
  while (n < 2048 && n * 12 < last - first) n *= 2;
  const image = canvas.getContext("2d").createImageData(width, height);
  const levels = new Float32Array(width * (n / 2)), re = new Float64Array(n), im = new Float64Array(n);
  let most = -Infinity;
  for (let x = 0; x < width; x += 1) {
    const middle = Math.floor(first + (x + 0.5) / width * (last - first));
    // Frames are entirely within the sound: one that reaches beyond an end would show a click there.
    const start = Math.max(0, Math.min(middle - n / 2, samples.length - n));
    for (let j = 0; j < n; j += 1) {
      const value = samples[start + j] || 0;
      re[j] = value * (0.5 - 0.5 * Math.cos(2 * Math.PI * j / n)); im[j] = 0;
    }
    transform(re, im);
    for (let k = 0; k < n / 2; k += 1) {
      const level = 10 * Math.log10(re[k] * re[k] + im[k] * im[k] + 1e-12);
      levels[x * (n / 2) + k] = level;
      if (level > most) most = level;
    }
  }
  for (let x = 0; x < width; x += 1) {
    for (let y = 0; y < height; y += 1) {
      const k = Math.min(Math.floor((1 - (y + 0.5) / height) * (n / 2)), n / 2 - 1);
      const grey = Math.round(255 * Math.min(Math.max((levels[x * (n / 2) + k] - most + 80) / 80, 0), 1));
      const at = 4 * (y * width + x);
      for (let c = 0; c < 3; c += 1) image.data[at + c] = PALETTE[3 * grey + c];
      image.data[at + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawWave(canvas, samples, view) {
  const width = canvas.width, height = canvas.height, draw = canvas.getContext("2d");
  draw.clearRect(0, 0, width, height);
  draw.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--bar");
  const first = view.from * samples.length, last = view.to * samples.length;
  let peak = 1e-9;
  for (const value of samples) if (Math.abs(value) > peak) peak = Math.abs(value);
  for (let x = 0; x < width; x += 1) {
    const a = Math.floor(first + x / width * (last - first)), b = Math.max(a + 1, Math.floor(first + (x + 1) / width * (last - first)));
    let low = 0, high = 0;
    for (let k = a; k < b && k < samples.length; k += 1) { low = Math.min(low, samples[k]); high = Math.max(high, samples[k]); }
    const top = height / 2 * (1 - high / peak), bottom = height / 2 * (1 - low / peak);
    draw.fillRect(x, top, 1, Math.max(bottom - top, 1));
  }
}

class Card {
  constructor(sample, index) {
    Object.assign(this, { sample, index, view: { from: 0, to: 1 }, position: 0, source: null });
    const start = sample.start_s === null ? "" : ` from ${brief(sample.start_s)} s`;
    // Links lead here: report.html#test-12.
    this.id = `${sample.split}-${sample.number}`;
    const link = element("a", { href: `#${this.id}` }, `${sample.split}, example ${count(sample.number)}`);
    const facts = [];
    if (sample.copy) facts.push(` · copy ${sample.copy}`);
    if (sample.peak !== null) facts.push(` · peak ${brief(sample.peak)}`);
    this.node = element("article", { class: "sample", id: this.id, "data-index": index, tabindex: "-1" },
      element("h3", {}, sample.label || "example"),
      element("p", { class: "path" }, `${sample.path}${start}`, element("br"), link, facts),
      element("p", { class: "path" }, sample.why.map((why) => element("span", { class: "tag" }, why))));
    if (sample.sound) this.addSound();
    else if (sample.picture) this.addPicture();
    const values = Object.entries(sample.values);
    if (values.length) {
      this.node.append(element("dl", {}, values.map(([name, value]) => [element("dt", {}, name),
        element("dd", {}, value)])));
    }
  }

  get seconds() { return this.samples.length / this.sample.sound.rate_hz; }

  addSound() {
    const name = nameOf(this.sample), rate = this.sample.sound.rate_hz;
    this.wave = element("canvas", { class: "wave", width: 640, height: 46, role: "img", "aria-label": `Waveform of ${name}` });
    this.back = document.createElement("canvas");
    this.back.width = 640; this.back.height = 150;
    this.spectrum = element("canvas", { class: "spectrum", width: 640, height: 150, role: "img",
      "aria-label": `Spectrogram of ${name}, 0 to ${rate / 2} Hz` });
    for (const canvas of [this.wave, this.spectrum]) {
      canvas.addEventListener("click", (event) => {
        const box = canvas.getBoundingClientRect();
        this.position = this.view.from + (event.clientX - box.left) / box.width * (this.view.to - this.view.from);
        this.play();
      });
    }
    this.button = element("button", { type: "button", "aria-label": `Play ${name}`, onclick: () => this.toggle() }, "▶ Play");
    this.clock = element("output", {}, "");
    const zoom = (factor, label, sign) => element("button", { type: "button", "aria-label": `${label}: ${name}`, onclick: () => this.zoom(factor) }, sign);
    this.node.append(this.wave, this.spectrum, element("div", { class: "tools" },
      this.button, zoom(0.5, "Zoom in", "+"), zoom(2, "Zoom out", "−"), this.clock));
    const notes = [];
    if (this.sample.sound.declared_hz < rate) notes.push(`played ${brief(rate / this.sample.sound.declared_hz)} times slower`);
    if (this.sample.sound.cut_s) notes.push(`the first part of ${brief(this.sample.sound.cut_s)} s`);
    if (notes.length) this.node.append(element("p", { class: "soft" }, notes.join("; ")));
  }

  async draw() {
    if (!this.sample.sound) return;
    this.samples = await decoded(this.sample);
    drawWave(this.wave, this.samples, this.view);
    drawSpectrum(this.back, this.samples, this.view);
    this.drawCursor();
    this.node.dataset.drawn = "yes";
  }

  drawCursor() {
    const draw = this.spectrum.getContext("2d"), width = 640, height = 150;
    draw.drawImage(this.back, 0, 0);
    const place = (share) => (share - this.view.from) / (this.view.to - this.view.from) * width;
    draw.font = "11px sans-serif";
    for (const event of this.sample.events) {
      draw.strokeStyle = draw.fillStyle = "#ffffff";
      draw.strokeRect(place(event.from), 2, place(event.to) - place(event.from), height - 4);
      draw.fillText(event.label, Math.max(place(event.from), 0) + 3, 13);
    }
    draw.fillStyle = "#ff5a1f";
    draw.fillRect(place(this.position) - 1, 0, 2, height);
    const at = this.position * this.seconds;
    this.clock.textContent = `${at.toFixed(2)} of ${this.seconds.toFixed(2)} s, up to ${brief(this.sample.sound.rate_hz / 2)} Hz`;
  }

  zoom(factor) {
    const length = Math.min(1, Math.max((this.view.to - this.view.from) * factor, 1 / 64));
    const from = Math.min(Math.max(this.position - length / 2, 0), 1 - length);
    this.view = { from, to: from + length };
    this.draw();
  }

  toggle() { if (this.source) this.stop(); else this.play(); }

  async play() {
    if (playing) playing.stop();
    await this.draw();
    speaker = speaker || new AudioContext();
    await speaker.resume();
    const buffer = speaker.createBuffer(1, this.samples.length, this.sample.sound.declared_hz);
    let peak = 0;
    for (const value of this.samples) peak = Math.max(peak, Math.abs(value));
    // What exceeds full scale is made quieter, not clipped once more.
    buffer.copyToChannel(peak > 1 ? this.samples.map((v) => v / peak) : this.samples, 0);
    this.source = speaker.createBufferSource();
    this.source.buffer = buffer;
    this.source.connect(speaker.destination);
    if (this.position >= 0.999) this.position = 0;
    const begun = speaker.currentTime, from = this.position;
    this.source.onended = () => { if (playing === this) { this.position = 0; this.stop(); } };
    this.source.start(0, from * buffer.duration);
    playing = this;
    this.button.textContent = "■ Stop";
    this.button.setAttribute("aria-pressed", "true");
    const move = () => {
      if (playing !== this) return;
      this.position = Math.min(from + (speaker.currentTime - begun) / buffer.duration, 1);
      this.drawCursor();
      requestAnimationFrame(move);
    };
    requestAnimationFrame(move);
  }

  stop() {
    if (!this.source) return;
    const source = this.source;
    this.source = null;
    if (playing === this) playing = null;
    source.onended = null;
    source.stop();
    this.button.textContent = "▶ Play";
    this.button.setAttribute("aria-pressed", "false");
    this.drawCursor();
  }
}

let cards = [], current = -1;

function select(name, values) {
  byId(name).append(element("option", { value: "" }, "all"), ...values.map((v) => element("option", { value: v }, v)));
}

function showSamples() {
  cards = data.samples.map((sample, k) => new Card(sample, k));
  byId("sample-cards").append(...cards.map((card) => card.node));
  const distinct = (values) => [...new Set(values)].filter(Boolean).sort();
  select("by-class", distinct(data.samples.map((s) => s.label)));
  select("by-split", distinct(data.samples.map((s) => s.split)));
  select("by-why", distinct(data.samples.flatMap((s) => s.why)));
  const audible = data.samples.some((s) => s.sound);
  byId("listen-hint").textContent = (audible ? "Space plays, the arrows go from one example to the next, + and − zoom. A click in a picture plays from there. " : "") +
    `${count(data.samples.length)} of ${count(data.measured)} examples that were read and measured, drawn by a seed.`;
  for (const name of ["search", "by-class", "by-split", "by-why"]) byId(name).addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => {
    for (const name of ["search", "by-class", "by-split", "by-why"]) byId(name).value = "";
    filter();
  });
  // Spectrograms are drawn when they come into view.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); cards[Number(entry.target.dataset.index)].draw(); }
    }
  }, { rootMargin: "300px" });
  for (const card of cards) seen.observe(card.node);
  filter();
}

function filter() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const card of cards) {
    const s = card.sample;
    const text = [s.path, s.label, s.split, ...s.why, ...Object.values(s.values).map(String)].join(" ").toLowerCase();
    const fits = words.every((word) => text.includes(word)) &&
      (!byId("by-class").value || s.label === byId("by-class").value) &&
      (!byId("by-split").value || s.split === byId("by-split").value) &&
      (!byId("by-why").value || s.why.includes(byId("by-why").value));
    card.node.hidden = !fits;
    shown += fits;
  }
  byId("listen-count").textContent = `${count(shown)} of ${count(cards.length)} shown`;
}

function reveal(index, play) {
  if (cards[index].node.hidden) byId("reset").click();
  for (const card of cards) card.node.classList.toggle("found", card.index === index);
  current = index;
  cards[index].node.scrollIntoView({ block: "center", behavior: "instant" });
  cards[index].node.focus({ preventScroll: true });
  if (play && cards[index].sample.sound) cards[index].play();
}

// The example that the address names, as in report.html#test-12.
function revealLinked() {
  const index = cards.findIndex((card) => `#${card.id}` === location.hash);
  if (index >= 0) reveal(index, false);
}
window.addEventListener("hashchange", revealLinked);

document.addEventListener("keydown", (event) => {
  const inField = event.target.closest("input, select, button, summary, a, textarea, [role=region], ul");
  if (event.ctrlKey || event.metaKey || event.altKey || (inField && inField.tagName !== "A")) return;
  const visible = cards.filter((card) => !card.node.hidden);
  if (!visible.length) return;
  const here = visible.findIndex((card) => card.index === current);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const card = visible[Math.max(here, 0)];
  if (step) reveal(visible[Math.min(Math.max(here + step, 0), visible.length - 1)].index, false);
  else if (event.key === " ") { current = card.index; if (card.sample.sound) card.toggle(); }
  else if (event.key === "+" && card.sample.sound) card.zoom(0.5);
  else if (event.key === "-" && card.sample.sound) card.zoom(2);
  else return;
  event.preventDefault();
});

function useTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  for (const card of cards) if (card.samples) drawWave(card.wave, card.samples, card.view);
}
byId("theme").addEventListener("click", () => useTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
useTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

showHead();
showProblems();
showOverview();
showSamples();
showFeatures();
showRejects();
showFiles();
revealLinked();
