// Command onnxruntime is a process that runs one model with ONNX Runtime.
package main

import (
	"github.com/popefgen/popefgen/bench/oneshot"
	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
)

func main() {
	oneshot.Main(func(j *oneshot.Job) (peer.Session, error) {
		if err := onnxruntime.Load(j.Library); err != nil {
			return nil, err
		}
		return onnxruntime.Engine{}.OpenFile(j.Model, &j.Case, j.Threads)
	})
}
