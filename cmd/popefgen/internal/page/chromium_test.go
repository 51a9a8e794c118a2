package page

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/internal/chromium"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef/contract"
)

// file writes a page and returns its path.
func file(t *testing.T, o Options) string {
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, Write(f, o))
	require.NoError(t, f.Close())
	return path
}

// profileOf is a profile with made-up times for every step of a model's plan.
func profileOf(t *testing.T, m Model) *Bench {
	blob, err := m.Model.Executable()
	require.NoError(t, err)
	e, err := encoding.Decode(blob)
	require.NoError(t, err)
	plan, err := cpu.PlanOf(e, 1)
	require.NoError(t, err)
	p := &bench.Profile{Requests: 10, Request: time.Millisecond, Profiled: time.Millisecond, Machine: bench.Machine{Threads: 1, Instructions: "avx2", GFLOPs: 100, GBytes: 10}}
	for i := range plan.Programs {
		for k, s := range plan.Programs[i].Steps {
			p.Nodes = append(p.Nodes, bench.Share{Op: operatorOf(&s), Name: s.Name, Program: plan.Programs[i].Index, Step: k, Steps: 1, Calls: 1, Time: time.Duration(1000 * (k + 1)), Share: float64(k+1) / 100})
		}
	}
	p.Operators = []bench.Share{{Op: "Conv", Steps: 2, Time: 5000, Share: 0.7, GFLOPs: 50, Peak: 0.5, GBytes: 3}, {Op: "Unary", Function: "relu", Steps: 3, Time: 2000, Share: 0.3, GBytes: 9}}
	return &Bench{Model: m.Name, Profile: p}
}

// verdictOf judges two models as the commands do.
func verdictOf(old, new Model) *Verdict {
	f := contract.Judge(contract.Of(old.Model).Published(), contract.Of(new.Model).Published())
	return &Verdict{Verdict: contract.Worst(f), Findings: f, Count: fmt.Sprintf("%d findings", len(f)), Advice: "callers have to look"}
}

// The script's own placing of a page must be what the page was drawn with:
// every box and edge stays where it is, to a hundredth of a pixel.
const sameAsDrawn = `(() => {
  const v = popefgenViewers.get(%q), off = [];
  const read = () => [...v.svg.querySelectorAll('.box, .frame, .edge')].filter(e => !e.closest('[display=none]'))
    .map(e => (e.getAttribute('transform') || '') + (e.getAttribute('d') || ''));
  const numbers = s => (s.match(/-?[0-9.]+(e-?[0-9]+)?/g) || []).map(Number);
  const before = read(); v.place(); const after = read();
  before.forEach((s, i) => { const a = numbers(s), b = numbers(after[i]);
    if (a.length !== b.length || a.some((x, k) => Math.abs(x - b[k]) > 0.01)) off.push(s + ' / ' + after[i]); });
  return {boxes: before.length, off: off.slice(0, 3)};
})()`

// Text with a contrast of less than 4.5 (WCAG 2.2, level AA) to what is behind
// it: the fill of its box, or the nearest background.
const lowContrast = `(() => {
  const rgb = (c) => { const x = document.createElement('canvas').getContext('2d'); x.fillStyle = c; x.fillRect(0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ratio = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] === 255) return c; } return 'white'; };
  const low = new Set();
  const check = (e, ink, paper) => { const r = ratio(ink, paper); if (r < 4.5) low.add((e.className.baseVal ?? e.className) + ' ' + e.tagName + ' ' + r.toFixed(2)); };
  for (const e of document.querySelectorAll('.box > text')) check(e, getComputedStyle(e).fill, getComputedStyle(e.parentElement.querySelector('rect')).fill);
  for (const e of document.querySelectorAll('.chart .tick, .shape')) check(e, getComputedStyle(e).fill, behind(e));
  for (const e of document.querySelectorAll('p, td, th, h1, h2, h3, h4, a, button, dt, dd, li, .soft, .passes, figcaption, .moved')) check(e, getComputedStyle(e).color, behind(e));
  return [...low];
})()`

const visibleNow = `[...popefgenViewers.get(%q).svg.querySelectorAll('.box')].filter(e => !e.closest('[display=none]')).length`

