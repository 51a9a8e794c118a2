package admin

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// Package net/http/pprof is not used: whoever imports it has profiles on http.DefaultServeMux, which programs serve to everybody.

// mostSeconds is how long a profile or trace takes at most.
const mostSeconds = 300

// profiles lists what there is for go tool pprof and go tool trace.
func profiles(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "go tool pprof ADDRESS/debug/pprof/NAME, of:\n\nprofile?seconds=30: where processors spend their time\ntrace?seconds=1: for go tool trace\n")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(w, "%s: %d (?debug=1 is text)\n", p.Name(), p.Count())
	}
}

// profile answers with a profile: of the processor and of events for some seconds, others as they are.
func profile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "profile" || name == "trace" {
		during(w, r, name)
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "there is no such profile: /debug/pprof/ lists them", http.StatusNotFound)
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	w.Header().Set("Content-Type", "application/octet-stream")
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	_ = p.WriteTo(w, debug)
}

func during(w http.ResponseWriter, r *http.Request, name string) {
	seconds := map[string]float64{"profile": 30, "trace": 1}[name]
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= mostSeconds) {
			http.Error(w, fmt.Sprintf("seconds: expected a number above 0 and at most %d", mostSeconds), http.StatusBadRequest)
			return
		}
		seconds = n
	}
	start, stop := pprof.StartCPUProfile, pprof.StopCPUProfile
	if name == "trace" {
		start, stop = trace.Start, trace.Stop
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(w); err != nil { // another one is under way
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	case <-r.Context().Done():
	}
}
