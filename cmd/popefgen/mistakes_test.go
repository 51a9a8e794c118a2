package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/errortext"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/popef"
)

// mistakes are command lines that people type, wrong in one way each.
var mistakes = []string{
	// No command, no model, no such thing.
	"genrate -m digits.popef",
	"inspect",
	"inspect nowhere.popef",
	"inspect digits.popef --jsn",
	"inspect text.popef",
	"inspect cut.popef",
	"run empty.popef --random 1",
	"inspect folder",
	"inspect flipped.popef",
	"inspect scan.npy",
	"inspect pointer.popef",
	// Another kind of file than is wanted.
	"compile scan.npy",
	"compile tensor.onnx",
	"compile folder",
	"compile case",
	"generate -m scan.npy -o a",
	"generate -m stale -o a",
	"generate -m misspelt.yaml -o a",
	"generate -m cut.onnx -o a --batch 1",
	"run scan.npy",
	"run mobile.tflite --random 1",
	"run stale --random 1",
	"run stale/contract.txt --random 1",
	"run digits.onnx",
	"bench scan.npy",
	"bench text.popef",
	"diff scan.npy digits.popef",
	"diff text.popef digits.popef",
	"golden record scan.npy -o g --random 1",
	"golden verify digits.popef scan.npy",
	"verify digits.onnx",
	"verify digits.popef",
	// Compiling.
	"compile",
	"compile nowhere.onnx",
	"compile digits.popef",
	"compile digits.onnx",
	"compile digits.onnx --batch 0x",
	"compile words.onnx --batch 2",
	"compile free.onnx --batch 1 --dim x[1]=4 --dim x[2]=2",
	"compile free.onnx --dim batch=1,height=2",
	"compile free.onnx --batch 0 --dim height=2",
	"compile sizes.onnx --dim n=3",
	"compile free.onnx --batch 1 --dim height=2 --bind x=1",
	"compile digits.onnx --batch -1",
	"compile digits.onnx --batch 1 -o digits.onnx",
	"compile digits.onnx --batch 1 -o text.popef/digits.popef",
	"compile free.onnx",
	"compile free.onnx --dim batch=1 --dim heigth=2",
	"compile free.onnx --dim batch",
	"compile free.onnx --batch 1 --dim height=two",
	"compile free.onnx --batch 1 --dim height=2 --bind y=x.npy",
	"compile external.onnx",
	"compile unsupported.onnx",
	"compile nonzero.onnx --max where=3",
	"compile nonzero.onnx --max y=many",
	"compile nonzero.onnx --max y=3 --max y=4",
	"compile shapes.onnx",
	"compile cycle.onnx",
	"compile cut.onnx",
	// Generating.
	"generate",
	"generate -m digits.popef -o a extra",
	"generate -m digits.onnx -o a",
	"generate -m nowhere.popef -o a",
	"generate -m digits.popef -m poplar.popef -o a",
	"generate -m digits.popef -o a -p func",
	"generate -m digits.popef -o a --rename imgae=Scan",
	"generate -m digits.popef -o a --rename image=scan",
	"generate -m digits.popef -o a --rename image=Scan --rename probabilities=Scan",
	"generate -m digits.popef -o a --batch-dim 7",
	"generate -m digits.popef -o a --queue 0",
	"generate -m digits.popef -o mine",
	"generate -m digits.popef -o text.popef",
	"generate --config misspelt.yaml",
	"check -m digits.popef -o stale",
	// Running.
	"run digits.popef",
	"run digits.popef --input imgae=scan.npy",
	"run digits.popef --input image=double.npy",
	"run digits.popef --input image=wide.npy",
	"run digits.popef --input image=scan.txt",
	"run digits.popef --input image=nowhere.npy",
	"run digits.popef --input image=text.npy",
	"run digits.popef --input image",
	"run digits.popef --random one",
	"run digits.popef --random 1 --threads -2",
	"run digits.popef --random 1 --backend ipu",
	"run digits.popef --random 1 --batch 2",
	"run poplar.popef --random 1",
	// Comparing.
	"diff digits.popef",
	"diff digits.popef nowhere.popef",
	"diff folder digits.popef",
	"diff git:nowhere digits.popef",
	"diff digits.popef digits.popef --fail-on breakage",
	"diff digits.popef digits.popef --json --markdown",
	"diff edited/contract.txt digits.popef",
	"verify",
	"verify nowhere",
	"verify folder",
	"golden verify digits.popef folder",
	"golden record digits.popef -o g --random 1 --tolerance probabilitys=exact",
	"reduce",
	"reduce digits.popef",
	"reduce digits.onnx",
	"reduce digits.onnx --batch 1 -o small",
	"reduce digits.onnx --batch 1 -o digits.onnx",
	"reduce digits.onnx --batch 1 -o folder.onnx",
	"reduce digits.onnx --batch 1 --input imgae=scan.npy",
	"reduce digits.onnx --batch 1 --expect probabilitys=x.npy",
	"reduce digits.onnx --batch 1 --against nowhere --check false",
	"bench digits.popef --mode fast",
	"bench digits.popef --duration soon",
	"completion csh",
	// Training.
	"compile digits.onnx --train --batch 2 --los mse",
	"compile digits.onnx --train --batch 2 --loss mes",
	"compile digits.onnx --train --batch 2 --loss cross-entropy=probs",
	"compile digits.onnx --train --batch 2 --loss output",
	"compile digits.onnx --train --batch 2 --optimizer zip",
	"compile digits.onnx --train --batch 2 --iterations 4 --return loss=every:3",
	"compile digits.onnx --train --batch 2 --return los=final",
	"compile digits.onnx --train --batch 2 --freeze nothing*",
	"compile digits.onnx --train --batch 2 --freeze *",
	"compile digits.onnx --train --batch 2 --clip nothing*=1",
	"compile digits.onnx --train --batch 2 --clip 1 --clip 0*=1",
	"compile digits.onnx --train --batch 1000000000",
	"compile digits.onnx --train --batch 2 --replicas 1000000000",
	"compile digits.popef --train",
	"compile cycle.onnx --train",
	"extract digits.popef -o x.onnx",
	"extract digits.onnx -o x.onnx",
	"extract cut.popef -o x.onnx",
	"extract digits.popef",
	// Other mistakes with files and flags.
	"inspect digits.popef extra.popef",
	"inspect digits.popef --html nowhere/page.html",
	"inspect digits.popef --html folder",
	"inspect ./nowhere.onnx",
	"inspect cut.onnx",
	"inspect digits.popef --memory much",
	"compile digits.onnx --batch 1 --without-pass fus",
	"compile digits.onnx --batch 1 --iterations 0",
	"compile digits.onnx --batch 1 -o folder",
	"compile digits.onnx words.onnx",
	"compile digits.onnx --batch 1 --bind image=nowhere.npy",
	"compile digits.onnx --batch 1 --bind image=wide.npy",
	"compile digits.onnx --batch 1 --bind image=text.npy",
	"compile digits.onnx --batch 1 --memory 1000",
	"generate -m cut.popef -o a",
	"generate -m flipped.popef -o a",
	"generate -m text.popef -o a",
	"generate -m unsupported.onnx -o a",
	"generate --config nowhere.yaml",
	"generate --config digits.popef",
	"generate -m digits.popef -o a --rename image",
	"generate -m digits.popef -o a --embed --popef b.popef",
	"check -m nowhere.popef -o stale",
	"check -m digits.popef -o nowhere",
	"check -m digits.popef -o text.popef",
	"check",
	"watch",
	"watch extra",
	"run nowhere.onnx",
	"run cut.popef --random 1",
	"run flipped.popef --random 1",
	"run digits.popef --input image=@nowhere",
	"run digits.popef --input image=cut.npy",
	"run digits.popef --input image=tensor.pb",
	"run digits.popef --random 1 --output-dir text.popef",
	"run digits.popef --random 1 --engine-option threads=many",
	"run digits.popef --random 1 --engine-option layuot=off",
	"run digits.popef --random 1 --engine-option layout=of",
	"run digits.popef --random 1 --engine-option costs=nowhere.json",
	"run digits.popef --random 1 --engine-option costs=text.popef",
	"run digits.popef --random 1 --engine-option memory=10",
	"run digits.popef --random 1 --engine-option work=1",
	"run digits.popef --input image=scan.npy --input image=scan.npy",
	"run sizes.onnx --dim n=3 --random 1",
	"diff nowhere.popef digits.popef",
	"diff cut.popef digits.popef",
	"diff nowhere digits.popef",
	"diff git:HEAD:digits.popef digits.popef",
	"diff digits.popef stale/nothing.txt",
	"diff unsupported.onnx digits.popef",
	"diff digits.popef digits.popef --html nowhere/page.html",
	"golden recrod digits.popef -o g",
	"golden record digits.popef",
	"golden record digits.popef -o g",
	"golden record digits.popef -o text.popef --random 1",
	"golden record nowhere.popef -o g --random 1",
	"golden record digits.popef -o g --random 1 --tolerance probabilities=loose",
	"golden record digits.popef -o g --random 1 --cases 0",
	"golden import digits.popef -o g",
	"golden import digits.popef nowhere -o g",
	"golden import digits.popef folder -o g",
	"golden import digits.popef text.npy -o g",
	"golden import digits.popef scan.npy -o g",
	"golden verify digits.popef nowhere",
	"golden verify nowhere.popef folder",
	"golden verify digits.popef",
	"verify case",
	"verify digits.onnx --rtol x",
	"bench",
	"bench nowhere.popef",
	"bench digits.popef --clients 0",
	"bench digits.popef --compare layuot=off",
	"bench digits.popef --compare layout",
	"bench digits.popef --replicas 0",
	"bench digits.popef --engine-option layuot=off",
	"calibrate extra",
	"devices extra",
	"devices --backend ipu",
	"version extra",
	"completion",
}

