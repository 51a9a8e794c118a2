package page

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/chromium"
)

// key presses a key where the focus is.
func key(b *chromium.Browser, key, text string) {
	code := map[string]int{"Enter": 13, "Escape": 27}[key]
	down := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
	if text != "" {
		down["text"] = text
	}
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}, nil)
}

func mouse(b *chromium.Browser, kind string, x, y float64, more map[string]any) {
	m := map[string]any{"type": kind, "x": x, "y": y, "button": "none"}
	for k, v := range more {
		m[k] = v
	}
	b.Call("Input.dispatchMouseEvent", m, nil)
}

// poseOf is where a graph is looked at.
type pose struct {
	X, Y, K      float64
	Scroll       float64
	Left, Top    float64 // of the window on the graph
	Width, Hight float64
}

func poseOf(b *chromium.Browser) (p pose) {
	b.Eval(`(() => { const v = popefgenViewers.get('view0a'), r = v.port.getBoundingClientRect();
		return {x: v.x, y: v.y, k: v.k, scroll: scrollY, left: r.left, top: r.top, width: r.width, hight: r.height}; })()`, &p)
	return p
}

func TestInteractionInChromium(t *testing.T) {
	b := chromium.New(t)
	e := pytorch(12, true)
	path := file(t, Options{Model: Model{Name: "bert.popef", Model: modelOf(t, e)}})
	b.Open("file://"+path, 1300, 800)
	text := func(selector string) (s string) {
		b.Eval(fmt.Sprintf(`document.querySelector(%q).textContent`, selector), &s)
		return s
	}
	is := func(expression, why string) {
		t.Helper()
		var ok bool
		b.Eval(expression, &ok)
		require.True(t, ok, why)
	}

	// It opens at its input, at a size that can be read.
	start := poseOf(b)
	require.GreaterOrEqual(t, start.K, 0.8)
	is(`(() => { const v = popefgenViewers.get('view0a'), i = v.boxes.findIndex(b => b.t === 'input'), r = v.elements[i].getBoundingClientRect(), p = v.port.getBoundingClientRect();
		return r.top >= p.top && r.bottom <= p.bottom && r.left >= p.left && r.right <= p.right; })()`, "the input is in view")
	is(`[...document.querySelectorAll('.shape')].some(e => e.textContent === '8×16' && e.getBoundingClientRect().height > 0)`, "shapes stand on edges")

	// A slash searches at once, before anything was clicked; typing filters;
	// Enter goes on.
	key(b, "/", "/")
	for _, c := range "query" {
		key(b, string(c), string(c))
	}
	is(`document.activeElement.classList.contains('search') && document.activeElement.value === 'query'`, "keys reach the search")
	require.Equal(t, "12 boxes", text("#view0a .found"))
	is(`document.querySelectorAll('.hits button').length === 12 && document.querySelectorAll('.box.hit').length > 0 && document.querySelectorAll('.box.holds').length > 0`, "hits are listed and marked")
	key(b, "Enter", "\r")
	require.Equal(t, "1 of 12", text("#view0a .found"))
	key(b, "Enter", "\r")
	require.Equal(t, "2 of 12", text("#view0a .found"))
	require.Contains(t, text("#view0a .details"), "layer.1/attention/query")
	is(`(() => { const r = document.querySelector('.chosen').getBoundingClientRect(), p = popefgenViewers.get('view0a').port.getBoundingClientRect(), d = document.querySelector('.details').getBoundingClientRect();
		return r.top > p.top && r.bottom < p.bottom && r.right < d.left && r.left > p.left; })()`, "the hit is in view, beside the panel")
	b.Screenshot("search")
	key(b, "Escape", "")
	is(`document.querySelectorAll('.box.hit').length === 0`, "Escape ends the search")

	// Weights are found by their names, though they are no boxes.
	b.Eval(`popefgenViewers.get('view0a').search('layer.3.output.dense.weight')`, nil)
	is(`popefgenViewers.get('view0a').matches.length === 1`, "the weight's operator is found")
	b.Eval(`popefgenViewers.get('view0a').search('')`, nil)

	// The wheel zooms around the pointer inside of the graph, and scrolls outside.
	before := poseOf(b)
	x, y := before.Left+400, before.Top+200
	mouse(b, "mouseWheel", x, y, map[string]any{"deltaX": 0, "deltaY": -120})
	after := poseOf(b)
	require.Greater(t, after.K, before.K)
	require.Equal(t, before.Scroll, after.Scroll, "the page does not scroll away")
	require.InDelta(t, (400-before.X)/before.K, (400-after.X)/after.K, 0.5, "what is under the pointer stays there")
	require.InDelta(t, (200-before.Y)/before.K, (200-after.Y)/after.K, 0.5)
	mouse(b, "mouseWheel", 20, 20, map[string]any{"deltaX": 0, "deltaY": 300})
	b.Eval(`new Promise(r => setTimeout(r, 300))`, nil)
	require.Greater(t, poseOf(b).Scroll, before.Scroll)
	require.Equal(t, after.K, poseOf(b).K)
	b.Eval(`scrollTo(0, 0)`, nil)

	// Dragging pans; the map takes the view along.
	before = poseOf(b)
	mouse(b, "mousePressed", x, y, map[string]any{"button": "left", "clickCount": 1, "buttons": 1})
	mouse(b, "mouseMoved", x+50, y-70, map[string]any{"button": "left", "buttons": 1})
	mouse(b, "mouseReleased", x+50, y-70, map[string]any{"button": "left", "clickCount": 1})
	after = poseOf(b)
	require.InDelta(t, before.X+50, after.X, 0.5)
	require.InDelta(t, before.Y-70, after.Y, 0.5)
	var m struct{ X, Y float64 }
	b.Eval(`(() => { const r = document.querySelector('#view0a .map').getBoundingClientRect(); return {x: r.left + r.width / 2, y: r.bottom - 6}; })()`, &m)
	mouse(b, "mousePressed", m.X, m.Y, map[string]any{"button": "left", "clickCount": 1, "buttons": 1})
	mouse(b, "mouseReleased", m.X, m.Y, map[string]any{"button": "left", "clickCount": 1})
	require.Less(t, poseOf(b).Y, after.Y-100, "the map leads to the end of the graph")
	key(b, "Home", "")
	require.Empty(t, b.Errors)
}

