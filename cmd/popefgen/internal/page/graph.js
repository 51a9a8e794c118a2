// A graph as it is drawn: where boxes, edges and shapes stand as groups are
// folded now. The layout of every group's inside is given; folding only closes
// up its rows.
const data = JSON.parse(document.getElementById("data").textContent);
const viewers = new Map();

const add = (parent, tag, text, className) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  parent.append(e);
  return e;
};

const svg = (tag, attributes, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
};

class Graph {
  constructor(view) {
    this.view = view;
    this.boxes = view.boxes;
    [this.pad, this.header, this.gap, this.strip, this.tagGap, this.tagDrop, this.tagOver, this.portGap, this.stub, this.leaveGap, this.left, this.first, this.line] = view.sizes;
    this.root = document.getElementById(view.id);
    this.port = this.root.querySelector(".viewport");
    this.svg = this.port.querySelector("svg");
    this.world = this.svg.querySelector(".world");
    this.elements = [];
    for (const e of this.svg.querySelectorAll(".box")) this.elements[+e.dataset.i] = e;
    this.insides = new Map();
    this.cache = new Map();
    this.at = null;
  }

  // inside returns the elements in a group: its frame, edges and shapes. They
  // are made once the group is unfolded for the first time.
  inside(i) {
    let x = this.insides.get(i);
    if (!x) {
      const frame = (i ? this.elements[i] : this.world).querySelector(":scope > .frame") || this.make(i);
      x = { frame, edges: [...frame.querySelectorAll(":scope > .edge")], shapes: [...frame.querySelectorAll(":scope > .shape")] };
      this.insides.set(i, x);
    }
    return x;
  }

  // make makes what is in a group, as the drawing's own code does.
  make(i) {
    const f = this.boxes[i].f, n = f.items.length, frame = svg("g", { class: "frame" });
    for (const l of f.links) frame.append(svg("path", { class: l[2] >= n ? "edge out" : "edge" }));
    for (const e of f.exits) frame.append(svg("text", { class: "shape" }, e[2]));
    for (const child of f.items) {
      const b = this.boxes[child];
      const box = svg("g", { class: `box f-${b.c}${b.f ? " group" : ""}${b.m ? " m-" + b.m : ""}`, "data-i": child, tabindex: -1, role: "button", "aria-label": [b.t, b.n, b.y].filter(Boolean).join(", ") });
      box.append(svg("rect", { rx: 6 }), svg("path", { class: "stripe" }));
      let left = this.left;
      if (b.f) {
        const button = svg("g", { class: "fold" });
        button.append(svg("rect", { x: 2, y: 2, width: 26, height: 26 }), svg("text", { x: left - 2, y: this.first }, "▸"));
        box.append(button);
        left += 16;
      }
      box.append(svg("text", { class: "kind", x: left, y: this.first }, b.l[0]));
      if (b.f) box.append(svg("text", { class: "count", x: left + b.o, y: this.first }, b.d.nodes === 1 ? "1 operator" : b.d.nodes + " operators"));
      const lines = b.l.slice(1).map((l) => ["sub", l]);
      if (b.e) lines.push(["sub name", b.e]);
      lines.forEach(([c, l], k) => box.append(svg("text", { class: c, x: this.left, y: this.first + (k + 1) * this.line }, l)));
      const sign = { added: "+", removed: "−", changed: "≠" }[b.m];
      if (sign) box.append(svg("text", { class: "sign", y: this.first + 1 }, sign));
      this.elements[child] = box;
      this.dress(child);
      frame.append(box);
    }
    this.elements[i].querySelector(":scope > .stripe").after(frame);
    return frame;
  }