// remedies are how errors say what to do; what does not exist, or is not what it
// should be, says so by itself.
const remedies = `want|hint: |did you mean|usage|--help|; |no such file|first|not a directory|means|must|not a git repository|registered: |choose another|popefgen [a-z]+ `

// helpless are mistakes that nothing more can be said about.
var helpless = map[string]bool{
	"compile cycle.onnx":         true, // it means nothing
	"compile cycle.onnx --train": true,
}

// TestMistakes compares what the command says to mistakes with
// testdata/mistakes.txt.
func TestMistakes(t *testing.T) {
	want, err := filepath.Abs(filepath.Join("testdata", "mistakes.txt"))
	require.NoError(t, err)
	mistakeFiles(t)
	before := tree(t)
	here, err := os.Getwd()
	require.NoError(t, err)
	var b strings.Builder
	for _, line := range mistakes {
		var out, errOut bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		code := Run(ctx, strings.Fields(line), strings.NewReader(""), &out, &errOut)
		cancel()
		// Executables are named after their content.
		said := regexp.MustCompile(`"[0-9]{9,}"`).ReplaceAllString(out.String()+errOut.String(), `"…"`)
		fmt.Fprintf(&b, "$ popefgen %s\n%s[exit %d]\n\n", line, said, code)
		if code == 0 {
			t.Errorf("popefgen %s succeeds", line)
		}
		if code == exitTrouble {
			text := strings.TrimSpace(strings.TrimPrefix(errOut.String(), "popefgen: "))
			for _, f := range (errortext.Text{Text: text, Dir: here, Shell: true, Remedy: remedies}).Faults() {
				if !helpless[line] || !strings.Contains(f, "does not say what to do") {
					t.Errorf("popefgen %s: %s:\n%s", line, f, text)
				}
			}
			require.True(t, strings.HasPrefix(errOut.String(), "popefgen: "), "%s: %s", line, errOut.String())
			if out.Len() > 0 {
				t.Errorf("popefgen %s prints:\n%s", line, out.String())
			}
		}
	}
	require.Empty(t, cmp.Diff(before, tree(t)), "a mistake has left something behind")
	if *updateDocs {
		require.NoError(t, os.WriteFile(want, []byte(b.String()), 0o666))
		return
	}
	golden, err := os.ReadFile(want)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(golden), b.String()), "go test ./cmd/popefgen -run Mistakes -update-docs")
}

