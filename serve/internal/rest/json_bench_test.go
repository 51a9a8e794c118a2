package rest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// echo is the handler that whoever needs one writes first: encoding/json both ways.
func echo(w http.ResponseWriter, r *http.Request) {
	type tensor struct {
		Name     string    `json:"name"`
		Datatype string    `json:"datatype"`
		Shape    []int64   `json:"shape"`
		Data     []float32 `json:"data"`
	}
	var request struct {
		Inputs []tensor `json:"inputs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answer struct {
		Model   string   `json:"model_name"`
		Version string   `json:"model_version"`
		Outputs []tensor `json:"outputs"`
	}
	answer.Model, answer.Version = "identity_FP32", "1"
	answer.Outputs = []tensor{{"OUTPUT0", "FP32", request.Inputs[0].Shape, request.Inputs[0].Data}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// BenchmarkJSON compares 256 numbers in JSON, there and back, with encoding/json. The two take turns, so that what else the machine does
// meets both.
func BenchmarkJSON(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var data []string
	for range 256 {
		data = append(data, strconv.FormatFloat(float64(rng.Float32()), 'f', -1, 32))
	}
	text := `{"inputs":[{"name":"INPUT0","shape":[1,256],"datatype":"FP32","data":[` + strings.Join(data, ",") + `]}]}`
	request := []byte(fmt.Sprintf("POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	handlers := []http.Handler{served(b, Options{}, testmodel.Identity(oip.FP32, 1, 256)), http.HandlerFunc(echo)}
	var conns [2]net.Conn
	var sizes [2]int
	var took [2]time.Duration
	buf := make([]byte, 64<<10)
	for i, h := range handlers {
		addr, _ := listening(b, h)
		c, err := net.Dial("tcp", addr)
		require.NoError(b, err)
		defer c.Close()
		_, err = c.Write(request)
		require.NoError(b, err)
		time.Sleep(200 * time.Millisecond)
		sizes[i], err = c.Read(buf)
		require.NoError(b, err)
		conns[i] = c
	}
	for b.Loop() {
		for i := range conns {
			begun := time.Now()
			if err := exchangeRaw(conns[i], request, buf, sizes[i]); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[1]), "of-encoding/json")
	b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "µs/request")
}
