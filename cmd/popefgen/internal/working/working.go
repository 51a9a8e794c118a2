// Package working shows on a terminal that a command is at work.
package working

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/popefgen/popefgen/internal/printable"
)

// Show shows that work goes on, on a terminal and once it takes a while: say changes what
// it shows, from any goroutine, and done ends it.
func Show(w io.Writer, what string) (say func(string), done func()) {
	if p, ok := w.(*printable.Writer); ok {
		w = p.Raw() // the bar moves the cursor
	}
	what = printable.Line(what)
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(string) {}, func() {}
	}
	var shown atomic.Value
	shown.Store(what)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
		bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(os.Getenv("NO_COLOR") == ""))
		for {
			select {
			case <-stop:
				bar.Finish()
				return
			case <-time.After(100 * time.Millisecond):
				bar.Describe(shown.Load().(string))
				bar.Add(1)
			}
		}
	}()
	return func(what string) { shown.Store(printable.Line(what)) }, func() { close(stop); <-stopped }
}
