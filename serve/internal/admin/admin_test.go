package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/chromium"
	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/rest"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

const hostile = `</script><img src=x onerror=fetch('/stolen')>"'&amp;{{.}}` + "\u202e\x00"

// server serves the model simple, and one whose name is an attack.
func server(t *testing.T, guard access.Func) (*core.Core, string) {
	c := core.New()
	if guard != nil {
		c.SetAuthorization(guard)
	}
	evil := testmodel.Identity(oip.FP32, 4, 3)
	evil.Described.Name = hostile
	evil.Described.Inputs[0].Name = hostile
	for _, m := range []oip.Model{testmodel.Simple(), evil} {
		_, err := c.Add(m)
		require.NoError(t, err)
	}
	c.Refuse("broken", "2", errors.New(hostile))
	c.Start()
	s := httptest.NewServer(New(c, rest.New(c, rest.Options{}), metrics.Handler(func() *metrics.Snapshot { return metrics.Of(c) }, metrics.Table)))
	t.Cleanup(s.Close)
	return c, s.URL
}

func get(t *testing.T, url, token string) (*http.Response, string) {
	r, err := http.NewRequest("GET", url, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w, string(body)
}

// infer posts a request to the model simple.
func infer(t *testing.T, url string, header ...string) int {
	zeros := strings.Repeat("0,", testmodel.Elements-1) + "0"
	body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":[%s]},{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":[%s]}]}`, zeros, zeros)
	r, err := http.NewRequest("POST", url+"/v2/models/simple/infer", strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, w.Body.Close())
	return w.StatusCode
}

// TestState: what the page shows is in the state.
func TestState(t *testing.T) {
	_, url := server(t, nil)
	require.Equal(t, 200, infer(t, url))
	w, text := get(t, url+"/state.json", "")
	require.Equal(t, "no-store", w.Header.Get("Cache-Control"))
	var s state
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	require.True(t, s.Ready)
	by := map[string]model{}
	for _, m := range s.Models {
		by[m.Name] = m
	}
	require.Len(t, by, 3)
	simple := by["simple"]
	require.Equal(t, core.Serving, simple.State)
	require.Equal(t, []tensor{{"INPUT0", "INT32", []int64{-1, 16}, []int64{testmodel.Samples, 16}}, {"INPUT1", "INT32", []int64{-1, 16}, []int64{testmodel.Samples, 16}}}, simple.Inputs)
	require.Equal(t, uint64(1), simple.Whole.Total())
	require.Equal(t, metrics.Requests{Protocol: "rest", Outcome: "ok", Count: 1}, simple.Requests[0])
	require.Equal(t, core.Unavailable, by["broken"].State)
	require.Equal(t, hostile, by["broken"].Reason)
}

// TestPages: the other things on the address, with headers that keep browsers from what they should not do.
func TestPages(t *testing.T) {
	_, url := server(t, nil)
	for path, want := range map[string]struct{ kind, text string }{
		"/":                         {"text/html; charset=utf-8", "popefgen server"},
		"/admin.css":                {"text/css; charset=utf-8", "--paper"},
		"/admin.js":                 {"text/javascript; charset=utf-8", "state.json"},
		"/metrics":                  {metrics.ContentType, "popefgen_ready 1"},
		"/debug/pprof/":             {"text/plain; charset=utf-8", "goroutine"},
		"/debug/pprof/heap?debug=1": {"text/plain; charset=utf-8", "heap profile"},
		"/v2/health/live":           {"", ""},
	} {
		w, text := get(t, url+path, "")
		require.Equal(t, 200, w.StatusCode, path)
		require.Equal(t, "nosniff", w.Header.Get("X-Content-Type-Options"))
		require.Contains(t, text, want.text, path)
		if want.kind != "" {
			require.Equal(t, want.kind, w.Header.Get("Content-Type"), path)
		}
	}
	w, _ := get(t, url+"/", "")
	require.Contains(t, w.Header.Get("Content-Security-Policy"), "default-src 'none'")
	w, _ = get(t, url+"/missing", "")
	require.Equal(t, 404, w.StatusCode)
	for path, status := range map[string]int{"/debug/pprof/missing": 404, "/debug/pprof/profile?seconds=-1": 400, "/debug/pprof/trace?seconds=1e9": 400, "/debug/pprof/profile?seconds=NaN": 400} {
		w, _ = get(t, url+path, "")
		require.Equal(t, status, w.StatusCode, path)
	}
	_, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", "/debug/pprof/", nil))
	require.Empty(t, pattern, "profiles are on no other address")
	_, text := get(t, url+"/debug/pprof/profile?seconds=0.1", "")
	require.Equal(t, "\x1f\x8b", text[:2], "a compressed profile")
	w, _ = get(t, url+"/contract?model=missing", "")
	require.Equal(t, 404, w.StatusCode)
}

// TestCrossOrigin: a page of others can not send requests through a visitor's browser.
func TestCrossOrigin(t *testing.T) {
	_, url := server(t, nil)
	require.Equal(t, 403, infer(t, url, "Origin", "https://evil.example"))
	require.Equal(t, 403, infer(t, url, "Sec-Fetch-Site", "cross-site"))
	require.Equal(t, 200, infer(t, url, "Origin", url))
	require.Equal(t, 200, infer(t, url), "no browser")
}

const (
	reader = "reader-token-0123456789"
	ruler  = "ruler-token-0123456789"
)

func guarded(t *testing.T) access.Func {
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte(reader+"\n"+ruler+" *\n"), 0o600))
	tokens, err := access.TokenFile(path, slog.Default())
	require.NoError(t, err)
	return tokens.Allow
}

// TestGuarded: without a token there is the page, which has nothing of the server, and nothing else.
func TestGuarded(t *testing.T) {
	_, url := server(t, guarded(t))
	for path, want := range map[string][3]int{ // nobody, who reads, who rules
		"/": {200, 200, 200}, "/state.json": {401, 403, 200}, "/contract?model=simple": {401, 403, 200}, "/metrics": {401, 200, 200},
		"/debug/pprof/": {401, 403, 200}, "/debug/pprof/trace?seconds=0.1": {401, 403, 200}, "/debug/pprof/heap": {401, 403, 200}, "/v2/models/simple": {401, 200, 200},
		"/debug/pprof/profile?seconds=0.1": {401, 403, 200},
	} {
		for i, token := range []string{"", reader, ruler} {
			w, text := get(t, url+path, token)
			require.Equal(t, want[i], w.StatusCode, "%s as %q", path, token)
			if w.StatusCode == 401 {
				require.Contains(t, w.Header.Get("WWW-Authenticate"), "Bearer")
				require.NotContains(t, text, "simple")
			}
		}
	}
}

// wait waits until an expression of the page is true.
func wait(t *testing.T, b *chromium.Browser, expression string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var is bool
		b.Eval(expression, &is)
		return is
	}, 20*time.Second, 100*time.Millisecond, expression)
}

// TestAdminInChromium: models of any name, numbers that change as requests come, and a request from the form.
func TestAdminInChromium(t *testing.T) {
	b := chromium.New(t)
	c, url := server(t, nil)
	b.Open(url+"/", 1200, 1000)
	wait(t, b, `document.querySelectorAll('.model').length === 3`)
	var names []string
	b.Eval(`[...document.querySelectorAll('.model h3')].map(e => e.firstChild.textContent)`, &names)
	require.ElementsMatch(t, []string{"broken", "simple", hostile}, names)
	var reason string
	b.Eval(`[...document.querySelectorAll('.model')].find(e => e.textContent.startsWith('broken')).querySelector('.reason').textContent`, &reason)
	require.Equal(t, hostile, reason)
	var foreign int
	b.Eval(`document.querySelectorAll('img, main script').length`, &foreign)
	require.Zero(t, foreign)

	for range 20 {
		require.Equal(t, 200, infer(t, url))
	}
	const simple = `[...document.querySelectorAll('.model')].find(e => e.textContent.startsWith('simple'))`
	wait(t, b, simple+`.querySelector('dd').textContent === '20'`)
	wait(t, b, simple+`.querySelectorAll('figure rect[height="36.00"]').length === 2`)
	wait(t, b, simple+`.querySelector('figure path').getAttribute('d').includes('L')`)

	b.Eval(`document.querySelector('#model').selectedIndex = [...document.querySelector('#model').options].findIndex(o => o.textContent.startsWith('simple'));
		document.querySelector('#model').dispatchEvent(new Event('change'));
		document.querySelectorAll('#inputs textarea').forEach((e, k) => { e.value = JSON.stringify([...Array(16).keys()].map(i => i + k)); });
		document.querySelector('#send').click()`, nil)
	wait(t, b, `document.querySelector('#outcome').textContent.startsWith('answered')`)
	var outputs []string
	b.Eval(`[...document.querySelectorAll('#outputs pre')].map(e => e.textContent)`, &outputs)
	require.Equal(t, "[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31]", outputs[0])
	require.Equal(t, "["+strings.Repeat("-1,", 15)+"-1]", outputs[1])
	b.Screenshot("admin")
	b.Eval(`document.querySelector('#inputs input').value = '3,16'; document.querySelector('#send').click()`, nil)
	wait(t, b, `document.querySelector('#outcome').textContent.startsWith('refused with 400')`)
	require.Len(t, b.Errors, 1, "Chromium notes the answer 400")

	c.StartDraining()
	wait(t, b, `document.querySelector('#server').textContent.includes('not ready')`)
	b.Dark(true)
	b.Screenshot("admin-dark")
}

// TestTokenInChromium: the page asks for a token where one is needed.
func TestTokenInChromium(t *testing.T) {
	b := chromium.New(t)
	_, url := server(t, guarded(t))
	b.Open(url+"/", 1200, 1000)
	wait(t, b, `!document.querySelector('#login').hidden`)
	b.Eval(`document.querySelector('#token').value = '`+ruler+`'; document.querySelector('#login button').click()`, nil)
	wait(t, b, `document.querySelectorAll('.model').length === 3 && document.querySelector('#login').hidden`)
	var stored int
	b.Eval(`localStorage.length + sessionStorage.length + document.cookie.length`, &stored)
	require.Zero(t, stored)
}
