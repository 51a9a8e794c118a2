package page

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

// browser is a headless Chromium, spoken to over a pipe in the DevTools
// protocol: a JSON message each way, ended by a zero byte.
type browser struct {
	t       *testing.T
	out     io.Writer
	replies chan reply
	next    int
	session string
	errors  []string // that the page's console shows
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

// newBrowser starts Chromium; the test is skipped where there is none.
func newBrowser(t *testing.T) *browser {
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
	b := &browser{t: t, out: ours, replies: make(chan reply, 1024)}
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
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call makes one call and waits for its reply.
func (b *browser) call(method string, params map[string]any, result any) {
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
func (b *browser) receive() reply {
	b.t.Helper()
	select {
	case r, ok := <-b.replies:
		require.True(b.t, ok, "chromium ended")
		switch r.Method {
		case "Page.loadEventFired":
			b.loaded = true
		case "Runtime.exceptionThrown":
			b.errors = append(b.errors, string(r.Params))
		case "Log.entryAdded", "Runtime.consoleAPICalled":
			if bytes.Contains(r.Params, []byte(`"error"`)) || bytes.Contains(r.Params, []byte(`"warning"`)) {
				b.errors = append(b.errors, string(r.Params))
			}
		}
		return r
	case <-time.After(60 * time.Second):
		b.t.Fatal("chromium does not answer")
	}
	return reply{}
}

// open shows a page in a window of a size and returns how long it took.
func (b *browser) open(path string, width, height int) time.Duration {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.loaded, b.errors = false, nil
	start := time.Now()
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	for !b.loaded {
		b.receive()
	}
	b.eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))", nil)
	return time.Since(start)
}

// eval computes an expression in the page.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	require.Empty(b.t, string(r.ExceptionDetails), expression)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(r.Result.Value, result), expression)
	}
}

func (b *browser) dark(on bool) {
	scheme := "light"
	if on {
		scheme = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// keep stores an artefact where $POPEFGEN_SCREENSHOTS says, if it does.
func (b *browser) keep(name string, data string) {
	dir := os.Getenv("POPEFGEN_SCREENSHOTS")
	if dir == "" {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(dir, 0o777))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
}

// screenshot stores the window; it returns the picture's bytes.
func (b *browser) screenshot(name string) string {
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	require.NotEmpty(b.t, shot.Data)
	b.keep(name+".png", shot.Data)
	return shot.Data
}

// paper prints the page.
func (b *browser) paper(name string) {
	var pdf struct{ Data string }
	b.call("Page.printToPDF", map[string]any{"printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69}, &pdf)
	require.True(b.t, strings.HasPrefix(pdf.Data, base64.StdEncoding.EncodeToString([]byte("%PDF-"))[:4]))
	b.keep(name+".pdf", pdf.Data)
}
