package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

var updateDocs = flag.Bool("update-docs", false, "write the commands' real output into the documents")

// TestContractDoc runs the commands of docs/contract.md, on the files of the
// script test of diff, and wants the output that stands there.
func TestContractDoc(t *testing.T) {
	doc, err := filepath.Abs("../../docs/contract.md")
	require.NoError(t, err)
	model, err := filepath.Abs("../../generated_examples/digits/digits.onnx")
	require.NoError(t, err)
	script, err := txtar.ParseFile("testdata/script/diff.txtar")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for _, f := range script.Files {
		if !strings.Contains(f.Name, "/") {
			require.NoError(t, os.WriteFile(f.Name, f.Data, 0o666))
		}
	}
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		code := Run(context.Background(), args, strings.NewReader(""), &out, &errOut)
		require.NotEqual(t, exitTrouble, code, "%s", errOut.String())
		return out.String()
	}
	run("compile", model, "-o", "one.popef", "--batch", "1", "--quiet")
	run("compile", model, "-o", "eight.popef", "--batch", "8", "--quiet")
	run("compile", model, "-o", "constants.popef", "--batch", "1", "--constants", "--quiet")
	run("generate", "-m", "one.popef", "-o", "digits")

	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	blocks := 0
	got := regexp.MustCompile("(?ms)^```console\n\\$ popefgen (.*?)\n.*?^```$").ReplaceAllStringFunc(string(text), func(block string) string {
		blocks++
		line, _, _ := strings.Cut(strings.TrimPrefix(block, "```console\n$ popefgen "), "\n")
		return "```console\n$ popefgen " + line + "\n" + run(strings.Fields(line)...) + "```"
	})
	require.GreaterOrEqual(t, blocks, 4)
	if *updateDocs {
		require.NoError(t, os.WriteFile(doc, []byte(got), 0o666))
		return
	}
	require.Empty(t, cmp.Diff(string(text), got), "go test ./cmd/popefgen -run ContractDoc -update-docs")
}