  // dress gives a new box the marks of what is going on.
  dress() {}

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
    const heights = f.rows.map((items, r) => {
      let h = 0;
      for (const k of items) {
        row[k] = r;
        if (k < n) h = Math.max(h, seats[k].h);
      }
      return h;
    });
    let y = 0, all = 0;
    f.rows.forEach((items, r) => {
      const h = heights[r];
      for (const k of items) {
        if (k < n) { seats[k].x = x[k] - seats[k].w / 2; seats[k].y = y + (h - seats[k].h) / 2; }
      }
      rows.push([y, y + h]);
      all = y + h;
      y += h + (!h ? this.portGap : heights[r + 1] === 0 ? this.leaveGap : this.gap);
    });
    const inside = { w, h: all, seats, x, row, rows };
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
    const stub = y + this.stub;
    const go = (x2, y2) => {
      if (x !== x2 && from < n && y < stub && stub < y2) { d += `V${stub}`; y = stub; }
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

  // tags says where shapes stand beside edges, and which have room.
  tags(i) {
    const f = this.boxes[i].f, inside = this.see(i);
    const all = f.exits.map(([from, port, , width], k) => {
      const s = inside.seats[from];
      return { k, x: this.end(f, inside, from, port) + this.tagGap, y: s.y + s.h + this.tagDrop, row: inside.row[from], right: s.x + s.w + this.tagOver, width, shown: false };
    });
    let row = -1, end = 0;
    for (const t of [...all].sort((a, b) => a.row - b.row || a.x - b.x || a.k - b.k)) {
      if (t.row !== row) { row = t.row; end = -Infinity; }
      const b = this.boxes[f.items[f.exits[t.k][0]]];
      t.shown = t.x >= end && t.x + t.width <= t.right && !(b.f && !b.folded && f.exits[t.k][1] >= 0);
      if (t.shown) end = t.x + t.width + this.tagGap;
    }
    return all;
  }

  // place moves everything to where it stands as groups are folded now.
  place() {
    this.cache.clear();
    this.at = null;
    const visit = (i) => {
      const f = this.boxes[i].f, seen = this.see(i), { edges, shapes } = this.inside(i);
      edges.forEach((e, k) => e.setAttribute("d", this.path(f, seen, f.links[k])));
      this.tags(i).forEach((t, k) => {
        const e = shapes[k];
        e.setAttribute("x", t.x);
        e.setAttribute("y", t.y);
        if (t.shown) e.removeAttribute("display"); else e.setAttribute("display", "none");
      });
      f.items.forEach((child, k) => {
        const b = this.boxes[child], e = this.elements[child], s = seen.seats[k];
        const open = Boolean(b.f) && !b.folded;
        e.setAttribute("transform", `translate(${s.x},${s.y})`);
        const rect = e.querySelector(":scope > rect");
        rect.setAttribute("width", s.w);
        rect.setAttribute("height", s.h);
        e.querySelector(":scope > .stripe").setAttribute("d", `M6,0Q0,0 0,6V${s.h - 6}Q0,${s.h} 6,${s.h}z`);
        const sign = e.querySelector(":scope > .sign");
        if (sign) sign.setAttribute("x", s.w - 16);
        if (!b.f) return;
        e.classList.toggle("open", open);
        e.setAttribute("aria-expanded", open);
        e.querySelector(":scope > .fold > text").textContent = open ? "▾" : "▸";
        if (open) {
          const { frame } = this.inside(child);
          frame.removeAttribute("display");
          frame.setAttribute("transform", `translate(${(s.w - this.see(child).w) / 2},${this.header})`);
          visit(child);
        } else if (this.insides.has(child) || e.querySelector(":scope > .frame")) {
          this.inside(child).frame.setAttribute("display", "none");
        }
      });
    };
    visit(0);
  }

  // member shows another member of a family: the same boxes and edges with its
  // own sizes, numbers and names.
  member(k) {
    const touched = new Set();
    for (const { v, at } of this.view.vary || []) {
      for (const [place, boxes] of Object.entries(at)) {
        for (const i of boxes) { this.put(this.boxes[i], place[0], +place.slice(1), v[k]); touched.add(i); }
      }
    }
    for (const i of touched) this.write(i);
  }

  put(b, place, n, value) {
    const d = b.d;
    b.words = undefined;
    switch (place) {
      case "n": b.n = value; break;
      case "e": b.e = value; break;
      case "y": b.y = value; break;
      case "l": b.l[n] = value; break;
      case "i": d.in[n].t = value; break;
      case "I": d.in[n].n = value; break;
      case "x": d.in[n].x = value; break;
      case "o": d.out[n].t = value; break;
      case "O": d.out[n].n = value; break;
      case "a": d.attrs = value; break;
      case "f": d.flops = value; break;
      case "w": d.weights = value; break;
      case "s": b.f.exits[n][2] = value; break;
    }
  }

  // write puts what a box says now where it is drawn already.
  write(i) {
    const b = this.boxes[i], e = i ? this.elements[i] : this.world;
    if (!e) return;
    if (b.f && e.querySelector(":scope > .frame")) this.inside(i).shapes.forEach((t, k) => { t.textContent = b.f.exits[k][2]; });
    if (!i) return;
    e.querySelector(":scope > .kind").textContent = b.l[0];
    e.querySelectorAll(":scope > .sub:not(.name)").forEach((t, k) => { t.textContent = b.l[k + 1]; });
    const name = e.querySelector(":scope > .name");
    if (name) name.textContent = b.e;
    e.setAttribute("aria-label", [b.t, b.n, b.y, ...b.l.slice(1)].filter(Boolean).join(", "));
  }

  // extent is the size of the whole drawing.
  extent() {
    const inside = this.see(0);
    return [inside.w + 2 * this.pad, inside.h + 2 * this.pad];
  }

  // position is where a box stands in the drawing, or undefined if it is hidden.
  position(i) {
    if (!this.at) {
      this.at = [];
      const visit = (k, x, y) => {
        const inside = this.see(k);
        this.boxes[k].f.items.forEach((child, n) => {
          const s = inside.seats[n], b = this.boxes[child];
          const p = this.at[child] = { x: x + s.x, y: y + s.y, w: s.w, h: s.h };
          if (b.f && !b.folded) visit(child, p.x + (s.w - this.see(child).w) / 2, p.y + this.header);
        });
      };
      visit(0, this.pad, this.pad);
    }
    return this.at[i];
  }

  // seen is the box, or the group that it is folded away in.
  seen(i) {
    while (i > 0 && !this.position(i)) i = this.boxes[i].p;
    return i;
  }
}
