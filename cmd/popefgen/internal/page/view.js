// What a person does to a graph: pan, zoom, fold, search, choose.
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return (u && n < 10 ? n.toFixed(1) : Math.round(n)) + " " + units[u];
};
const time = (ns) => ns >= 1e6 ? (ns / 1e6).toPrecision(4) + " ms" : ns >= 1e3 ? (ns / 1e3).toPrecision(4) + " µs" : ns + " ns";
const count = (n) => {
  const units = ["", " k", " M", " G", " T", " P"];
  let u = 0;
  while (n >= 1000 && u < units.length - 1) { n /= 1000; u++; }
  return (u ? n.toPrecision(3) : n) + units[u];
};

class Viewer extends Graph {
  constructor(view) {
    super(view);
    this.stage = this.root.querySelector(".stage");
    this.details = this.root.querySelector(".details");
    this.found = this.root.querySelector(".found");
    this.hits = this.root.querySelector(".hits");
    this.input = this.root.querySelector(".search");
    this.map = this.root.querySelector(".map");
    this.matches = [];
    this.hit = new Set();
    this.holds = new Set();
    this.chosen = -1;
    this.x = this.y = 0;
    this.k = 1;
    this.listen();
  }

  place() {
    super.place();
    this.light();
    this.chart();
  }

  // member shows another member, with the same boxes unfolded, chosen and found.
  member(k) {
    super.member(k);
    this.place();
    if (this.input.value.trim()) this.search(this.input.value);
    if (this.chosen >= 0) this.tell(this.chosen);
  }

  // chart draws the map of everything: one path for each family of boxes.
  chart() {
    const [w, h] = this.extent(), paths = new Map();
    const scale = Math.min(0.11, Math.min(130, this.port.clientWidth * 0.13) / w, Math.max(120, this.port.clientHeight * (this.port.clientWidth < 800 ? 0.35 : 0.55)) / h);
    this.sx = Math.max(scale, Math.min(60 / w, 1));
    this.sy = Math.max(scale, Math.min(40 / h, 1));
    for (let i = 1; i < this.boxes.length; i++) {
      const p = this.position(i), b = this.boxes[i];
      if (!p) continue;
      const open = b.f && !b.folded;
      const family = open ? "open" : "f-" + b.c + (b.m && b.m !== "follows" ? " m-" + b.m : "");
      const d = `M${(p.x * this.sx).toFixed(1)},${(p.y * this.sy).toFixed(1)}h${Math.max(2, p.w * this.sx).toFixed(1)}v${Math.max(1, p.h * this.sy).toFixed(1)}h${-Math.max(2, p.w * this.sx).toFixed(1)}z`;
      paths.set(family, (paths.get(family) || "") + d);
    }
    const boxes = this.map.querySelector("g");
    boxes.replaceChildren();
    for (const [family, d] of [...paths].sort((a, b) => (b[0] === "open") - (a[0] === "open"))) {
      boxes.append(svg("path", { class: family, d }));
    }
    this.map.setAttribute("width", Math.ceil(w * this.sx));
    this.map.setAttribute("height", Math.ceil(h * this.sy));
    this.move();
  }