func TestPhoneInChromium(t *testing.T) {
	b := chromium.New(t)
	path := file(t, Options{Model: Model{Name: "bert.popef", Model: modelOf(t, pytorch(12, false))}})
	b.Call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true, "maxTouchPoints": 2}, nil)
	b.Open("file://"+path, 390, 844)
	is := func(expression, why string) {
		t.Helper()
		var ok bool
		b.Eval(expression, &ok)
		require.True(t, ok, why)
	}
	is(`document.documentElement.scrollWidth <= 390`, "nothing is wider than the screen")
	is(`[...document.querySelectorAll('table')].every(t => t.closest('.scroll') && t.closest('.scroll').getBoundingClientRect().right <= 390)`, "tables scroll inside themselves")
	b.Screenshot("phone")

	// A tap opens a sheet within the screen; the box stays in view above it.
	touch := func(kind string, points ...[2]float64) {
		list := []map[string]any{}
		for i, p := range points {
			list = append(list, map[string]any{"x": p[0], "y": p[1], "id": i})
		}
		b.Call("Input.dispatchTouchEvent", map[string]any{"type": kind, "touchPoints": list}, nil)
	}
	b.Eval(`(() => { const v = popefgenViewers.get('view0a'); v.choose(v.boxes.findIndex(b => b.t === 'Softmax'), true); })()`, nil)
	is(`(() => { const r = document.querySelector('.details').getBoundingClientRect(); return r.top >= 300 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth; })()`, "the sheet is within the screen")
	is(`(() => { const r = document.querySelector('.chosen').getBoundingClientRect(), d = document.querySelector('.details').getBoundingClientRect(); return r.top >= 0 && r.bottom <= d.top; })()`, "the box is in view above the sheet")
	b.Screenshot("phone-sheet")
	b.Eval(`document.querySelector('.details .close').click()`, nil)
	is(`document.querySelector('.details').hidden`, "the sheet closes")

	// One finger pans, two zoom around what is between them.
	before := poseOf(b)
	x, y := before.Left+150, max(before.Top, 0)+200
	touch("touchStart", [2]float64{x, y})
	touch("touchMove", [2]float64{x + 30, y + 10})
	touch("touchMove", [2]float64{x + 40, y - 20})
	touch("touchEnd")
	after := poseOf(b)
	require.InDelta(t, before.X+40, after.X, 1)
	require.InDelta(t, before.Y-20, after.Y, 1)
	require.Equal(t, before.Scroll, after.Scroll)
	touch("touchStart", [2]float64{x - 40, y}, [2]float64{x + 40, y})
	touch("touchMove", [2]float64{x - 60, y}, [2]float64{x + 60, y})
	touch("touchMove", [2]float64{x - 80, y}, [2]float64{x + 80, y})
	touch("touchEnd")
	require.InDelta(t, 2*after.K, poseOf(b).K, 0.1)
	require.Empty(t, b.Errors)
}
