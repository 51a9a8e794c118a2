package peak

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }
