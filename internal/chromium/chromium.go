// Package chromium looks at pages in a headless Chromium, for tests.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Browser is a headless Chromium, spoken to over a pipe in the DevTools
// protocol: a JSON message each way, ended by a zero byte.
type Browser struct {
	t       testing.TB
	out     io.Writer
	replies chan reply
	next    int
	session string
	Errors  []string // that the page's console shows
	loaded  bool
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// New starts Chromium; the test is skipped where there is none.
func New(t testing.TB) *Browser {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium on this machine: pages are not looked at")
	}
	toBrowser, ours, err := os.Pipe()
	require.NoError(t, err)
	theirs, fromBrowser, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	require.NoError(t, cmd.Start())
	toBrowser.Close()
	fromBrowser.Close()
	b := &Browser{t: t, out: ours, replies: make(chan reply, 1024)}
	go func() {
		defer close(b.replies)
		for r := bufio.NewReader(theirs); ; {
			m, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var x reply
			if json.Unmarshal(bytes.TrimRight(m, "\x00"), &x) == nil {
				b.replies <- x
			}
		}
	}()
	t.Cleanup(func() {
		fmt.Fprintf(ours, `{"id":0,"method":"Browser.close"}`+"\x00")
		ours.Close()
		stopped := make(chan struct{})
		go func() { cmd.Wait(); close(stopped) }() //nolint:errcheck // it may have been killed
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill() //nolint:errcheck // it may have ended now
			<-stopped
		}
		theirs.Close()
	})
	var target struct{ TargetID string }
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

// Call makes one call and waits for its reply.
func (b *Browser) Call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	j, err := json.Marshal(m)
	require.NoError(b.t, err)
	_, err = b.out.Write(append(j, 0))
	require.NoError(b.t, err)
	for {
		r := b.receive()
		if r.ID != b.next {
			continue
		}
		require.Nil(b.t, r.Error, method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(r.Result, result))
		}
		return
	}
}

// receive waits for a message and notes what it tells of the page.
func (b *Browser) receive() reply {
	b.t.Helper()
	select {
	case r, ok := <-b.replies:
		require.True(b.t, ok, "chromium ended")
		switch r.Method {
		case "Page.loadEventFired":
			b.loaded = true
		case "Runtime.exceptionThrown":
			b.Errors = append(b.Errors, string(r.Params))
		case "Log.entryAdded", "Runtime.consoleAPICalled":
			if bytes.Contains(r.Params, []byte(`"error"`)) || bytes.Contains(r.Params, []byte(`"warning"`)) {
				b.Errors = append(b.Errors, string(r.Params))
			}
		}
		return r
	case <-time.After(60 * time.Second):
		b.t.Fatal("chromium does not answer")
	}
	return reply{}
}

// Open shows the page of a URL in a window of a size and returns how long it took.
func (b *Browser) Open(url string, width, height int) time.Duration {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.loaded, b.Errors = false, nil
	start := time.Now()
	b.Call("Page.navigate", map[string]any{"url": url}, nil)
	for !b.loaded {
		b.receive()
	}
	b.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))", nil)
	return time.Since(start)
}

// Eval computes an expression in the page.
func (b *Browser) Eval(expression string, result any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	require.Empty(b.t, string(r.ExceptionDetails), expression)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(r.Result.Value, result), expression)
	}
}

// Dark has pages see that people want dark colours.
func (b *Browser) Dark(on bool) {
	scheme := "light"
	if on {
		scheme = "dark"
	}
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Keep stores an artefact where $POPEFGEN_SCREENSHOTS says, if it does.
func (b *Browser) Keep(name string, data string) {
	dir := os.Getenv("POPEFGEN_SCREENSHOTS")
	if dir == "" {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(dir, 0o777))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
}

// Screenshot stores the window; it returns the picture's bytes.
func (b *Browser) Screenshot(name string) string {
	var shot struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	require.NotEmpty(b.t, shot.Data)
	b.Keep(name+".png", shot.Data)
	return shot.Data
}

// Paper prints the page.
func (b *Browser) Paper(name string) {
	var pdf struct{ Data string }
	b.Call("Page.printToPDF", map[string]any{"printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69}, &pdf)
	require.True(b.t, strings.HasPrefix(pdf.Data, base64.StdEncoding.EncodeToString([]byte("%PDF-"))[:4]))
	b.Keep(name+".pdf", pdf.Data)
}
