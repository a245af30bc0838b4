"use strict";
// Draws what `contents` says (tempo/runtime/report/contents.py). Text of the user's becomes text nodes alone, no markup.
(() => {
  const data = JSON.parse(document.getElementById("contents").textContent);
  const NOWHERE = -1;
  const main = document.getElementById("main");

  // -- small parts ------------------------------------------------------------------------------------------------

  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
      else if (name === "style") for (const [key, of] of Object.entries(value)) made.style.setProperty(key, of);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== "") made.append(child);
    return made;
  }
  function svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }
  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0, value = count;
    while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
    return `${at ? value.toPrecision(3).replace(/e\+3$/, "000") : value}\u00a0${units[at]}`.replace("1.02e+3", "1020");
  }
  const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
  const short = (name) => (name.length > 40 ? `${name.slice(0, 38)}…` : name);
  const shape = (dtype, extents) => `${dtype}[${extents.join(", ")}]`;
  function listed(words) {
    return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
  }

  function placeText(place) {
    if (place === NOWHERE) return "";
    const [file, line] = data.places[place];
    return `${data.files[file].short}:${line}`;
  }
  function sourceText(place) {
    if (place === NOWHERE) return "";
    const [file, line] = data.places[place];
    return (data.files[file].lines[line] || "").trim();
  }
  /** A link to the group of a line in the graph. */
  function placeLink(place) {
    if (place === NOWHERE) return null;
    const [file, line] = data.places[place];
    const act = (event) => { event.preventDefault(); event.stopPropagation(); showPlace(place); };
    return el("a", { class: "place", href: `#line-${place}`, title: `${data.files[file].path}:${line}\n${sourceText(place)}`, on: { click: act } }, placeText(place));
  }
  function button(text, act) { return el("button", { class: "more", type: "button", on: { click: act } }, text); }
  /** As many of the items as fit a glance; the rest on demand. */
  function someOf(into, items, most, draw, what) {
    const add = (from, to) => items.slice(from, to).forEach((each) => into.append(draw(each)));
    add(0, most);
    if (items.length <= most) return into;
    const host = into.tagName === "TBODY" ? el("tr", {}, el("td", { colspan: "9" })) : el("div", {});
    const more = button(`all ${plural(items.length, what)}`, () => { host.remove(); add(most, items.length); });
    (host.firstChild || host).append(more);
    into.append(host);
    return into;
  }
  function section(id, title, ...children) {
    const made = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
    main.append(made);
    document.getElementById("nav").append(el("a", { href: `#${id}` }, title));
    return made;
  }
  /** A `details` whose inside is made when it is opened first. */
  function folded(attributes, head, fill) {
    const inside = el("div", {});
    const made = el("details", attributes, el("summary", { on: { click: () => made.fill() } }, head), inside);
    made.fill = () => { if (!made.filled) { made.filled = true; fill(inside); } };
    made.addEventListener("toggle", () => { if (made.open) made.fill(); });
    return made;
  }
  function open(each) { each.fill(); each.open = true; }

  // -- buffers and what is kept -----------------------------------------------------------------------------------

  const buffers = new Map(data.buffers.map((each) => [each.id, each]));
  const WAYS = {
    given: "given, there all the time", returned: "returned at the end", full: "kept: all points of a dim",
    window: "kept: the last points of a dim", point: "kept: one value, replaced", passing: "in passing: no buffer holds it",
  };
  const wayOfTrack = (each) => (buffers.has(each.buffer) ? buffers.get(each.buffer).way : each.role === "between" ? "passing" : each.role);
  function legend(ways) {
    return el("ul", { class: "legend" }, ways.map((way) => el("li", {}, el("span", { class: `key ${way}` }), WAYS[way])));
  }
  function readersOf(each, most) {
    const found = each.readers.slice(0, most).map((reader, at) => [at ? ", " : "", el("span", { class: "mono", title: reader.name }, short(reader.name)), reader.place === NOWHERE ? "" : " ", placeLink(reader.place)]);
    const rest = each.readers.length - most;
    return found.length ? ["read by ", found, rest > 0 ? ` and ${rest} more` : ""] : [];
  }
  /** Why it is kept: the reason, where one is known; else who reads it. */
  function whyOf(each, most) {
    if (!each.why.length) return readersOf(each, most);
    return each.why.map((reason, at) => [at ? "; " : "", reason.text === "returned" ? "the program returns it" : reason.text, reason.place === NOWHERE ? "" : " ", placeLink(reason.place)]);
  }

  // -- summary ----------------------------------------------------------------------------------------------------

  function summary() {
    const sizes = Object.entries(data.sizes).map(([name, value]) => `${name} = ${value.toLocaleString("en")}`);
    const memory = data.memory;
    document.getElementById("program").textContent = data.program;
    const held = data.buffers.filter((each) => each.bytes && !["input", "constant"].includes(each.role));
    const largest = [...held].sort((a, b) => b.bytes - a.bytes).slice(0, 3);
    const made = el("section", { id: "summary" },
      el("h1", {}, data.program),
      el("p", {}, "Compiled for ", el("b", {}, data.backend), `, in the order of the scheduler ${data.scheduler}`, sizes.length ? `, at ${listed(sizes)}. ` : ". ",
        "A run holds at most ", el("b", {}, bytes(memory.peak)), ` at once: ${bytes(memory.given)} that it is given, ${bytes(memory.returned)} that it returns and ${bytes(memory.working)} in between`,
        memory.pool ? `; ${bytes(memory.pool)} more lie in the pool of the host` : "", "."),
      data.dims.length ? el("ul", { class: "dims" }, data.dims.map((dim) => el("li", {}, el("b", {}, dim.name), ` ${plural(dim.points, "point")}: ${dim.how}`))) : null,
      largest.length ? el("h3", {}, "The largest that it makes and keeps: how long, and why") : null,
      el("ol", { class: "kept" }, largest.map((each) => el("li", { class: each.way },
        el("span", { class: "size" }, bytes(each.bytes)), el("span", { class: "name" }, each.name), " ", placeLink(each.place),
        el("pre", { title: sourceText(each.place) }, sourceText(each.place)),
        el("p", {}, el("b", {}, each.kept)), el("p", { class: "soft" }, whyOf(each, 3))))),
      el("h3", {}, "All that is kept, by how long"), keptTable());
    main.append(made);
    document.getElementById("nav").append(el("a", { href: "#summary" }, "summary"));
  }

  /** Buffers that are kept alike, in a row: the question is how long, before it is which. */
  function keptTable() {
    const alike = new Map();
    for (const each of data.buffers) {
      const key = `${each.way} ${each.kept}`;
      if (!alike.has(key)) alike.set(key, []);
      alike.get(key).push(each);
    }
    const sum = (those) => those.reduce((total, each) => total + each.bytes, 0);
    const rows = [...alike.values()].sort((a, b) => sum(b) - sum(a));
    const body = el("tbody", {});
    someOf(body, rows, 7, (those) => {
      const named = [...those].sort((a, b) => /_\d+$/.test(a.name) - /_\d+$/.test(b.name) || b.bytes - a.bytes);
      const names = [...new Map(named.map((each) => [each.name, each])).values()];
      const reason = named.flatMap((each) => each.why).find((each) => each.text !== "returned");
      const why = reason ? el("div", { class: "soft" }, those.length > 1 ? "for one, " : "", reason.text, " ", placeLink(reason.place)) : null;
      return el("tr", {}, el("td", { class: "words" }, el("span", { class: `key ${those[0].way}` }), those[0].kept), el("td", { class: "number" }, bytes(sum(those))),
        el("td", { class: "words" }, names.slice(0, 5).map((each, at) => [at ? ", " : "", el("a", { class: "mono plain", href: `#buffer-${each.id}`, title: `${placeText(each.place)}\n${sourceText(each.place)}`, on: { click: (event) => { event.preventDefault(); showBuffer(each.id); } } }, each.name)]),
          names.length > 5 ? ` and ${names.length - 5} more` : "", why));
    }, "way");
    return el("div", { class: "scroll" }, el("table", { class: "ways" }, el("thead", {}, el("tr", {}, ["how much, and how long", "bytes", "of, and why"].map((each, at) => el("th", { scope: "col", class: at === 1 ? "number" : null }, each)))), body));
  }
  function showBuffer(id) {
    const track = lives.tracks.findIndex((each) => each.buffer === id);
    if (track !== NOWHERE) showTrack(track);
    const find = () => document.getElementById(`buffer-${id}`);
    if (!find()) { const more = bufferBody.querySelector(".more"); if (more) more.click(); }
    document.querySelectorAll("tr.chosen").forEach((each) => each.classList.remove("chosen"));
    if (!find()) return;
    find().classList.add("chosen");
    find().scrollIntoView({ block: "center" });
  }

  // -- memory over the schedule -----------------------------------------------------------------------------------

  const lives = data.lifetimes;
  const whole = Math.max(1, lives.live.length);
  const view = { from: 0, to: whole, buffers: 14, passing: 6 };
  const WIDE = 1000;
  const across = (moment) => ((moment - view.from) / (view.to - view.from)) * WIDE;

  function curvePath(most, high) {
    const columns = new Float64Array(WIDE + 1).fill(-1);
    for (let at = Math.max(0, view.from); at < view.to && at < lives.live.length; at += 1) {
      const first = Math.max(0, Math.floor(across(at))), last = Math.min(WIDE, Math.ceil(across(at + 1)));
      for (let x = first; x < Math.max(last, first + 1); x += 1) columns[x] = Math.max(columns[x], lives.live[at]);
    }
    let path = `M0 ${high}`, before = 0;
    for (let x = 0; x <= WIDE; x += 1) {
      const value = columns[x] < 0 ? before : columns[x];
      const y = (high - (value / most) * high).toFixed(1);
      path += `L${x} ${y}L${x + 1} ${y}`;
      before = value;
    }
    return `${path}L${WIDE + 1} ${high}Z`;
  }
  function spanPath(spans) {
    let path = "", end = -1;
    for (let at = 0; at < spans.length; at += 2) {
      const from = Math.max(0, across(spans[at])), to = Math.min(WIDE, across(spans[at + 1]));
      if (to < 0 || from > WIDE) continue;
      const first = Math.max(from, end), last = Math.max(to, from + 1.2);
      if (last <= end) continue;
      path += `M${first.toFixed(1)} 0H${last.toFixed(1)}V10H${first.toFixed(1)}Z`;
      end = last;
    }
    return path;
  }
  const turns = new Map(); // by variable of a loop the moments at which its iterations begin
  for (const band of lives.bands) {
    const name = band.text.replace(/^for (\S+) .*$/, "$1");
    if (band.begins.length) turns.set(name, [...(turns.get(name) || []), ...band.begins.map(([at]) => at)]);
  }
  /** Lines where another value takes the place of the last. */
  function anewPath(track) {
    const buffer = buffers.get(track.buffer);
    if (!buffer || !buffer.anew.length) return "";
    const inner = buffer.anew[buffer.anew.length - 1];
    let path = "", last = -9;
    for (const at of [...(turns.get(inner) || [])].sort((a, b) => a - b)) {
      const x = across(at);
      if (x <= Math.max(0, across(track.spans[0]) + 2) || x > WIDE || x - last < 4) continue;
      path += `M${x.toFixed(1)} 0V10`;
      last = x;
    }
    return path;
  }
  function drawing(height, ...parts) {
    const made = svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    made.append(...parts);
    return made;
  }

  let chart, detail, chosenTrack = null;
  function bandName(band) {
    const text = band.text.replace(/\b(\w+)\.size\b/g, (whole, name) => (name in data.sizes ? data.sizes[name] : whole));
    return band.host ? `${text} (host)` : text;
  }
  function bandRow() {
    const deepest = Math.max(0, ...lives.bands.map((band) => band.depth)) + 1;
    const lane = el("div", { class: "lane", style: { "--rows": deepest } });
    for (const band of lives.bands) {
      const left = Math.max(0, across(band.start)) / WIDE, right = Math.min(WIDE, across(band.stop)) / WIDE;
      if (right <= 0 || left >= 1 || right - left < 0.002) continue;
      const tiny = right - left < 0.02;
      const zoom = () => { view.from = band.start; view.to = Math.max(band.stop, band.start + 1); drawChart(); };
      lane.append(el("button", {
        type: "button", class: `band${band.host ? " host" : ""}${tiny ? " tiny" : ""}`, title: `${bandName(band)}\n${plural(band.stop - band.start, "step")} of making and letting go`,
        style: { left: `${left * 100}%`, width: `${(right - left) * 100}%`, top: `${band.depth * 1.35 + 0.05}rem` }, on: { click: zoom },
      }, tiny ? "" : bandName(band)));
    }
    return el("div", { class: "axis bands" }, el("div", { class: "soft", style: { "font-size": ".8rem" } }, "the order of the schedule →", el("br", {}), "click to look closer"), lane);
  }
  function curveRow() {
    const most = Math.max(1, ...sampled()) * 1.28; // room for what the peak is called
    const high = 150;
    const parts = [], marks = [];
    const unit = WIDE / Math.max(200, chart.clientWidth * 0.75); // a pixel
    let turned = 0; // where the last name ends, so that none is upon another
    for (const band of widestLoops()) for (const [moment, value] of band.begins) {
      const x = across(moment);
      if (x < 0 || x > WIDE) continue;
      parts.push(svg("path", { class: "tick", d: `M${x.toFixed(1)} 0V${high}` }));
      const name = band.text.replace(/^for (\S+) .*$/, "$1");
      const told = `${name} = ${value}`;
      if (value === null || x < turned) continue;
      marks.push(el("span", { class: "turn", style: { left: `${x / 10}%` } }, told));
      turned = x + (told.length * 7 + 8) * unit;
    }
    parts.push(svg("path", { class: "area", d: curvePath(most, high) }));
    const lane = el("div", { class: "lane" }, drawing(high, ...parts), marks);
    const at = across(lives.peak);
    if (lives.peak !== NOWHERE && at >= 0 && at <= WIDE) {
      const y = 100 - (lives.live[lives.peak] / most) * 100;
      lane.append(el("span", { class: "dot", style: { left: `${at / 10}%`, top: `${y}%` } }));
      const side = at > WIDE * 0.6 ? { right: `calc(${100 - at / 10}% + 9px)` } : { left: `calc(${at / 10}% + 9px)` };
      lane.append(el("span", { class: "dot-text", style: { top: `calc(${y}% - 1.5rem)`, ...side } }, `peak ${bytes(lives.live[lives.peak])}`));
    }
    return el("div", { class: "axis curve" }, el("div", { class: "scale" }, el("span", {}, bytes(most / 1.28)), el("span", {}, "bytes that live"), el("span", {}, "0")), lane);
  }
  /** The outermost loops of which iterations are in view, of those that take some room. */
  function widestLoops() {
    const wide = lives.bands.filter((band) => band.begins.some(([at]) => at > view.from && at < view.to) && across(band.stop) - across(band.start) > WIDE / 10);
    const least = Math.min(...wide.map((band) => band.depth));
    return wide.filter((band) => band.depth === least);
  }
  function sampled() {
    let most = 0;
    for (let at = Math.max(0, view.from); at < view.to && at < lives.live.length; at += 1) most = Math.max(most, lives.live[at]);
    return [most];
  }
  function trackRow(number) {
    const track = lives.tracks[number];
    const show = () => showTrack(number);
    const made = el("button", { type: "button", class: `track ${wayOfTrack(track)}`, "data-track": number, on: { click: show, focus: show, mouseenter: show } },
      el("span", { class: "label" }, el("span", { class: "name" }, el("span", { class: "mono" }, track.name), " ", el("span", { class: "soft place" }, placeText(track.place))), el("span", { class: "bytes" }, bytes(track.bytes))),
      el("span", { class: "lane" }, drawing(10, svg("path", { d: spanPath(track.spans) }), svg("path", { class: "anew", d: anewPath(track) }))));
    return made;
  }
  function drawChart() {
    const order = lives.tracks.map((_, number) => number).filter((number) => matches(trackWords(lives.tracks[number])))
      .filter((number) => { const spans = lives.tracks[number].spans; return spans[0] < view.to && spans[spans.length - 1] > view.from; })
      .sort((a, b) => lives.tracks[b].bytes - lives.tracks[a].bytes);
    const isBuffer = (number) => wayOfTrack(lives.tracks[number]) !== "passing";
    const rows = [];
    for (const [kind, those] of [["buffers", order.filter(isBuffer)], ["passing", order.filter((number) => !isBuffer(number))]]) {
      if (!those.length) continue;
      const title = kind === "buffers" ? "what is kept, the largest first: from when it is made to when it is let go of" : "values in passing, which no buffer holds, the largest first";
      const shown = those.slice(0, view[kind]);
      const more = those.length > shown.length ? button(`all ${those.length}`, () => { view[kind] = Infinity; drawChart(); }) : null;
      rows.push(el("div", { class: "track head" }, `${title}${more ? ` (${shown.length} of ${those.length.toLocaleString("en")}) ` : ""}`, more), shown.map(trackRow));
    }
    const zoomed = view.from > 0 || view.to < whole;
    chart.replaceChildren(bandRow(), curveRow(), ...rows.flat());
    reset.hidden = !zoomed;
  }
  const trackWords = (track) => `${track.name} ${placeText(track.place)} ${sourceText(track.place)} ${track.buffer === NOWHERE ? "" : `b${track.buffer}`}`;
  function momentText(moment) {
    if (moment >= whole) return "the end";
    const inside = lives.bands.filter((band) => band.start <= moment && moment < band.stop).sort((a, b) => a.depth - b.depth);
    if (!inside.length) {
      const tops = lives.bands.filter((band) => !band.depth);
      const next = tops.filter((band) => band.start > moment).shift(), before = tops.filter((band) => band.stop <= moment).pop();
      return next && next.text !== "returned" ? `just before ${next.text}` : before ? `after ${before.text}` : "the start";
    }
    return inside.map((band) => {
      const begun = band.begins.filter(([at]) => at <= moment).pop();
      return begun && begun[1] !== null ? `${band.text.replace(/^for (\S+) .*$/, "$1")} = ${begun[1]}` : band.text;
    }).join(", ");
  }
  function showTrack(number) {
    const track = lives.tracks[number];
    if (chosenTrack !== number) {
      chart.querySelectorAll(".track.chosen").forEach((each) => each.classList.remove("chosen"));
      const row = chart.querySelector(`[data-track="${number}"]`);
      if (row) row.classList.add("chosen");
    }
    chosenTrack = number;
    const buffer = buffers.get(track.buffer);
    const facts = [];
    const fact = (name, ...value) => facts.push(el("dt", {}, name), el("dd", {}, ...value));
    if (buffer) {
      fact("kept", `${buffer.kept} (storage: ${buffer.storage})`);
      if (whyOf(buffer, 6).length) fact(buffer.why.length ? "why" : "readers", whyOf(buffer, 6));
      if (buffer.why.length && buffer.readers.length) fact("readers", readersOf(buffer, 6));
    } else fact("kept", WAYS[wayOfTrack(track)]);
    fact("array", `${shape(track.dtype, track.shape)}, ${bytes(track.bytes)}${track.pieces > 1 ? ` at most at once, in ${plural(track.pieces, "array")} one after another` : ""}`);
    fact("lives", `from ${momentText(track.spans[0])} to ${momentText(track.spans[track.spans.length - 1])}`);
    if (track.place !== NOWHERE) fact("made at", placeLink(track.place), " ", el("code", {}, sourceText(track.place)));
    detail.replaceChildren(el("p", {}, el("span", { class: `key ${wayOfTrack(track)}` }), el("b", {}, track.name), " ", el("span", { class: "badge" }, buffer ? `${buffer.label}, ${buffer.role}` : track.role)), el("dl", {}, facts));
  }
  function showPeak() {
    const total = Math.max(1, ...lives.at_peak.map(([, count]) => count));
    const rows = lives.at_peak.slice(0, 8).map(([number, count]) => {
      const track = lives.tracks[number];
      return [el("span", { title: sourceText(track.place) }, el("span", { class: `key ${wayOfTrack(track)}` }), el("span", { class: "mono" }, track.name), " ", placeLink(track.place)),
        el("span", {}, bytes(count)), el("span", {}, el("span", { class: `bar-of ${wayOfTrack(track)}`, style: { display: "block", width: `${(count / total) * 100}%` } }))];
    });
    detail.replaceChildren(el("p", {}, el("b", {}, `At the peak, ${momentText(lives.peak)}: `), el("span", { class: "soft" }, "the largest that live then. Point at a bar above for how long it lives, and why.")), el("div", { class: "share" }, rows));
  }
  let reset;
  function memory() {
    chart = el("div", { class: "chart" });
    detail = el("div", { class: "detail", role: "status", "aria-live": "polite" });
    reset = button("the whole run", () => { view.from = 0; view.to = whole; drawChart(); });
    const ways = [...new Set(lives.tracks.map(wayOfTrack))];
    section("memory", "memory",
      el("p", { class: "soft" }, "From left to right the run as the schedule has it, from top to bottom what lives: made where a bar begins, let go of where it ends. Of a loop the first iterations are shown, until another one would hold no more, and the last. A bar is cut where another value takes the place of the last one.",
        lives.estimated ? ` This backend's own compiler arranges the memory inside of segments: a run holds ${bytes(data.memory.peak)}${data.placement ? " on each device" : ""}. Shown is what the code as planned would hold without it${data.placement ? ", on one device" : ""}.` : ""),
      legend(Object.keys(WAYS).filter((way) => ways.includes(way))),
      el("div", { class: "chart-line" }, reset, lives.at_peak.length ? button("what lives at the peak", showPeak) : null), chart, detail,
      el("h3", {}, "Buffers"), bufferTable());
    drawChart();
    if (lives.peak !== NOWHERE) showPeak();
  }
  const bufferWords = (each) => `${each.label} ${each.name} ${each.role} ${each.storage} ${each.dtype} ${placeText(each.place)} ${sourceText(each.place)} ${each.kept}`;
  let bufferBody;
  function bufferTable() {
    bufferBody = el("tbody", {});
    drawBuffers();
    const heads = ["buffer", "bytes", "made at", "how much is kept, and how long", "why"];
    return el("div", { class: "scroll" }, el("table", { class: "buffers" }, el("thead", {}, el("tr", {}, heads.map((each, at) => el("th", { scope: "col", class: at === 1 ? "number" : null }, each)))), bufferBody));
  }
  function drawBuffers() {
    const found = [...data.buffers].filter((each) => matches(bufferWords(each))).sort((a, b) => b.bytes - a.bytes);
    bufferBody.replaceChildren();
    someOf(bufferBody, found, 12, (each) => el("tr", { id: `buffer-${each.id}` },
      el("td", {}, el("span", { class: `key ${each.way}` }), el("span", { class: "mono" }, each.name), " ", el("span", { class: "badge" }, each.role)),
      el("td", { class: "number" }, bytes(each.bytes)),
      el("td", { class: "line" }, placeLink(each.place), el("div", { class: "soft mono" }, shape(each.dtype, each.shape))),
      el("td", { class: "words" }, each.kept, " ", el("span", { class: "badge" }, each.storage)),
      el("td", { class: "words" }, whyOf(each, 3))), "buffer");
    counts.buffers = found.length;
  }

  // -- schedule ---------------------------------------------------------------------------------------------------

  function schedule() {
    const hostless = !JSON.stringify(data.schedule).includes('"host":true');
    section("schedule", "schedule",
      el("p", { class: "soft" }, "Loops, and inside of them what runs, in order. A name leads to its line in the graph."),
      data.notes.map((each) => el("p", {}, each)), data.choices.length ? [el("h3", {}, "Plans that were looked at, the last of which is run"), el("pre", { class: "decisions" }, data.choices.join("\n"))] : null,
      el("div", { class: "tree" }, steps(data.schedule, hostless, 0)));
  }
  function steps(list, hostless, depth) {
    const made = [];
    let runs = [];
    const flush = () => {
      if (!runs.length) return;
      const box = el("div", { class: "runs" });
      someOf(box, runs, 24, (step) => {
        const statement = data.statements[step.statement];
        if (!statement) return el("span", {}, step.text);
        const act = (event) => { event.preventDefault(); showNode(statement.nodes[statement.nodes.length - 1], statement.place); };
        return el("a", { href: `#node-${statement.nodes[0]}`, title: `${statement.names}\n${placeText(statement.place)} ${sourceText(statement.place)}`, on: { click: act } }, step.text);
      }, "statement");
      made.push(box);
      runs = [];
    };
    for (const step of list) {
      if (step.kind === "run") { runs.push(step); continue; }
      flush();
      const note = [step.points === null ? "" : ` ${plural(step.points, "time")}`, step.kind === "for" && !hostless ? (step.host ? ", by the host" : ", on the device") : ""].join("");
      made.push(el("details", { open: depth < 4 }, el("summary", {}, el("b", {}, step.text), el("span", { class: "many" }, note)), el("div", { class: "loop" }, steps(step.body, hostless, depth + 1))));
    }
    flush();
    return made;
  }

  // -- the graph, folded by line ----------------------------------------------------------------------------------

  const lines = data.lines;
  const graphStages = data.stages.map((_, number) => number);
  const stageOf = { number: Math.max(0, ...data.stages.map((each, at) => (each.ir === "graph" ? at : 0))) };
  let groupBox, groups = new Map(), nodeLine = new Map(), readers = new Map();
  function graph() {
    const titles = (number) => `${data.stages[number].ir === "graph" ? "graph" : "loops"} ${data.stages[number].title}`;
    const choose = el("select", { id: "stage", "aria-label": "Stage", on: { change: (event) => { stageOf.number = Number(event.target.value); drawGraph(); } } },
      graphStages.map((number) => el("option", { value: number, selected: number === stageOf.number }, titles(number))));
    groupBox = el("div", { id: "groups" });
    section("graph", "graph", el("p", { class: "soft" }, "Operators under the line of yours that made them; a line opens to them. ", el("label", {}, "Shown: ", choose)),
      el("div", { class: "chart-line" }, button("open all", () => [...groups.values()].forEach(open)), button("close all", () => [...groups.values()].forEach((each) => { each.open = false; }))), groupBox);
    drawGraph();
  }
  function byPlace(numbers) {
    const found = new Map();
    for (const number of numbers) {
      const place = lines.place[number];
      if (!found.has(place)) found.set(place, []);
      found.get(place).push(number);
    }
    const order = (place) => (place === NOWHERE ? [Infinity, 0] : data.places[place]);
    return [...found].sort(([a], [b]) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1]);
  }
  const OPERATOR = /^\s*(?:%\d+: .*?[^=!<>]= |v\w+: \S+(?:\[[^\]]*\])? = )?(\w+)/;
  function operatorOf(text) { const found = OPERATOR.exec(text); return found ? found[1] : ""; }
  function drawGraph() {
    const stage = data.stages[stageOf.number];
    nodeLine = new Map(); readers = new Map(); groups = new Map();
    for (const number of stage.lines) {
      if (lines.node[number] !== NOWHERE) nodeLine.set(lines.node[number], number);
      for (const read of lines.reads[number]) {
        if (!readers.has(read)) readers.set(read, []);
        readers.get(read).push(number);
      }
    }
    groupBox.replaceChildren();
    counts.operators = 0;
    let opened = 0;
    for (const [place, members] of byPlace(stage.lines)) {
      const all = query && matches(`${placeText(place)} ${sourceText(place)}`);
      const found = !query || all ? members : members.filter((number) => matches(lines.text[number]));
      if (!found.length) continue;
      counts.operators += found.length;
      const tally = new Map();
      for (const number of found) { const name = operatorOf(lines.text[number]); tally.set(name, (tally.get(name) || 0) + 1); }
      const names = [...tally].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, count]) => (count > 1 ? `${count} ${name}` : name));
      const head = [el("span", { class: "place" }, place === NOWHERE ? "no line" : placeText(place)),
        el("span", { class: "source", title: sourceText(place) }, place === NOWHERE ? "what is of no line of yours" : sourceText(place)),
        el("span", { class: "count" }, `${names.join(", ")}${tally.size > 3 ? ", …" : ""} · ${found.length}`)];
      const group = folded({ class: "group", id: `line-${place}` }, head, (inside) => {
        inside.className = "inside";
        someOf(inside, found, 300, nodeRow, "operator");
      });
      group.querySelector("summary").replaceChildren(...head);
      groups.set(place, group);
      groupBox.append(group);
      if (query && opened < 12 && found.length <= 60) { open(group); opened += 1; }
    }
    if (!groups.size) groupBox.append(el("p", { class: "soft" }, "nothing here has that"));
  }
  function nodeRow(number) {
    const id = lines.node[number];
    const link = (node) => {
      const line = nodeLine.get(node);
      const text = line === undefined ? "" : lines.text[line];
      return el("a", { href: `#node-${node}`, title: text, on: { click: (event) => { event.preventDefault(); showNode(node); } } }, `%${node}`);
    };
    const reads = lines.reads[number].map(link);
    const read = id === NOWHERE ? [] : (readers.get(id) || []).map((each) => (lines.node[each] === NOWHERE ? el("span", { class: "mono" }, "an output") : link(lines.node[each])));
    return el("div", { class: "node", id: id === NOWHERE ? null : `node-${id}`, tabindex: id === NOWHERE ? null : "-1" }, el("pre", {}, lines.text[number]),
      reads.length || read.length ? el("div", { class: "links" }, reads.length ? ["reads ", some(reads)] : null, read.length ? [reads.length ? " · " : "", "read by ", some(read)] : null) : null);
  }
  const some = (links) => (links.length > 12 ? [links.slice(0, 12), `and ${links.length - 12} more`] : links);
  function goTo(target) {
    document.querySelectorAll(".node.chosen").forEach((each) => each.classList.remove("chosen"));
    target.scrollIntoView({ block: "center" });
    target.focus({ preventScroll: true });
  }
  function showNode(node, place) {
    if (query) clearSearch();
    if (!nodeLine.has(node)) selectStage(stageWith(node));
    const line = nodeLine.get(node);
    const group = groups.get(line === undefined ? place : lines.place[line]);
    if (!group) return;
    open(group);
    const row = document.getElementById(`node-${node}`);
    goTo(row || group.querySelector("summary"));
    if (row) row.classList.add("chosen");
  }
  function stageWith(node) {
    for (let at = data.stages.length - 1; at >= 0; at -= 1) if (data.stages[at].lines.some((number) => lines.node[number] === node)) return at;
    return stageOf.number;
  }
  function selectStage(number) {
    stageOf.number = number;
    document.getElementById("stage").value = number;
    drawGraph();
  }
  function showPlace(place) {
    if (query) clearSearch();
    if (!groups.has(place)) {
      const with_place = data.stages.map((stage, at) => (stage.lines.some((number) => lines.place[number] === place) ? at : NOWHERE)).filter((at) => at !== NOWHERE);
      if (!with_place.length) return;
      selectStage(with_place.filter((at) => data.stages[at].ir === "graph").pop() ?? with_place.pop());
    }
    const group = groups.get(place);
    open(group);
    goTo(group.querySelector("summary"));
    choosePlace(place, false);
  }

  // -- passes -----------------------------------------------------------------------------------------------------

  function passes() {
    const changing = data.passes.filter((each) => each.given !== each.made);
    const still = data.passes.filter((each) => each.given === each.made);
    const box = el("div", {});
    for (const each of changing) box.append(passRow(each));
    section("passes", "passes",
      el("p", { class: "soft" }, `${plural(changing.length, "run")} of passes changed something, on the graph and then on loops; each opens to what it took away and what it made.`), box,
      still.length ? folded({}, `${plural(still.length, "run")} of passes changed nothing`, (inside) => still.forEach((each) => inside.append(passRow(each)))) : null);
  }
  function passRow(each) {
    const head = [el("span", { class: "mono" }, each.name), el("span", { class: "ms" }, `${each.milliseconds.toFixed(1)} ms`),
      el("span", { class: "told soft" }, each.before === each.after ? `${each.after.toLocaleString("en")} ${each.items}` : `${each.before.toLocaleString("en")} → ${each.after.toLocaleString("en")} ${each.items}`,
        each.decisions.length ? `, ${plural(each.decisions.length, "decision")}` : "")];
    const row = folded({ class: "pass" }, head, (inside) => {
      inside.className = "diff";
      if (each.decisions.length) inside.append(el("pre", { class: "decisions" }, each.decisions.join("\n")));
      if (each.given === each.made) { inside.append(el("p", { class: "soft" }, "nothing changed")); return; }
      const changes = difference(data.stages[each.given].lines, data.stages[each.made].lines, data.stages[each.made].ir === "graph");
      const kinds = (kind) => changes.filter((change) => change[0] === kind).length;
      inside.append(el("p", { class: "soft" }, `${kinds("-")} taken away, ${kinds("+")} made, ${kinds("~")} changed. `, button("show what there is afterwards", () => { selectStage(each.made); document.getElementById("graph").scrollIntoView(); })));
      someOf(inside, changes, 250, changeRow, "change");
    });
    row.querySelector("summary").replaceChildren(...head);
    return row;
  }
  function changeRow([kind, before, after]) {
    const row = (sign, number, style, other) => el("div", { class: `row ${style}` }, el("span", {}, sign), el("pre", {}, other === undefined ? lines.text[number] : marked(lines.text[number], lines.text[other])), el("span", {}, placeLink(lines.place[number])));
    if (kind === "+") return row("+", after, "plus");
    if (kind === "-") return row("−", before, "minus");
    return el("div", {}, row("−", before, "minus", after), row("+", after, "plus", before));
  }
  /** The text, with what it does not share with the other at its beginning and end. */
  function marked(text, other) {
    let from = 0, to = 0;
    const most = Math.min(text.length, other.length);
    while (from < most && text[from] === other[from]) from += 1;
    while (to < most - from && text[text.length - 1 - to] === other[other.length - 1 - to]) to += 1;
    const end = text.length - to;
    return end > from ? [text.slice(0, from), el("mark", {}, text.slice(from, end)), text.slice(end)] : [text];
  }
  function difference(given, made, isGraph) {
    return isGraph ? graphDifference(given, made) : paired(sequenceDifference(given, made));
  }
  /** Of graphs by node: its number tells which is which. */
  function graphDifference(given, made) {
    const key = (number) => (lines.node[number] === NOWHERE ? lines.text[number].slice(0, lines.text[number].indexOf(":") + 1 || 4) : lines.node[number]);
    const before = new Map(given.map((number) => [key(number), number])), after = new Map(made.map((number) => [key(number), number]));
    const found = [];
    for (const [node, number] of before) if (!after.has(node)) found.push(["-", number, null]);
    for (const [node, number] of after) {
      if (!before.has(node)) found.push(["+", null, number]);
      else if (before.get(node) !== number) found.push(["~", before.get(node), number]);
    }
    return found;
  }
  /** Of texts line by line: what both have once holds the rest in place (patience). */
  function sequenceDifference(given, made) {
    const found = [];
    const work = [[0, given.length, 0, made.length]];
    while (work.length) {
      let [a, b, c, d] = work.pop();
      while (a < b && c < d && given[a] === made[c]) { a += 1; c += 1; }
      while (a < b && c < d && given[b - 1] === made[d - 1]) { b -= 1; d -= 1; }
      if (a === b && c === d) continue;
      const anchors = a < b && c < d ? anchorsOf(given, a, b, made, c, d) : [];
      if (!anchors.length) {
        for (let at = a; at < b; at += 1) found.push(["-", given[at], null, c]);
        for (let at = c; at < d; at += 1) found.push(["+", null, made[at], at]);
        continue;
      }
      const parts = [];
      let [i, j] = [a, c];
      for (const [x, y] of anchors) { parts.push([i, x, j, y]); [i, j] = [x + 1, y + 1]; }
      parts.push([i, b, j, d]);
      for (const part of parts.reverse()) work.push(part);
    }
    return found;
  }
  function anchorsOf(given, a, b, made, c, d) {
    const once = (list, from, to) => {
      const seen = new Map();
      for (let at = from; at < to; at += 1) seen.set(list[at], seen.has(list[at]) ? NOWHERE : at);
      return seen;
    };
    const left = once(given, a, b), right = once(made, c, d);
    const pairs = [];
    for (const [line, x] of left) { const y = right.get(line); if (x !== NOWHERE && y !== undefined && y !== NOWHERE) pairs.push([x, y]); }
    pairs.sort((one, other) => one[0] - other[0]);
    const piles = [], before = new Map();
    for (const pair of pairs) {
      let low = 0, high = piles.length;
      while (low < high) { const middle = (low + high) >> 1; if (piles[middle][1] < pair[1]) low = middle + 1; else high = middle; }
      before.set(pair, low ? piles[low - 1] : null);
      piles[low] = pair;
    }
    const chain = [];
    for (let pair = piles[piles.length - 1]; pair; pair = before.get(pair)) chain.unshift(pair);
    return chain;
  }
  /** What is taken away and made for the same result is a change. */
  function paired(changes) {
    const result = (number) => { const found = /^\s*(?:(v\w+)[:\s]|write (b\d+)|(?:buffer|register) (\S+))/.exec(lines.text[number]); return found ? found[1] || found[2] || found[3] : null; };
    const gone = new Map();
    changes.forEach((change, at) => { if (change[0] === "-" && result(change[1])) gone.set(result(change[1]), at); });
    const taken = new Set();
    const found = changes.map((change) => {
      const name = change[0] === "+" ? result(change[2]) : null;
      if (!name || !gone.has(name) || taken.has(gone.get(name))) return change;
      taken.add(gone.get(name));
      return ["~", changes[gone.get(name)][1], change[2]];
    });
    return found.filter((_, at) => !taken.has(at));
  }

  // -- code beside the user's lines -------------------------------------------------------------------------------

  let yourBox, listings = [];
  const heat = new Map();
  for (const each of data.profile || []) if (each.place !== NOWHERE) heat.set(each.place, (heat.get(each.place) || 0) + each.seconds);
  const hot = new Map((data.profile || []).map((each) => [makerKey(each), each.seconds])); // of what one line of code is of
  const hottest = { place: Math.max(0, ...heat.values()), maker: Math.max(0, ...hot.values()) };
  const warmth = (part) => (part ? { background: `rgba(var(--heat), ${(0.08 + 0.5 * part).toFixed(2)})` } : {});
  const warmPlace = (place) => warmth((heat.get(place) || 0) / (hottest.place || 1));
  const warmMaker = (maker) => warmth((hot.get(makerKey(maker)) || 0) / (hottest.maker || 1));
  function makerKey(maker) { return `${maker.op} ${maker.name} ${maker.place}`; }
  function code() {
    const places = new Map();
    data.code.forEach((each, listing) => each.makers.forEach((maker, at) => {
      const place = maker === NOWHERE ? NOWHERE : data.makers[maker].place;
      if (place === NOWHERE) return;
      if (!places.has(place)) places.set(place, []);
      places.get(place).push([listing, at]);
    }));
    yourBox = el("div", { class: "yours", tabindex: "0", role: "region", "aria-label": "Your lines" });
    const madeBox = el("div", {});
    listings = data.code.map((each, number) => {
      const row = folded({ class: "code" }, [el("span", { class: "mono" }, each.title), el("span", { class: "soft" }, ` ${plural(each.lines.length, "line")}`)], (inside) => { row.inside = inside; fillListing(row, number); });
      madeBox.append(row);
      return row;
    });
    data.files.forEach((file, number) => {
      const here = new Map([...places.keys()].filter((place) => data.places[place][0] === number).map((place) => [data.places[place][1], place]));
      if (!here.size) return;
      yourBox.append(el("h3", { title: file.path }, file.short));
      let before = null;
      const near = new Set([...here.keys()].flatMap((line) => [line - 1, line, line + 1]));
      for (const line of Object.keys(file.lines).map(Number).filter((line) => near.has(line)).sort((a, b) => a - b)) {
        if (before !== null && line > before + 1) yourBox.append(el("div", { class: "cut" }, "⋯"));
        before = line;
        const place = here.get(line);
        const cells = [el("span", { class: "n" }, line), el("span", { class: "t", title: file.lines[line] }, file.lines[line] || " ")];
        if (place === undefined) { yourBox.append(el("div", { class: "row-of around" }, cells)); continue; }
        const took = heat.has(place) ? `${(heat.get(place) * 1e3).toFixed(2)} ms, ` : "";
        yourBox.append(el("button", { type: "button", class: "row-of", "data-place": place, style: warmPlace(place), on: { click: () => choosePlace(place, true, places.get(place)[0]) } }, cells, el("span", { class: "of" }, `${took}${plural(places.get(place).length, "line")}`)));
      }
    });
    section("code", "code", el("p", { class: "soft" }, "On one side your lines, on the other the code that was made of them. A line of either shows its other side."), el("div", { class: "beside" }, yourBox, madeBox));
    const longest = data.code.reduce((best, each, at) => (each.lines.length > data.code[best].lines.length ? at : best), 0);
    if (data.code.length && data.code[longest].lines.length <= 150) open(listings[longest]);
  }
  function fillListing(row, number) {
    const each = data.code[number];
    const shown = each.lines.map((_, at) => at).filter((at) => codeMatches(each, at));
    const box = el("div", { class: "listing" });
    row.inside.replaceChildren(box);
    someOf(box, shown, query ? 200 : 600, (at) => {
      const maker = each.makers[at] === NOWHERE ? null : data.makers[each.makers[at]];
      const cells = [el("span", { class: "n" }, at + 1), el("span", { class: "t", title: each.lines[at] }, each.lines[at] || " ")];
      if (!maker || maker.place === NOWHERE) return el("div", { class: "row-of", "data-at": at }, cells, maker ? el("span", { class: "of" }, maker.name) : null);
      return el("button", { type: "button", class: "row-of", "data-at": at, "data-place": maker.place, title: `${maker.op} ${maker.name}\n${sourceText(maker.place)}`, style: warmMaker(maker), on: { click: () => choosePlace(maker.place, false) } },
        cells, el("span", { class: "of" }, placeText(maker.place)));
    }, "line");
  }
  const codeMatches = (each, at) => !query || matches(`${each.lines[at]} ${each.makers[at] === NOWHERE ? "" : makerWords(data.makers[each.makers[at]])}`);
  const makerWords = (maker) => `${maker.name} ${maker.op} ${placeText(maker.place)}`;
  /** Marks a line of the user's and all code of it; `first`: the code to go to, as a listing and a line. */
  function choosePlace(place, goes, first) {
    document.querySelectorAll(".row-of.chosen").forEach((each) => each.classList.remove("chosen"));
    if (first) open(listings[first[0]]);
    document.querySelectorAll(`.row-of[data-place="${place}"]`).forEach((each) => each.classList.add("chosen"));
    if (goes && first) {
      const box = listings[first[0]];
      if (!box.querySelector(`[data-at="${first[1]}"]`)) { const more = box.querySelector(".listing .more"); if (more) more.click(); }
      const line = box.querySelector(`[data-at="${first[1]}"]`);
      if (line) line.scrollIntoView({ block: "center" });
      document.querySelectorAll(`.row-of[data-place="${place}"]`).forEach((each) => each.classList.add("chosen"));
      return;
    }
    const mine = yourBox.querySelector(`[data-place="${place}"]`);
    if (mine && !goes) yourBox.scrollTop = mine.offsetTop - yourBox.clientHeight / 2;
  }

  // -- times, mesh, profile ---------------------------------------------------------------------------------------

  function times() {
    const total = data.seconds.reduce((sum, [, seconds]) => sum + seconds, 0);
    const rows = data.seconds.map(([name, seconds]) => [name, seconds]);
    const slow = [...data.passes].sort((a, b) => b.milliseconds - a.milliseconds).slice(0, 5).filter((each) => each.milliseconds > 0.01 * total * 1e3);
    const bar = (name, seconds) => [el("span", {}, name), el("span", {}, `${(seconds * 1e3).toFixed(1)} ms`), el("span", {}, el("span", { class: "bar-of given", style: { display: "block", width: `${(seconds / Math.max(total, 1e-12)) * 100}%` } }))];
    section("times", "times", el("p", { class: "soft" }, `Compiling took ${total.toFixed(2)} s: planning, as it was done again for this page, and making code.`),
      el("div", { class: "share" }, rows.map(([name, seconds]) => bar(name, seconds))),
      slow.length ? [el("h3", {}, "The slowest passes"), el("div", { class: "share" }, slow.map((each) => bar(each.name, each.milliseconds / 1e3)))] : null,
      el("p", { class: "soft" }, Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join(" · ")));
  }
  function placement() {
    if (!data.placement) return;
    const { mesh, cut, exchanges } = data.placement;
    section("mesh", "mesh", el("p", {}, `The devices are ${mesh}. ${exchanges.length ? "They exchange:" : "They exchange nothing."}`),
      el("ul", {}, exchanges.map((each) => el("li", {}, each.text, " ", placeLink(each.place)))),
      folded({}, `${plural(cut.length, "buffer")} cut into parts`, (inside) => inside.append(el("ul", {}, cut.map((each) => el("li", { class: "mono" }, each))))));
  }
  function profile() {
    if (!data.profile) return;
    const total = data.profile.reduce((sum, each) => sum + each.seconds, 0);
    const body = el("tbody", {});
    someOf(body, data.profile, 20, (each) => el("tr", {}, el("td", { class: "number" }, `${(each.seconds * 1e3).toFixed(3)} ms`), el("td", { class: "number" }, `${((100 * each.seconds) / Math.max(total, 1e-12)).toFixed(1)} %`),
      el("td", {}, el("span", { class: "mono" }, `${each.op} ${each.name}`)), el("td", { style: warmMaker(each) }, placeLink(each.place), " ", el("code", {}, sourceText(each.place)))), "row");
    section("profile", "profile", el("p", { class: "soft" }, `${(total * 1e3).toFixed(1)} ms were measured. The lines beside the code have the same colours.`),
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["time", "share", "what", "your line"].map((each, at) => el("th", { scope: "col", class: at < 2 ? "number" : null }, each)))), body)));
  }

  // -- search -----------------------------------------------------------------------------------------------------

  let query = "";
  const counts = { buffers: 0, operators: 0 };
  const box = document.getElementById("search"), told = document.getElementById("found");
  function matches(words) { return !query || words.toLowerCase().includes(query); }
  function search() {
    query = box.value.trim().toLowerCase();
    drawBuffers(); drawGraph(); drawChart();
    let code = 0;
    data.code.forEach((each, number) => {
      const found = query ? each.lines.filter((_, at) => codeMatches(each, at)).length : each.lines.length;
      code += found;
      const row = listings[number];
      row.hidden = !found;
      if (row.filled) fillListing(row, number);
      if (query && found && found <= 200) open(row);
    });
    told.textContent = query ? `${plural(counts.buffers, "buffer")}, ${plural(counts.operators, "operator")}, ${plural(code, "line")} of code` : "";
  }
  function clearSearch() { box.value = ""; search(); }
  let waiting = 0;
  box.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { clearTimeout(waiting); search(); (counts.buffers ? document.getElementById("memory") : document.getElementById("graph")).scrollIntoView(); }
    if (event.key === "Escape") clearSearch();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); box.focus(); }
  });

  if (data.places.length) box.placeholder = `search: name, operator, ${placeText(0)}`;
  summary(); memory(); schedule(); graph(); passes(); code(); placement(); profile(); times();
  document.documentElement.dataset.ready = "yes";
})();