func TestPageInChromium(t *testing.T) {
	b := chromium.New(t)
	m := digitsModel(t)
	path := file(t, Options{Model: m, Bench: profileOf(t, m)})
	b.Open("file://"+path, 1400, 900)
	b.Screenshot("digits-light")

	var placed struct {
		Boxes int
		Off   []string
	}
	b.Eval(fmt.Sprintf(sameAsDrawn, "view0a"), &placed)
	require.Empty(t, placed.Off)
	require.Greater(t, placed.Boxes, 10)

	// Search finds a node, Enter goes there, the panel tells of it.
	b.Eval(`(() => { const s = document.querySelector('#view0a .search'); s.value = 'maxpool'; s.dispatchEvent(new Event('input')); })()`, nil)
	var found string
	b.Eval(`document.querySelector('#view0a .found').textContent`, &found)
	require.Equal(t, "1 box", found)
	b.Eval(`document.querySelector('#view0a .search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))`, nil)
	var told string
	b.Eval(`document.querySelector('#view0a .details').textContent`, &told)
	require.Contains(t, told, "MaxPool")
	require.Contains(t, told, "kernel2x2stride2time")
	require.Contains(t, told, "outputs")

	// Colours by time, a link from a table.
	b.Eval(`document.querySelector('#time [data-go]').click()`, nil)
	var chosen int
	b.Eval(`document.querySelectorAll('.chosen').length`, &chosen)
	require.Equal(t, 1, chosen)
	b.Eval(`document.querySelector('#view0a [data-do=heat]').click()`, nil)
	b.Screenshot("digits-heat")

	// Keys: an arrow chooses the box below.
	var before, after int
	b.Eval(`popefgenViewers.get('view0a').choose(1, true) || 1`, &before)
	b.Eval(`(() => { document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true})); return popefgenViewers.get('view0a').chosen; })()`, &after)
	require.NotEqual(t, before, after)

	contrasts := func() {
		t.Helper()
		var low []string
		b.Eval(lowContrast, &low)
		require.Empty(t, low)
	}
	contrasts()

	// Dark and on paper.
	var light, dark string
	b.Eval(`getComputedStyle(document.body).backgroundColor`, &light)
	b.Dark(true)
	b.Open("file://"+path, 1400, 900)
	b.Eval(`getComputedStyle(document.body).backgroundColor`, &dark)
	require.NotEqual(t, light, dark)
	b.Screenshot("digits-dark")
	contrasts()
	b.Dark(false)
	for _, section := range []string{"flow", "memory", "time", "weights"} {
		b.Eval(fmt.Sprintf(`document.getElementById(%q).scrollIntoView()`, section), nil)
		b.Screenshot("digits-light-" + section)
	}
	b.Paper("digits")
	require.Empty(t, b.Errors)
}

func TestPassesInChromium(t *testing.T) {
	b := chromium.New(t)
	after := residual(2, 10, slashed)
	after.Passes = []graph.PassReport{{Name: "join", Before: 19, After: 13, Rewrites: []graph.Rewrite{{What: "joined", Count: 6}}}, {Name: "idle", Before: 13, After: 13}}
	path := file(t, Options{Model: Model{Name: "m.popef", Model: modelOf(t, after), Before: residual(3, 10, slashed)}})
	b.Open("file://"+path, 1200, 800)
	var text string
	b.Eval(`document.querySelector('details.passes').open ? 'open' : document.querySelector('.passes p').textContent`, &text)
	require.Equal(t, "join 19 → 13 · nothing by idle", text, "what the passes did is there, folded away")
	b.Eval(`document.querySelector('[data-view=view0b]').click()`, nil)
	var ok bool
	b.Eval(`document.getElementById('view0a').hidden && !document.getElementById('view0b').hidden`, &ok)
	require.True(t, ok)
	var boxes [2]int
	b.Eval(fmt.Sprintf("["+visibleNow+", "+visibleNow+"]", "view0a", "view0b"), &boxes)
	require.Less(t, boxes[0], boxes[1])
	b.Screenshot("passes")
	require.Empty(t, b.Errors)
}

func TestLargeGraphInChromium(t *testing.T) {
	b := chromium.New(t)
	for name, naming := range map[string]func(int, string) string{"named": slashed, "flat": flat} {
		e := residual(120, 10, naming)
		require.Greater(t, len(e.Graphs[0].Nodes), 700)
		start := time.Now()
		path := file(t, Options{Model: Model{Name: name + ".popef", Model: modelOf(t, e)}})
		wrote := time.Since(start)
		took := b.Open("file://"+path, 1400, 900)
		var seen, most, least int
		b.Eval(fmt.Sprintf(visibleNow, "view0a"), &seen)
		require.LessOrEqual(t, seen, visibleBoxes+1)
		b.Screenshot("large-" + name)
		var ms float64
		b.Eval(`(() => { const t = performance.now(); popefgenViewers.get('view0a').foldAll(false); return performance.now() - t; })()`, &ms)
		b.Eval(fmt.Sprintf(visibleNow, "view0a"), &most)
		require.Greater(t, most, 720)
		b.Screenshot("large-" + name + "-open")
		b.Eval(`document.querySelector('#view0a [data-do=fold]').click()`, nil)
		b.Eval(fmt.Sprintf(visibleNow, "view0a"), &least)
		require.Less(t, least, most/10)
		// A node inside of what is folded is found, and unfolded.
		b.Eval(`(() => { const s = document.querySelector('#view0a .search'); s.value = 'softmax 77'; s.dispatchEvent(new Event('input')); s.value = 'softmax'; s.dispatchEvent(new Event('input'));
			s.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'})); })()`, nil)
		var chosen int
		b.Eval(`[...document.querySelectorAll('.chosen')].filter(e => !e.closest('[display=none]')).length`, &chosen)
		require.Equal(t, 1, chosen)
		b.Screenshot("large-" + name + "-found")
		require.Empty(t, b.Errors)
		t.Logf("%s: %d operators: written in %v, shown in %v, unfolded in %.0f ms", name, len(e.Graphs[0].Nodes), wrote, took, ms)
	}
}