  // move shows the world where the view is now.
  move() {
    this.world.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.k})`);
    const [w, h] = this.extent(), pw = this.port.clientWidth, ph = this.port.clientHeight;
    const all = this.x >= 0 && this.y >= 0 && this.x + w * this.k <= pw && this.y + h * this.k <= ph;
    this.map.classList.toggle("idle", all);
    const frame = this.map.querySelector("rect");
    const x = Math.max(0, -this.x / this.k * this.sx), y = Math.max(0, -this.y / this.k * this.sy);
    frame.setAttribute("x", x);
    frame.setAttribute("y", y);
    frame.setAttribute("width", Math.max(4, Math.min(w * this.sx, (pw - this.x) / this.k * this.sx) - x));
    frame.setAttribute("height", Math.max(4, Math.min(h * this.sy, (ph - this.y) / this.k * this.sy) - y));
  }

  // within keeps some of the drawing in the window.
  within() {
    const [w, h] = this.extent(), pw = this.port.clientWidth, ph = this.port.clientHeight, least = 60;
    this.x = Math.min(pw - least, Math.max(least - w * this.k, this.x));
    this.y = Math.min(ph - least, Math.max(least - h * this.k, this.y));
    this.move();
  }

  zoom(factor, cx = this.port.clientWidth / 2, cy = this.port.clientHeight / 2) {
    const k = Math.min(4, Math.max(0.02, this.k * factor));
    this.x = cx - (cx - this.x) * k / this.k;
    this.y = cy - (cy - this.y) * k / this.k;
    this.k = k;
    this.within();
  }

  // fit shows everything.
  fit() {
    const [w, h] = this.extent(), pw = this.port.clientWidth, ph = this.port.clientHeight;
    this.k = Math.min(1.2, pw / w, ph / h);
    this.x = (pw - w * this.k) / 2;
    this.y = (ph - h * this.k) / 2;
    this.move();
  }

  // start shows where the graph begins, at a size that can be read.
  start() {
    const [w, h] = this.extent(), pw = this.port.clientWidth, ph = this.port.clientHeight;
    this.k = Math.min(1, Math.max(0.8, pw / w));
    // Over the boxes that are seen first, the first row whole, and all if it fits.
    let sum = 0, n = 0, top = Infinity, from = 0, to = 0;
    this.boxes.forEach((b, i) => {
      const p = i && this.position(i);
      if (!p || (b.f && !b.folded) || p.y * this.k >= ph) return;
      sum += p.x + p.w / 2;
      n++;
      if (p.y < top - 1) { top = p.y; from = p.x; to = p.x + p.w; }
      else if (p.y < top + 20) { from = Math.min(from, p.x); to = Math.max(to, p.x + p.w); }
    });
    const into = (x, a, b) => Math.max(Math.min(a, b), Math.min(Math.max(a, b), x));
    this.x = into(pw / 2 - (n ? sum / n : w / 2) * this.k, 0, pw - w * this.k);
    if ((to - from) * this.k < pw - 24) this.x = into(this.x, 12 - from * this.k, pw - 12 - to * this.k);
    this.y = h * this.k < ph ? Math.min(24, (ph - h * this.k) / 2) : 0;
    this.move();
  }

  fold(i, folded, anchor = i) {
    const before = this.position(anchor);
    this.boxes[i].folded = folded;
    this.place();
    const after = this.position(anchor);
    if (before && after) { // the box stays where the eye is
      this.x += (before.x + before.w / 2 - after.x - after.w / 2) * this.k;
      this.y += (before.y - after.y) * this.k;
    }
    this.move();
  }

  foldAll(folded) {
    this.boxes.forEach((b, i) => { if (b.f && i) b.folded = folded; });
    this.place();
    this.start();
  }

  // choose shows a box, unfolds what is around it and tells of it.
  choose(i, centre) {
    let hidden = false;
    for (let p = this.boxes[i].p; p > 0; p = this.boxes[p].p) {
      hidden = hidden || this.boxes[p].folded;
      this.boxes[p].folded = false;
    }
    if (hidden) this.place();
    this.chosen = i;
    this.light();
    this.tell(i);
    const at = this.position(i), pw = this.port.clientWidth;
    const sheet = getComputedStyle(this.details).position === "fixed", side = sheet ? 0 : this.details.offsetWidth;
    if (sheet) this.stage.scrollIntoView();
    const r = this.port.getBoundingClientRect();
    const top = Math.max(0, -r.top), end = (sheet ? this.details.getBoundingClientRect().top : Math.min(innerHeight, r.bottom)) - r.top;
    const y = at.y * this.k + this.y, h = Math.min(at.h, 80) * this.k;
    if (centre || hidden || y < top || y + h > end) {
      if (this.k < 0.7) this.k = 0.9;
      this.x = (pw - side) / 2 - (at.x + at.w / 2) * this.k;
      this.y = (top + end) * 0.47 - (at.y + Math.min(at.h, 80) / 2) * this.k;
    } else { // out from under the panel
      const over = (at.x + at.w) * this.k + this.x - (pw - side - 12);
      if (over > 0 && at.w * this.k < pw - side) this.x -= over;
    }
    this.move();
    this.elements[i].focus({ preventScroll: true });
  }

  leave() {
    this.chosen = -1;
    this.light();
    this.details.hidden = true;
  }

  // light marks the chosen box, its edges and its peer in the other graph.
  light() {
    for (const e of document.querySelectorAll(".box.peer")) e.classList.remove("peer");
    for (const e of this.svg.querySelectorAll(".chosen, .lit")) e.classList.remove("chosen", "lit");
    if (this.chosen < 0) return;
    const b = this.boxes[this.chosen];
    this.elements[this.chosen].classList.add("chosen");
    const parent = this.boxes[b.p].f, k = parent.items.indexOf(this.chosen);
    parent.links.forEach((l, j) => { if (l[0] === k || l[2] === k) this.inside(b.p).edges[j].classList.add("lit"); });
    if (b.peer !== undefined) {
      for (const other of viewers.values()) {
        if (other === this) continue;
        const p = other.seen(b.peer);
        if (p > 0) other.elements[p].classList.add("peer");
      }
    }
  }

  tell(i) {
    const b = this.boxes[i], d = b.d, to = this.details;
    to.hidden = false;
    to.scrollTop = 0;
    to.replaceChildren();
    const close = add(to, "button", "×", "close");
    close.type = "button";
    close.setAttribute("aria-label", "close");
    close.addEventListener("click", () => this.leave());
    add(to, "h3", b.t);
    if (d.kind) add(to, "p", d.kind, "soft");
    if (b.n) add(to, "p", b.n, "mono");
    if (b.m) add(to, "p", b.m === "follows" ? "follows from a change elsewhere" : b.m, "badge m-" + b.m);
    for (const c of d.changes || []) add(to, "p", c);
    const facts = [...(d.attrs || []).map((a) => [a.n, a.v])];
    if (b.f && d.nodes) facts.push(["operators", d.nodes]);
    if (d.flops) facts.push(["FLOPs", count(d.flops)]);
    if (d.weights) facts.push(["weights", bytes(d.weights)]);
    if (d.time) facts.push(["time", `${time(d.time)}, ${(100 * d.share).toFixed(1)} % of all steps`]);
    if (facts.length) {
      const list = add(to, "dl");
      for (const [name, value] of facts) { add(list, "dt", name); add(list, "dd", value); }
    }
    for (const [title, list] of [["inputs", (d.in || []).filter((o) => o.b >= 0 || !o.k)], ["weights", (d.in || []).filter((o) => o.b < 0 && o.k)], ["outputs", d.out]]) {
      if (!list || !list.length) continue;
      add(to, "h4", title);
      const ul = add(to, "ul");
      for (const o of list) {
        const li = add(ul, "li");
        if (o.b >= 0) {
          const button = add(li, "button", o.n || "(nameless)", "mono");
          button.type = "button";
          button.addEventListener("click", () => this.choose(o.b, true));
        } else {
          add(li, "span", o.n || "(nameless)", "mono");
        }
        add(li, "div", (o.x ? o.x + "  " : "") + o.t + (o.k && o.k !== "weight" ? ", " + o.k : "") + (o.v ? ", computed by " + o.v : ""), "soft");
      }
    }
    if (b.peer !== undefined) {
      for (const other of viewers.values()) {
        if (other === this) continue;
        const button = add(add(to, "p"), "button", "show in the other graph");
        button.type = "button";
        button.addEventListener("click", () => other.choose(b.peer, true));
      }
    }
  }

  // words are what a search looks through, of a box.
  words(b) {
    if (b.words === undefined) {
      const d = b.d;
      b.words = [b.t, b.n, b.y, d.kind, b.m, ...(d.attrs || []).map((a) => a.n + " " + a.v),
        ...(d.in || []).filter((o) => o.b < 0).map((o) => `${o.n} ${o.v || ""}`)].filter(Boolean).join(" ").toLowerCase();
    }
    return b.words;
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.hit.clear();
    this.holds.clear();
    this.root.classList.toggle("hits-on", words.length > 0);
    this.hits.replaceChildren();
    this.matches = [];
    this.turn = -1;
    if (words.length) {
      this.boxes.forEach((b, i) => {
        if (!i || !words.every((w) => this.words(b).includes(w))) return;
        this.matches.push(i);
        this.hit.add(i);
        for (let p = b.p; p > 0 && !this.holds.has(p); p = this.boxes[p].p) this.holds.add(p);
      });
      this.matches.slice(0, 30).forEach((i, k) => {
        const b = this.boxes[i];
        const name = b.e || b.n, group = b.p > 0 ? ", " + this.boxes[b.p].t : "";
        const button = add(this.hits, "button", b.t + (name ? " · " + name : "") + group);
        button.type = "button";
        button.addEventListener("click", () => { this.turn = k; this.choose(i, true); this.told(); });
      });
    }
    this.elements.forEach((_, i) => this.dress(i));
    this.hits.hidden = !this.hits.children.length;
    this.told();
  }

  // dress marks a box as what a search found, and how long it takes.
  dress(i) {
    const e = this.elements[i];
    e.classList.toggle("hit", this.hit.has(i));
    e.classList.toggle("holds", this.holds.has(i));
    if (this.most) e.style.setProperty("--heat", `${Math.min(55, 55 * (this.boxes[i].h || 0) / this.most)}%`);
  }

  // told says how many boxes were found, and which of them is shown.
  told() {
    const n = this.matches.length;
    this.found.textContent = !this.input.value.trim() ? "" : this.turn >= 0 ? `${this.turn + 1} of ${n}` : n === 1 ? "1 box" : n + " boxes";
    [...this.hits.children].forEach((e, k) => e.classList.toggle("on", k === this.turn));
    if (this.hits.children[this.turn]) this.hits.children[this.turn].scrollIntoView({ block: "nearest" });
  }

  // next goes to the next hit, or to the one before.
  next(by) {
    const n = this.matches.length;
    if (!n) return;
    this.turn = this.turn < 0 ? (by > 0 ? 0 : n - 1) : (this.turn + by + n) % n;
    this.choose(this.matches[this.turn], true);
    this.told();
    this.input.focus({ preventScroll: true });
  }

  // step chooses the nearest box that is seen in a direction.
  step(dx, dy) {
    const from = this.position(this.seen(this.chosen));
    const cx = (p) => p.x + p.w / 2, cy = (p) => p.y + Math.min(p.h, 60) / 2;
    let best = -1, least = Infinity;
    for (let i = 1; i < this.boxes.length; i++) {
      const p = i === this.chosen ? null : this.position(i);
      if (!p) continue;
      const along = (cx(p) - cx(from)) * dx + (cy(p) - cy(from)) * dy;
      const aside = Math.abs((cx(p) - cx(from)) * dy) + Math.abs((cy(p) - cy(from)) * dx);
      const far = along + 3 * aside;
      if (along > 4 && far < least) { least = far; best = i; }
    }
    if (best > 0) this.choose(best, true);
  }

  keys(event) {
    const arrows = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const arrow = arrows[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow) {
      if (this.chosen >= 0) this.step(...arrow);
      else { this.x -= 60 * arrow[0]; this.y -= 60 * arrow[1]; this.within(); }
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "Home") this.start();
    else if (event.key === "Enter" || event.key === " ") {
      if (this.chosen < 0) this.choose(this.boxes[0].f.items[0], true);
      else if (this.boxes[this.chosen].f) { this.fold(this.chosen, !this.boxes[this.chosen].folded); this.elements[this.chosen].focus({ preventScroll: true }); }
    } else if (event.key === "Escape") { this.leave(); this.port.focus({ preventScroll: true }); }
    else return;
    event.preventDefault();
  }

  listen() {
    const port = this.port, pointers = new Map();
    let moved = false, from = null;
    const local = (e) => { const r = port.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    // One pointer pans, two zoom around the point between them.
    const grip = () => {
      const all = [...pointers.values()], n = all.length;
      return { x: all.reduce((s, p) => s + p[0], 0) / n, y: all.reduce((s, p) => s + p[1], 0) / n, far: n > 1 ? Math.hypot(all[0][0] - all[1][0], all[0][1] - all[1][1]) : 0 };
    };
    port.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      pointers.set(e.pointerId, local(e));
      if (pointers.size === 1) moved = false;
      from = grip();
    });
    port.addEventListener("pointermove", (e) => {
      if (!pointers.has(e.pointerId)) return;
      const before = pointers.get(e.pointerId), now = local(e);
      if (!moved && pointers.size === 1 && Math.hypot(now[0] - from.x, now[1] - from.y) < 4) return;
      if (!moved) port.setPointerCapture(e.pointerId);
      moved = true;
      pointers.set(e.pointerId, now);
      const to = grip();
      this.x += to.x - from.x;
      this.y += to.y - from.y;
      if (from.far > 0 && to.far > 0) this.zoom(to.far / from.far, to.x, to.y); else this.within();
      from = to;
      if (before[0] !== now[0] || before[1] !== now[1]) e.preventDefault();
    });
    const done = (e) => {
      pointers.delete(e.pointerId);
      if (pointers.size) from = grip();
    };
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) port.addEventListener(end, (e) => { if (end !== "pointerleave" || !port.hasPointerCapture(e.pointerId)) done(e); });
    port.addEventListener("click", (e) => {
      if (moved) return;
      const box = e.target.closest(".box");
      if (!box) { this.leave(); return; }
      const i = +box.dataset.i;
      if (e.target.closest(".fold")) this.fold(i, !this.boxes[i].folded);
      else this.choose(i, false);
    });
    port.addEventListener("dblclick", (e) => {
      const box = e.target.closest(".box");
      if (box && this.boxes[+box.dataset.i].f && !e.target.closest(".fold")) this.fold(+box.dataset.i, !this.boxes[+box.dataset.i].folded);
    });
    // The wheel zooms around the pointer; outside of the graph it scrolls the page.
    port.addEventListener("wheel", (e) => {
      const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? port.clientHeight : 1, [x, y] = local(e);
      if (e.shiftKey) { this.x -= (e.deltaX || e.deltaY) * unit; this.within(); }
      else this.zoom(Math.exp(-Math.max(-240, Math.min(240, e.deltaY * unit)) / (e.ctrlKey ? 150 : 400)), x, y);
      e.preventDefault();
    }, { passive: false });
    port.addEventListener("keydown", (e) => this.keys(e));
    this.input.addEventListener("input", () => this.search(this.input.value));
    this.input.addEventListener("keydown", (e) => {
      if (e.key === "Enter") this.next(e.shiftKey ? -1 : 1);
      else if (e.key === "Escape") { this.input.value = ""; this.search(""); port.focus({ preventScroll: true }); }
      else return;
      e.preventDefault();
    });
    // The map takes the view where it is pressed or dragged to.
    const jump = (e) => {
      const r = this.map.getBoundingClientRect();
      this.x = port.clientWidth / 2 - (e.clientX - r.left) / this.sx * this.k;
      this.y = port.clientHeight / 2 - (e.clientY - r.top) / this.sy * this.k;
      this.within();
    };
    this.map.addEventListener("pointerdown", (e) => { this.map.setPointerCapture(e.pointerId); jump(e); e.preventDefault(); });
    this.map.addEventListener("pointermove", (e) => { if (this.map.hasPointerCapture(e.pointerId)) jump(e); });
    const actions = {
      in: () => this.zoom(1.25), out: () => this.zoom(0.8), fit: () => this.fit(), start: () => this.start(),
      fold: () => this.foldAll(true), unfold: () => this.foldAll(false), heat: (b) => this.heat(b),
    };
    for (const b of this.root.querySelectorAll("[data-do]")) b.addEventListener("click", () => actions[b.dataset.do](b));
  }

  heat(button) {
    const on = this.root.classList.toggle("heat");
    button.setAttribute("aria-pressed", on);
    this.most = this.boxes.reduce((most, b) => b.f ? most : Math.max(most, b.h || 0), 1e-9);
    this.elements.forEach((_, i) => this.dress(i));
  }

  // resized keeps in the middle what is there.
  resized() {
    const w = this.port.clientWidth;
    this.x += (w - this.width) / 2;
    this.width = w;
    this.chart();
  }

  show() {
    this.width = this.port.clientWidth;
    this.svg.removeAttribute("viewBox");
    this.svg.removeAttribute("width");
    this.svg.removeAttribute("height");
    this.chart();
    if (!this.shown) this.start();
    this.shown = true;
  }

  // print shows everything at a size that fits the paper's width, in pieces
  // of at most a page, cut where no box stands.
  print() {
    const [w, h] = this.extent(), scale = Math.min(0.85, 690 / w), most = 780 / scale;
    const boxes = [];
    for (let i = 1; i < this.boxes.length; i++) {
      const p = this.position(i), b = this.boxes[i];
      if (p) boxes.push([p.y - 4, p.y + (b.f && !b.folded ? this.header : p.h) + 4]);
    }
    this.world.removeAttribute("transform");
    this.world.id = this.view.id + "-world";
    const pages = add(this.root, "div", undefined, "pages");
    for (let y = 0; y < h;) {
      let to = Math.min(h, y + most);
      while (to < h) {
        const hit = boxes.find(([top, end]) => top < to && to < end);
        if (!hit) break;
        to = hit[0];
      }
      if (to <= y) to = Math.min(h, y + most);
      const piece = this.svg.cloneNode(false);
      piece.setAttribute("viewBox", `0 ${y} ${w} ${to - y}`);
      piece.setAttribute("width", w * scale);
      piece.setAttribute("height", (to - y) * scale);
      piece.append(svg("use", { href: "#" + this.world.id }));
      pages.append(piece);
      y = to;
    }
  }

  printed() {
    this.root.querySelectorAll(":scope > .pages").forEach((e) => e.remove());
    this.show();
  }
}
