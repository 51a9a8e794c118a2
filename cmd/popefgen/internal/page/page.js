"use strict";
// What the page does once it is loaded: pan, zoom, search and fold. The layout
// of every group's inside is given; folding only closes up its rows.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const viewers = new Map();

  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let u = 0;
    while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
    return (u && n < 10 ? n.toFixed(1) : Math.round(n)) + " " + units[u];
  };
  const time = (ns) => ns >= 1e6 ? (ns / 1e6).toPrecision(4) + " ms" : ns >= 1e3 ? (ns / 1e3).toPrecision(4) + " µs" : ns + " ns";
  const add = (parent, tag, text, className) => {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    parent.append(e);
    return e;
  };

  class Viewer {
    constructor(view) {
      this.view = view;
      this.boxes = view.boxes;
      [this.pad, this.header, this.gap, this.strip] = view.sizes;
      this.root = document.getElementById(view.id);
      this.port = this.root.querySelector(".viewport");
      this.svg = this.port.querySelector("svg");
      this.world = this.svg.querySelector(".world");
      this.details = this.root.querySelector(".details");
      this.found = this.root.querySelector(".found");
      this.hits = this.root.querySelector(".hits");
      this.elements = [];
      for (const e of this.svg.querySelectorAll(".box")) this.elements[+e.dataset.i] = e;
      this.frames = this.boxes.map((b, i) => b.f ? (i === 0 ? this.world : this.elements[i]).querySelector(":scope > .frame") : null);
      this.edges = this.frames.map((f) => f ? [...f.querySelectorAll(":scope > .edge")] : []);
      this.chosen = -1;
      this.x = this.y = 0;
      this.k = 1;
      this.cache = new Map();
      this.listen();
    }

    // see places the rows of a group's inside, as the drawing's own code does.
    see(i) {
      if (this.cache.has(i)) return this.cache.get(i);
      const f = this.boxes[i].f, n = f.items.length;
      const seats = [], x = [], row = [], rows = [];
      const spans = f.x.map((c, k) => {
        let half = 0;
        if (k < n) {
          const [w, h] = this.size(f.items[k]);
          seats.push({ x: 0, y: 0, w, h });
          half = w / 2;
        }
        return { left: c - half, right: c + half, k };
      });
      spans.sort((a, b) => a.left - b.left || a.k - b.k);
      let end = 0, off = 0, w = 0;
      spans.forEach((s, at) => {
        const allowed = at ? this.strip : 0;
        if (s.left - end > allowed) off += s.left - end - allowed;
        end = Math.max(end, s.right);
        x[s.k] = f.x[s.k] - off;
        w = Math.max(w, s.right - off);
      });
      let y = 0;
      f.rows.forEach((items, r) => {
        let h = 0;
        for (const k of items) {
          row[k] = r;
          if (k < n) h = Math.max(h, seats[k].h);
        }
        for (const k of items) {
          if (k < n) { seats[k].x = x[k] - seats[k].w / 2; seats[k].y = y + (h - seats[k].h) / 2; }
        }
        rows.push([y, y + h]);
        y += h + this.gap;
      });
      const inside = { w, h: Math.max(0, y - this.gap), seats, x, row, rows };
      this.cache.set(i, inside);
      return inside;
    }

    size(i) {
      const b = this.boxes[i];
      if (!b.f || b.folded) return b.s;
      const inside = this.see(i);
      return [Math.max(b.s[0], inside.w + 2 * this.pad), this.header + inside.h + this.pad];
    }

    end(f, inside, k, port) {
      if (port < 0) return inside.x[k];
      const child = this.boxes[f.items[k]], s = inside.seats[k];
      if (child.folded) return s.x + s.w * (0.2 + 0.6 * child.f.x[port] / Math.max(1, child.f.w));
      const inner = this.see(f.items[k]);
      return s.x + (s.w - inner.w) / 2 + inner.x[port];
    }

    path(f, inside, [from, fromPort, to, toPort, ...bends]) {
      const n = f.items.length;
      let x = this.end(f, inside, from, fromPort);
      let y = from < n ? inside.seats[from].y + inside.seats[from].h : -this.header;
      let d = `M${x},${y}`;
      const go = (x2, y2) => {
        const m = (y + y2) / 2;
        d += x === x2 ? `V${y2}` : `C${x},${m} ${x2},${m} ${x2},${y2}`;
        x = x2; y = y2;
      };
      const through = (k) => { const end = inside.rows[inside.row[k]][1]; if (end > y) go(x, end); };
      through(from);
      for (const k of bends) { go(inside.x[k], inside.rows[inside.row[k]][0]); through(k); }
      const top = inside.rows[inside.row[to]][0], x2 = this.end(f, inside, to, toPort);
      go(x2, top);
      if (to >= n) go(x2, top + this.pad);
      else if (inside.seats[to].y > top) go(x2, inside.seats[to].y);
      return d;
    }

    // place moves everything to where it stands as groups are folded now.
    place() {
      this.cache.clear();
      const visit = (i) => {
        const f = this.boxes[i].f, inside = this.see(i);
        this.edges[i].forEach((e) => e.setAttribute("d", this.path(f, inside, f.links[+e.dataset.l])));
        f.items.forEach((child, k) => {
          const b = this.boxes[child], e = this.elements[child], s = inside.seats[k];
          const open = Boolean(b.f) && !b.folded;
          e.setAttribute("transform", `translate(${s.x},${s.y})`);
          const rect = e.querySelector(":scope > rect");
          rect.setAttribute("width", s.w);
          rect.setAttribute("height", s.h);
          e.querySelector(":scope > .stripe").setAttribute("d", `M0,5Q0,0 5,0V${s.h}Q0,${s.h} 0,${s.h - 5}z`);
          const sign = e.querySelector(":scope > .sign");
          if (sign) sign.setAttribute("x", s.w - 16);
          if (!b.f) return;
          e.classList.toggle("open", open);
          e.setAttribute("aria-expanded", open);
          e.querySelector(":scope > .fold").textContent = open ? "▾" : "▸";
          const frame = this.frames[child];
          if (open) {
            frame.removeAttribute("display");
            frame.setAttribute("transform", `translate(${(s.w - this.see(child).w) / 2},${this.header})`);
            visit(child);
          } else {
            frame.setAttribute("display", "none");
          }
        });
      };
      visit(0);
      this.light();
    }

    // extent is the size of the whole drawing.
    extent() {
      const inside = this.see(0);
      return [inside.w + 2 * this.pad, inside.h + 2 * this.pad];
    }

    // position is where a box stands in the drawing, or null if it is hidden.
    position(i) {
      let x = this.pad, y = this.pad, size = null;
      const chain = [];
      for (let k = i; k > 0; k = this.boxes[k].p) chain.unshift(k);
      let parent = 0;
      for (const k of chain) {
        if (parent) {
          if (this.boxes[parent].folded) return null;
          x += (size.w - this.see(parent).w) / 2;
          y += this.header;
        }
        size = this.see(parent).seats[this.boxes[parent].f.items.indexOf(k)];
        x += size.x;
        y += size.y;
        parent = k;
      }
      return { x, y, w: size.w, h: size.h };
    }

    move() {
      this.world.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.k})`);
    }

    zoom(factor, cx = this.port.clientWidth / 2, cy = this.port.clientHeight / 2) {
      const k = Math.min(4, Math.max(0.02, this.k * factor));
      this.x = cx - (cx - this.x) * k / this.k;
      this.y = cy - (cy - this.y) * k / this.k;
      this.k = k;
      this.move();
    }

    // fit shows everything, or all of its width at a size that can be read.
    fit(least = 0) {
      const [w, h] = this.extent();
      const pw = this.port.clientWidth, ph = this.port.clientHeight;
      this.k = Math.min(1.2, Math.max(Math.min(least, pw / w), Math.min(pw / w, ph / h)));
      this.x = (pw - w * this.k) / 2;
      this.y = h * this.k < ph ? (ph - h * this.k) / 2 : 0;
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
      this.fit(1);
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
      if (centre || hidden) {
        const at = this.position(i);
        if (this.k < 0.7) this.k = 0.9;
        this.x = this.port.clientWidth / 2 - (at.x + at.w / 2) * this.k;
        this.y = this.port.clientHeight / 2 - (at.y + Math.min(at.h, 80) / 2) * this.k;
        this.move();
      }
      this.elements[i].focus({ preventScroll: true });
      this.tell(i);
    }

    // light marks the chosen box, its edges and its peer in the other graph.
    light() {
      for (const e of document.querySelectorAll(".box.peer")) e.classList.remove("peer");
      for (const e of this.svg.querySelectorAll(".chosen, .lit")) e.classList.remove("chosen", "lit");
      if (this.chosen < 0) return;
      const b = this.boxes[this.chosen];
      this.elements[this.chosen].classList.add("chosen");
      const parent = this.boxes[b.p].f, k = parent.items.indexOf(this.chosen);
      parent.links.forEach((l, j) => { if (l[0] === k || l[2] === k) this.edges[b.p][j].classList.add("lit"); });
      if (b.peer !== undefined) {
        for (const other of viewers.values()) {
          if (other !== this) {
            let p = b.peer;
            while (p > 0 && !other.position(p)) p = other.boxes[p].p;
            if (p > 0) other.elements[p].classList.add("peer");
          }
        }
      }
    }

    tell(i) {
      const b = this.boxes[i], d = b.d, to = this.details;
      to.replaceChildren();
      add(to, "h3", b.t);
      if (b.n) add(to, "p", b.n, "mono");
      if (b.m) add(to, "p", b.m, "badge m-" + b.m);
      for (const c of d.changes || []) add(to, "p", c);
      if (d.op) add(to, "p", d.op, "mono");
      if (b.f && d.nodes) add(to, "p", d.nodes === 1 ? "1 operator" : d.nodes + " operators");
      if (d.weights) add(to, "p", "weights: " + bytes(d.weights));
      if (d.time) add(to, "p", `time: ${time(d.time)}, ${(100 * d.share).toFixed(1)} % of all steps`);
      for (const [title, list] of [["operands", d.in], ["results", d.out]]) {
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
            add(li, "span", o.n, "mono");
          }
          add(li, "span", " " + o.t + (o.k ? ", " + o.k : ""), "soft");
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

    search(text) {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      for (const e of this.svg.querySelectorAll(".hit")) e.classList.remove("hit");
      this.root.classList.toggle("hits-on", words.length > 0);
      this.hits.replaceChildren();
      this.matches = [];
      if (words.length) {
        this.boxes.forEach((b, i) => {
          const all = `${b.t} ${b.n || ""} ${b.y || ""} ${b.d.op || ""} ${b.m || ""}`.toLowerCase();
          if (i && words.every((w) => all.includes(w))) {
            this.matches.push(i);
            this.elements[i].classList.add("hit");
          }
        });
        for (const i of this.matches.slice(0, 30)) {
          const b = this.boxes[i];
          const button = add(this.hits, "button", b.t + (b.n ? " · " + b.n : ""));
          button.type = "button";
          button.addEventListener("click", () => this.choose(i, true));
        }
      }
      this.hits.hidden = !this.hits.children.length;
      this.found.textContent = words.length ? (this.matches.length === 1 ? "1 box" : this.matches.length + " boxes") : "";
    }

    // step chooses the nearest box that is seen in a direction.
    step(dx, dy) {
      const from = this.position(this.chosen);
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
        else { this.x -= 60 * arrow[0]; this.y -= 60 * arrow[1]; this.move(); }
      } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "0") this.fit();
      else if (event.key === "Enter" || event.key === " ") {
        if (this.chosen < 0) this.choose(this.boxes[0].f.items[0], true);
        else if (this.boxes[this.chosen].f) { this.fold(this.chosen, !this.boxes[this.chosen].folded); this.elements[this.chosen].focus({ preventScroll: true }); }
      } else if (event.key === "Escape") { this.chosen = -1; this.light(); this.port.focus({ preventScroll: true }); }
      else if (event.key === "/") this.root.querySelector(".search").focus();
      else return;
      event.preventDefault();
    }

    listen() {
      const port = this.port;
      let drag = null, moved = false;
      port.addEventListener("pointerdown", (e) => {
        if (e.button) return;
        drag = [e.clientX - this.x, e.clientY - this.y, e.clientX, e.clientY];
        moved = false;
      });
      port.addEventListener("pointermove", (e) => {
        if (!drag) return;
        if (!moved && Math.hypot(e.clientX - drag[2], e.clientY - drag[3]) < 4) return;
        if (!moved) port.setPointerCapture(e.pointerId);
        moved = true;
        this.x = e.clientX - drag[0];
        this.y = e.clientY - drag[1];
        this.move();
      });
      const done = () => { drag = null; };
      port.addEventListener("pointerup", done);
      port.addEventListener("pointercancel", done);
      port.addEventListener("click", (e) => {
        if (moved) return;
        const box = e.target.closest(".box");
        if (!box) return;
        const i = +box.dataset.i;
        if (e.target.closest(".fold")) this.fold(i, !this.boxes[i].folded);
        else this.choose(i, false);
      });
      port.addEventListener("dblclick", (e) => {
        const box = e.target.closest(".box");
        if (box && this.boxes[+box.dataset.i].f && !e.target.closest(".fold")) this.fold(+box.dataset.i, !this.boxes[+box.dataset.i].folded);
      });
      // The wheel scrolls the page, unless the graph has the focus or the person zooms.
      port.addEventListener("wheel", (e) => {
        const r = port.getBoundingClientRect();
        if (e.ctrlKey || e.metaKey) this.zoom(Math.exp(-e.deltaY / 300), e.clientX - r.left, e.clientY - r.top);
        else if (port.contains(document.activeElement)) { this.x -= e.deltaX; this.y -= e.deltaY; this.move(); }
        else return;
        e.preventDefault();
      }, { passive: false });
      port.addEventListener("keydown", (e) => this.keys(e));
      const search = this.root.querySelector(".search");
      search.addEventListener("input", () => this.search(search.value));
      search.addEventListener("keydown", (e) => {
        if (e.key === "Enter" && this.matches && this.matches.length) {
          const at = this.matches.indexOf(this.chosen);
          this.choose(this.matches[(at + 1) % this.matches.length], true);
          search.focus();
        }
      });
      const actions = {
        in: () => this.zoom(1.25), out: () => this.zoom(0.8), fit: () => this.fit(), width: () => this.fit(1),
        fold: () => this.foldAll(true), unfold: () => this.foldAll(false), heat: (b) => this.heat(b),
      };
      for (const b of this.root.querySelectorAll("[data-do]")) b.addEventListener("click", () => actions[b.dataset.do](b));
    }

    heat(button) {
      const on = this.root.classList.toggle("heat");
      button.setAttribute("aria-pressed", on);
      const most = Math.max(1e-9, ...this.boxes.filter((b) => !b.f).map((b) => b.h || 0));
      this.boxes.forEach((b, i) => { if (i) this.elements[i].style.setProperty("--heat", `${Math.min(55, 55 * (b.h || 0) / most)}%`); });
    }

    show() {
      this.svg.removeAttribute("viewBox");
      this.svg.removeAttribute("width");
      this.svg.removeAttribute("height");
      if (!this.shown) this.fit(1);
      this.shown = true;
      this.move();
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
        const svg = this.svg.cloneNode(false), use = document.createElementNS(svg.namespaceURI, "use");
        svg.setAttribute("viewBox", `0 ${y} ${w} ${to - y}`);
        svg.setAttribute("width", w * scale);
        svg.setAttribute("height", (to - y) * scale);
        use.setAttribute("href", "#" + this.world.id);
        svg.append(use);
        pages.append(svg);
        y = to;
      }
    }

    printed() {
      this.root.querySelectorAll(":scope > .pages").forEach((e) => e.remove());
      this.show();
    }
  }

  for (const view of data) viewers.set(view.id, new Viewer(view));
  const visible = () => [...viewers.values()].filter((v) => !v.root.hidden);
  visible().forEach((v) => v.show());
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.addEventListener("click", () => {
      for (const t of tab.parentElement.children) {
        t.setAttribute("aria-selected", t === tab);
        document.getElementById(t.dataset.view).hidden = t !== tab;
      }
      viewers.get(tab.dataset.view).show();
    });
  }
  // Steps in tables and buffers in charts lead to their boxes in the graph.
  for (const link of document.querySelectorAll("[data-go]")) {
    link.addEventListener("click", () => {
      const sides = [...document.querySelectorAll("#graph .side")];
      const mine = link.closest(".side"), all = mine ? [...mine.parentElement.children] : [];
      const side = link.closest("#memory") ? sides[all.indexOf(mine)] : sides[sides.length - 1];
      const viewer = viewers.get(side.querySelector(".viewer").id);
      const tab = side.querySelector(`[data-view="${viewer.view.id}"]`);
      if (tab) tab.click();
      viewer.choose(+link.dataset.go, true);
      document.getElementById("graph").scrollIntoView();
    });
  }
  addEventListener("beforeprint", () => visible().forEach((v) => v.print()));
  addEventListener("afterprint", () => visible().forEach((v) => v.printed()));
  window.popefgenViewers = viewers;
})();