func TestComparisonInChromium(t *testing.T) {
	b := chromium.New(t)
	changed := residual(6, 11, slashed)
	changed.Graphs[0].Nodes[3].Op = &graph.Unary{Fn: graph.Tanh}
	old := Model{Name: "old.popef", Model: modelOf(t, residual(5, 10, slashed))}
	new := Model{Name: "new.popef", Model: modelOf(t, changed)}
	path := file(t, Options{Model: new, Old: &old, Verdict: verdictOf(old, new)})
	for _, dark := range []bool{false, true} {
		b.Dark(dark)
		b.Open("file://"+path, 1500, 1000)
		b.Eval(`scrollTo(0, 0)`, nil)
		b.Screenshot(fmt.Sprintf("comparison-dark-%v", dark))
		b.Eval(`document.getElementById('graph').scrollIntoView()`, nil)
		b.Screenshot(fmt.Sprintf("comparison-graph-dark-%v", dark))
	}
	var text string
	b.Eval(`document.getElementById('differences').textContent`, &text)
	require.Contains(t, text, "breaking")
	require.Contains(t, text, "[1 11]")
	// Choosing a box shows its counterpart in the other graph.
	var peers int
	b.Eval(`(() => { const v = popefgenViewers.get('view1a'); v.choose(v.boxes.findIndex(b => b.n === 'head'), true); return document.querySelectorAll('#view0a .peer').length; })()`, &peers)
	require.Equal(t, 1, peers)
	b.Dark(false)
	b.Paper("comparison")
	require.Empty(t, b.Errors)
}

// Names in a model must not become markup, script or style.
func TestHostileNamesInChromium(t *testing.T) {
	b := chromium.New(t)
	path := file(t, hostileOptions(t))
	b.Open("file://"+path, 1200, 800)
	var owned, dialogs int
	b.Eval(`window.owned === undefined ? 0 : 1`, &owned)
	require.Zero(t, owned)
	b.Eval(`document.querySelectorAll('img, iframe, script[src], object, b, svg[onload]').length`, &dialogs)
	require.Zero(t, dialogs)
	b.Eval(`(() => { const v = popefgenViewers.get('view0a'); v.foldAll(false); v.boxes.forEach((_, i) => { if (i) v.tell(i); }); v.search('script'); v.next(1); v.choose(1, true); return window.owned === undefined ? 0 : 1; })()`, &owned)
	require.Zero(t, owned)
	b.Eval(`document.querySelectorAll('img, iframe, script[src], object, b').length`, &dialogs)
	require.Zero(t, dialogs)
	b.Screenshot("hostile")
	require.Empty(t, b.Errors)
}

var hostileNames = []string{
	`</script><script>window.owned=1</script>`, `"><img src=x onerror=window.owned=1>`, `'-(window.owned=1)-'`, `<!--<script>`, `]]><b>x</b>`, "\x00\x01\u202e<b>\xff\xfe", `</style><script>window.owned=1</script>`,
	`{{.Data}}${window.owned=1}`, `</title></svg><iframe src="javascript:window.owned=1">`, strings.Repeat("很", 500) + "/" + strings.Repeat("x/", 300),
}

func hostileOptions(t *testing.T) Options {
	hostile := func(e *graph.Executable) *graph.Executable {
		for i := range e.Graphs[0].Nodes {
			e.Graphs[0].Nodes[i].Name = hostileNames[i%len(hostileNames)]
		}
		for i := range e.Tensors {
			e.Tensors[i].Name = hostileNames[i%len(hostileNames)]
		}
		e.Name, e.Graphs[0].Name, e.Programs[0].Name = hostileNames[0], hostileNames[1], hostileNames[2]
		e.Streams[0].Handle, e.Streams[1].Handle = hostileNames[0], hostileNames[1]
		return e
	}
	old := Model{Name: hostileNames[1], Model: modelOf(t, hostile(residual(4, 9, flat)))}
	m := Model{Name: hostileNames[0], Model: modelOf(t, hostile(residual(5, 10, flat)))}
	v := verdictOf(old, m)
	for _, n := range hostileNames {
		v.Findings = append(v.Findings, contract.Finding{Kind: contract.Kind(n), What: n, Old: n, New: n, Why: n, Do: n})
	}
	b := profileOf(t, m)
	j, err := json.Marshal(b)
	require.NoError(t, err)
	b, err = ReadBench(strings.NewReader(string(j)))
	require.NoError(t, err)
	return Options{Model: m, Old: &old, Verdict: v, Bench: b}
}
