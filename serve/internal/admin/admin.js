"use strict";
// What the server says becomes text and attributes of elements, never markup: names of models may be anything.
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, attrs, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const name = (text) => make("bdi", {}, text); // letters that are written from the right turn nothing else around
  const svg = (tag, attrs) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
    return e;
  };
  const every = 2000, kept = 90;
  let token = "", last = null;
  const cards = new Map(); // by model and version
  const key = (m) => JSON.stringify([m.Name, m.Version]);
  const ask = (path, options = {}) => fetch(path, { ...options, headers: { ...options.headers, ...(token && { Authorization: "Bearer " + token }) } });

  const seconds = (s) => s === null ? "–" : s < 1e-3 ? (s * 1e6).toFixed(0) + " µs" : s < 1 ? (s * 1e3).toPrecision(3) + " ms" : s.toPrecision(3) + " s";
  const count = (n) => n >= 1e6 ? (n / 1e6).toPrecision(3) + " M" : n >= 1e4 ? (n / 1e3).toPrecision(3) + " k" : String(Math.round(n * 10) / 10);
  const bytes = (n) => n >= 1e9 ? (n / 1e9).toPrecision(3) + " GB" : n >= 1e6 ? (n / 1e6).toPrecision(3) + " MB" : n >= 1e3 ? (n / 1e3).toPrecision(3) + " kB" : n + " B";
  const shape = (t) => "[" + t.Shape.map((d, i) => d < 0 && t.Max ? "≤" + t.Max[i] : d).join(",") + "]";
  const total = (h) => (h.Counts || []).reduce((a, b) => a + b, 0);
  const requests = (m, which) => (m.Requests || []).filter(which).reduce((a, r) => a + r.Count, 0);
  const good = (r) => r.Outcome === "ok";

  // quantile of what was counted between two histograms: the bound of the bucket, in between by share. null: nothing.
  const quantile = (now, was, q) => {
    const n = (now.Counts || []).map((c, i) => c - ((was && was.Counts || [])[i] || 0));
    const all = n.reduce((a, b) => a + b, 0);
    if (all <= 0) return null;
    let below = 0;
    for (let i = 0; i < n.length; i++) {
      if (below + n[i] >= q * all && n[i] > 0) {
        const low = i ? now.Bounds[i - 1] : 0, high = i < now.Bounds.length ? now.Bounds[i] : low;
        return low + (high - low) * (q * all - below) / n[i];
      }
      below += n[i];
    }
    return null;
  };

  // line draws series of numbers, null where there is none.
  const line = (into, ...series) => {
    const top = Math.max(1e-9, ...series.flat().filter((v) => v !== null));
    into.replaceChildren(...series.map((s, k) => {
      let d = "", pen = "M";
      s.forEach((v, i) => {
        if (v === null) { pen = "M"; return; }
        d += pen + (100 * (kept - s.length + i) / (kept - 1)).toFixed(2) + " " + (38 - 36 * v / top).toFixed(2);
        pen = "L";
      });
      return svg("path", { d, class: k ? "second" : "first" });
    }));
  };
  const bars = (into, h) => {
    const counts = h.Counts || [], top = Math.max(1, ...counts);
    into.replaceChildren(...counts.map((c, i) => {
      const b = svg("rect", { x: (100 * i / counts.length + 0.5).toFixed(2), width: (100 / counts.length - 1).toFixed(2), y: (38 - 36 * c / top).toFixed(2), height: (36 * c / top).toFixed(2) });
      const title = svg("title", {});
      title.textContent = (i < h.Bounds.length ? "at most " + h.Bounds[i] : "more") + ": " + c;
      b.append(title);
      return b;
    }));
  };

  const chart = (caption) => {
    const drawing = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": caption });
    const says = make("figcaption", {}, caption);
    return { figure: make("figure", {}, drawing, says), drawing, says };
  };
  const property = (list, name) => {
    const dd = make("dd", {}, "–");
    list.append(make("div", {}, make("dt", {}, name), dd));
    return dd;
  };

  const card = (m) => {
    const c = { rate: [], p50: [], p99: [], waiting: [] };
    c.state = make("span", { class: "state" });
    c.reason = make("p", { class: "reason" });
    const list = make("dl", { class: "properties" });
    for (const [k, name] of [["ok", "requests"], ["failed", "failed"], ["rateNow", "per second"], ["median", "median"], ["slow", "1 of 100 takes"], ["queue", "waits, 1 of 100"], ["now", "computing, waiting"], ["size", "samples of a request"], ["batch", "of a batch, padding"], ["io", "received, sent"], ["reloads", "reloads, refused"]]) c[k] = property(list, name);
    c.charts = [chart("requests per second"), chart("median and 1 of 100, seconds"), chart("waiting now"), chart("requests by samples"), chart("batches by samples")];
    c.ends = make("p", { class: "ends" });
    c.contract = make("button", { type: "button" }, "contract");
    c.contract.addEventListener("click", () => contract(m));
    c.element = make("article", { class: "model" }, make("h3", {}, name(m.Name), " ", make("span", { class: "soft" }, "version " + m.Version), " ", c.state), c.reason, list,
      make("div", { class: "charts" }, ...c.charts.map((x) => x.figure)), c.ends, c.contract);
    return c;
  };

  const update = (c, m, was, elapsed) => {
    c.state.textContent = m.State.toLowerCase();
    c.state.className = "state " + (m.State === "READY" ? "good" : m.State === "UNAVAILABLE" ? "bad" : "between");
    c.reason.hidden = !m.Reason;
    c.reason.textContent = m.Reason;
    const ok = requests(m, good);
    c.ok.textContent = count(ok);
    c.failed.textContent = count(requests(m, (r) => !good(r)) + m.Unread);
    c.failed.title = (m.Requests || []).filter((r) => !good(r) && r.Count).map((r) => r.Protocol + " " + r.Outcome + ": " + r.Count).concat(m.Unread ? ["refused before they were read: " + m.Unread] : []).join("\n");
    const rate = was && elapsed > 0 ? Math.max(0, requests(m, () => true) - requests(was, () => true)) / elapsed : null;
    const push = (list, v) => { list.push(v); if (list.length > kept) list.shift(); };
    push(c.rate, rate);
    push(c.p50, was ? quantile(m.Whole, was.Whole, 0.5) : null);
    push(c.p99, was ? quantile(m.Whole, was.Whole, 0.99) : null);
    push(c.waiting, m.Waiting);
    c.rateNow.textContent = rate === null ? "–" : count(rate);
    c.median.textContent = seconds(quantile(m.Whole, null, 0.5));
    c.slow.textContent = seconds(quantile(m.Whole, null, 0.99));
    c.queue.textContent = seconds(quantile(m.Queue, null, 0.99));
    c.now.textContent = m.Computing + " of " + m.MostComputing + ", " + m.Waiting + " of " + m.MostWaiting;
    c.size.textContent = total(m.Batch) ? count(m.Batch.Sum / total(m.Batch)) : "–";
    const batches = total(m.Together);
    c.batch.textContent = batches ? count(m.Together.Sum / batches) + ", " + count(m.Padding / batches) : "–";
    c.batch.title = batches ? batches + " batches of " + m.Together.Sum + " samples, " + m.Padding + " of padding; mean " + seconds(m.Run.Sum / batches) : "";
    c.io.textContent = bytes(m.Received) + ", " + bytes(m.Sent);
    c.reloads.textContent = m.Reloads + ", " + m.Refusals;
    line(c.charts[0].drawing, c.rate);
    line(c.charts[1].drawing, c.p50, c.p99);
    line(c.charts[2].drawing, c.waiting);
    bars(c.charts[3].drawing, m.Batch);
    bars(c.charts[4].drawing, m.Together);
    for (const x of c.charts.slice(3)) x.figure.hidden = !m.Samples;
    c.ends.replaceChildren(...[...(m.Inputs || []).map((t) => ["in", t]), ...(m.Outputs || []).map((t) => ["out", t])].map(([way, t]) =>
      make("span", {}, make("span", { class: "arrow" }, way === "in" ? "→ " : "← "), name(t.Name), " ", make("span", { class: "mono" }, t.Type + " " + shape(t)))));
    c.contract.hidden = !m.Contract;
    c.contract.title = m.Contract;
  };

  const contract = async (m) => {
    const r = await ask("contract?" + new URLSearchParams({ model: m.Name, version: m.Version }));
    const d = $("text");
    d.querySelector("h3").textContent = "Contract of " + m.Name + ", version " + m.Version;
    d.querySelector("pre").textContent = await r.text();
    d.showModal();
  };

  const show = (s) => {
    const elapsed = last ? (Date.parse(s.Now) - Date.parse(last.Now)) / 1000 : 0;
    $("server").textContent = (s.Ready ? "ready" : s.Reason) + ", since " + new Date(s.Started).toLocaleString();
    const before = new Map((last ? last.Models : []).map((m) => [key(m), m]));
    const there = new Set();
    for (const m of s.Models) {
      const k = key(m);
      there.add(k);
      if (!cards.has(k)) {
        cards.set(k, card(m));
        $("models").append(cards.get(k).element);
      }
      update(cards.get(k), m, before.get(k), elapsed);
    }
    for (const [k, c] of cards) if (!there.has(k)) { c.element.remove(); cards.delete(k); }
    last = s;
    offer(s.Models.filter((m) => m.State === "READY"));
  };

  // The form. A model is chosen by its place in the list, so that no name has to be an attribute's value.
  let offered = "", models = [];
  const offer = (list) => {
    models = list;
    const now = JSON.stringify(list.map((m) => [m.Name, m.Version, m.Inputs]));
    if (now === offered) return;
    offered = now;
    const chosen = $("model").selectedOptions[0] && $("model").selectedOptions[0].textContent;
    $("model").replaceChildren(...list.map((m, i) => make("option", { value: i }, m.Name + ", version " + m.Version)));
    const at = list.findIndex((m) => m.Name + ", version " + m.Version === chosen);
    $("model").selectedIndex = Math.max(0, at);
    fields();
  };
  const elements = (sizes) => sizes.reduce((a, b) => a * b, 1);
  const zero = (t) => t.Type === "BOOL" ? false : 0;
  const fields = () => {
    const m = models[$("model").selectedIndex];
    $("outputs").replaceChildren();
    $("inputs").replaceChildren(...(m ? m.Inputs : []).map((t) => {
      const sizes = t.Shape.map((d) => d < 0 ? 1 : d), n = elements(sizes);
      const data = make("textarea", { "aria-label": "data", spellcheck: "false" });
      if (n <= 4096) data.value = JSON.stringify(new Array(n).fill(zero(t)));
      else data.placeholder = n + " elements: empty for zeros";
      return make("fieldset", {}, make("legend", {}, name(t.Name), " ", make("span", { class: "mono" }, t.Type + " " + shape(t))),
        make("p", {}, make("label", {}, "shape ", make("input", { name: "shape", value: sizes.join(",") }))), data);
    }));
  };
  const clip = (text) => text.length > 20000 ? text.slice(0, 20000) + "… " + text.length + " characters" : text;
  const send = async () => {
    const m = models[$("model").selectedIndex];
    if (!m) return;
    const inputs = [];
    try {
      [...$("inputs").children].forEach((f, i) => {
        const sizes = f.querySelector("input").value.split(",").filter((x) => x.trim()).map(Number), text = f.querySelector("textarea").value.trim();
        if (!text && !(elements(sizes) <= 2 ** 24)) throw new Error("too many elements to fill with zeros");
        inputs.push({ name: m.Inputs[i].Name, datatype: m.Inputs[i].Type, shape: sizes, data: text ? JSON.parse(text) : new Array(elements(sizes)).fill(zero(m.Inputs[i])) });
      });
    } catch (e) {
      $("outcome").textContent = "the data is not JSON: " + e.message;
      return;
    }
    $("outcome").textContent = "…";
    const begin = performance.now();
    try {
      const r = await ask("v2/models/" + encodeURIComponent(m.Name) + "/versions/" + encodeURIComponent(m.Version) + "/infer", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ inputs }) });
      const answer = await r.json();
      $("outcome").textContent = (r.ok ? "answered" : "refused with " + r.status) + " after " + seconds((performance.now() - begin) / 1000);
      $("outputs").replaceChildren(...(r.ok ? answer.outputs.map((o) => make("fieldset", {}, make("legend", {}, name(o.name), " ", make("span", { class: "mono" }, o.datatype + " [" + o.shape.join(",") + "]")), make("pre", { class: "mono" }, clip(JSON.stringify(o.data)))))
        : [make("p", { class: "reason" }, clip(String(answer.error)))]));
    } catch (e) {
      $("outcome").textContent = "no answer: " + e.message;
    }
    poll();
  };

  let timer = 0;
  const poll = async () => {
    clearTimeout(timer);
    try {
      const r = await ask("state.json");
      $("login").hidden = r.status !== 401 && r.status !== 403;
      if (r.ok) show(await r.json());
      else $("server").textContent = await r.text();
    } catch (e) {
      $("server").textContent = "the server does not answer: " + e.message;
    }
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(poll, every);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  $("model").addEventListener("change", fields);
  $("request").addEventListener("submit", (e) => { e.preventDefault(); send(); });
  $("login").addEventListener("submit", (e) => { e.preventDefault(); token = $("token").value; poll(); });
  poll();
})();
