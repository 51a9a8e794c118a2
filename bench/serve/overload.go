package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/popefgen/popefgen/bench/report"
)

// measureOverload sends a server three times its capacity, at fixed times whatever it answers, and counts what it answers and how
// long it takes to refuse the rest.
func measureOverload(o *options) (string, error) {
	const (
		peak  = float64(slowParallel) / (float64(slowTime) / 1e9) // requests a second, if nothing else took time
		lasts = 3 * time.Second
	)
	p, err := start("overload")
	if err != nil {
		return "", err
	}
	defer p.stop()
	q := binaryRequest("[1,256]", small, raw(floats(small)))
	if err := check(p.addr, q); err != nil {
		return "", err
	}
	var atPeak, good float64
	refused := time.Hour
	for range min(o.rounds, 5) {
		rate, err := goClients(p.addr, q, int(peak), 2*slowParallel)
		if err != nil {
			return "", err
		}
		atPeak = max(atPeak, rate)
		answered, times, err := offer(p.addr, q, 3*rate, lasts)
		if err != nil {
			return "", err
		}
		if len(times) == 0 {
			return "", fmt.Errorf("three times %.0f requests a second, and none was refused", rate)
		}
		good = max(good, float64(answered)/lasts.Seconds())
		slices.Sort(times)
		refused = min(refused, times[len(times)*99/100])
	}
	t := report.NewTable("three times its capacity", "measured", "goal", "")
	t.Row("answered, of the peak", fmt.Sprintf("%.2f (%.0f of %.0f a second)", good/atPeak, good, atPeak), "≥ 0.9", verdict(good >= 0.9*atPeak))
	t.Row("time to refuse, p99", fmt.Sprintf("%.1f ms", refused.Seconds()*1e3), "≤ 20 ms", verdict(refused <= 20*time.Millisecond))
	return t.String(), nil
}

// offer begins so many requests a second for a time. It returns how many were answered, and how long each that was
// not took to be refused; any other answer is an error.
func offer(addr string, q *request, rate float64, lasts time.Duration) (answered int, refused []time.Duration, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, MaxConnsPerHost: 512}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / rate * 1e9)
		if at > lasts {
			break
		}
		time.Sleep(time.Until(begin.Add(at)))
		wg.Go(func() {
			sent := time.Now()
			status, e := post(client, addr, q)
			took := time.Since(sent)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e != nil:
				err = e
			case status == http.StatusOK:
				answered++
			case status == http.StatusServiceUnavailable:
				refused = append(refused, took)
			default:
				err = fmt.Errorf("status %d", status)
			}
		})
	}
	wg.Wait()
	return answered, refused, err
}

func post(client *http.Client, addr string, q *request) (int, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+q.path, bytes.NewReader(q.body))
	if err != nil {
		return 0, err
	}
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	w, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer w.Body.Close()
	_, err = io.Copy(io.Discard, w.Body)
	return w.StatusCode, err
}