// mistakeFiles makes a folder of files to make mistakes with, and goes there.
func mistakeFiles(t *testing.T) {
	t.Helper()
	digits, err := filepath.Abs("../../generated_examples/digits")
	require.NoError(t, err)
	models, err := filepath.Glob("testdata/mistakes/*.onnx")
	require.NoError(t, err)
	files := map[string][]byte{
		"tensor.onnx": []byte("\x10\x01\x4a\x04\x00\x00\x80\x3f"), "mobile.tflite": []byte("\x1c\x00\x00\x00TFL3\x00\x00"), "case/model.onnx": nil,
		"pointer.popef": []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
		"text.popef":    []byte("hello, world\n"), "text.npy": []byte("hello, world\n"), "scan.txt": []byte("1 2 3\n"), "empty.popef": nil,
		"mine/mine.go": []byte("package mine\n"), "folder/readme": []byte("nothing\n"),
		"misspelt.yaml": []byte("models:\n  - model: digits.popef\n    ouput: a\n"),
	}
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	files["digits.onnx"] = read(filepath.Join(digits, "digits.onnx"))
	files["words.onnx"] = read(filepath.Join(digits, "..", "words", "words.onnx"))
	files["cut.onnx"] = files["digits.onnx"][:1000]
	files["digits.popef"] = read(filepath.Join(digits, "classifier", "digits.popef"))
	files["cut.popef"] = files["digits.popef"][:5000]
	flipped := bytes.Clone(files["digits.popef"])
	flipped[9] ^= 0x40
	files["flipped.popef"] = flipped
	contract := string(read(filepath.Join(digits, "classifier", "contract.txt")))
	files["edited/contract.txt"] = []byte(strings.Replace(contract, "[1 10]", "[1 11]", 1))
	files["sizes.onnx"] = sizesModel()
	for _, m := range models {
		files[filepath.Base(m)] = read(m)
	}
	array := func(t popef.DataType, shape ...int64) []byte {
		info := popef.TensorInfo{DataType: t, Shape: shape}
		size, err := info.SizeInBytes()
		if err != nil {
			panic(err)
		}
		var b bytes.Buffer
		if err := npy.Write(&b, info, make([]byte, size)); err != nil {
			panic(err)
		}
		return b.Bytes()
	}
	files["scan.npy"] = array(popef.F32, 1, 1, 8, 8)
	files["double.npy"] = array(popef.F64, 1, 1, 8, 8)
	files["wide.npy"] = array(popef.F32, 1, 1, 8, 9)
	files["x.npy"] = array(popef.F32, 2)
	files["cut.npy"] = files["scan.npy"][:140]
	files["tensor.pb"] = files["tensor.onnx"]

	t.Chdir(t.TempDir())
	for name, data := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		require.NoError(t, os.WriteFile(name, data, 0o666))
	}
	require.NoError(t, writePoplar("poplar.popef"))
	var errOut bytes.Buffer
	require.Zero(t, Run(context.Background(), []string{"compile", "digits.onnx", "-o", "two.popef", "--batch", "2", "-q"}, nil, &bytes.Buffer{}, &errOut), errOut.String())
	require.Zero(t, Run(context.Background(), []string{"generate", "-m", "two.popef", "-o", "stale"}, nil, &bytes.Buffer{}, &errOut), errOut.String())
}

// tree returns the files and folders here.
func tree(t *testing.T) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}

// sizesModel is a model that is right for one size only: a product of x, whose
// n columns are open, with four rows.
func sizesModel() []byte {
	message := func(num byte, body ...byte) []byte { return append([]byte{num<<3 | 2, byte(len(body))}, body...) }
	cat := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	text := func(num byte, s string) []byte { return message(num, []byte(s)...) }
	value := func(name string, dims ...[]byte) []byte {
		shape := cat(dims...)
		return cat(text(1, name), message(2, message(1, cat([]byte{0x08, 1}, message(2, shape...))...)...))
	}
	fixed := func(n byte) []byte { return message(1, 0x08, n) }
	open := message(1, text(2, "n")...)
	node := cat(text(1, "x"), text(1, "w"), text(2, "y"), text(3, "fc"), text(4, "MatMul"))
	weight := cat([]byte{0x08, 4, 0x08, 1, 0x10, 1}, text(8, "w"), message(9, make([]byte, 16)...))
	graph := cat(message(1, node...), message(5, weight...), message(11, value("x", fixed(1), open)...), message(12, value("y", fixed(1), fixed(1))...))
	return cat([]byte{0x08, 8}, message(7, graph...), message(8, 0x10, 13))
}
