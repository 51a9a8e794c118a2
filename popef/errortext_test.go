package popef_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/errortext"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// saysOnce fails the test for everything that is wrong with an error's text.
func saysOnce(t *testing.T, what string, err error, remedy string) {
	t.Helper()
	if err == nil {
		return
	}
	here, wdErr := os.Getwd()
	require.NoError(t, wdErr)
	for line := range strings.Lines(err.Error()) { // one for each problem
		for _, f := range (errortext.Text{Text: strings.TrimSuffix(line, "\n"), Dir: here, Remedy: remedy}).Faults() {
			t.Errorf("%s: %s:\n%v", what, f, err)
		}
	}
}

// TestErrorsSayEachThingOnce reads files that are cut at every place and damaged
// in every byte of their messages, and files that are none, and looks at the
// errors' texts: of Load, of reading a model and of its contract.
func TestErrorsSayEachThingOnce(t *testing.T) {
	digits, err := os.ReadFile(filepath.Join("..", "generated_examples", "digits", "classifier", "digits.popef"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	const name = "digits.popef"
	failed := 0
	try := func(what string, data []byte) {
		m, err := popef.LoadBytes(name, data)
		if err == nil {
			_, err = m.Executable()
			for _, a := range m.Metadata.Anchors {
				_, err := m.ReadTensor(a.Name)
				saysOnce(t, what, err, "")
			}
			_ = contract.Of(m)
			saysOnce(t, what, m.Close(), "")
		}
		if err != nil {
			failed++
			saysOnce(t, what, err, "")
			for line := range strings.Lines(err.Error()) {
				require.Equal(t, 1, strings.Count(line, name), "%s: it names the file once: %v", what, err)
			}
		}
	}
	for n := 0; n < len(digits); n += 1 + n/100 {
		try("cut", digits[:n])
	}
	for i := 0; i < len(digits); i++ {
		if i == 1400 {
			i = len(digits) - 3900 // in between are weights
		}
		broken := append([]byte(nil), digits...)
		broken[i] ^= 1 << (i % 8)
		try("damaged", broken)
	}
	require.Greater(t, failed, 500, "most of these are refused")

	require.NoError(t, os.WriteFile("cut.popef", digits[:5000], 0o666))
	require.NoError(t, os.WriteFile(name, digits, 0o666))
	require.NoError(t, os.Mkdir("folder", 0o777))
	for _, c := range []struct {
		paths  []string
		remedy string
	}{
		{nil, "want|give|no "}, {[]string{"nowhere.popef"}, "no such file"}, {[]string{"folder"}, "hint|want"}, {[]string{"cut.popef"}, "hint"},
		{[]string{name, name}, "hint|once"}, {[]string{name, "nowhere.popef"}, "no such file"},
	} {
		for what, read := range map[string]func(...string) (*popef.Model, error){"Load": popef.Load, "LoadCopy": popef.LoadCopy} {
			_, err := read(c.paths...)
			require.Error(t, err, "%s %q", what, c.paths)
			saysOnce(t, what+" "+strings.Join(c.paths, " "), err, c.remedy)
		}
	}
	for path, fn := range map[string]func(*popef.Writer) error{
		"nowhere/a.popef": func(*popef.Writer) error { return nil },
		"folder":          func(*popef.Writer) error { return nil },
		"twice.popef": func(w *popef.Writer) error {
			return errors.Join(w.WriteMetadata(&popef.Metadata{Executable: "e", ReplicationFactor: 1}), w.WriteMetadata(&popef.Metadata{Executable: "e", ReplicationFactor: 1}))
		},
		"open.popef": func(w *popef.Writer) error {
			e, err := w.CreateExecutable("e", false)
			if err != nil {
				return err
			}
			if _, err := w.CreateExecutable("f", false); err != nil {
				return err
			}
			_, err = io.WriteString(e, "late")
			return err
		},
	} {
		saysOnce(t, "WriteFile "+path, popef.WriteFile(path, fn), "")
	}
	for _, text := range []string{"", "contract", "popefgen contract 9\n", strings.Repeat("x\n", 9)} {
		_, err := contract.Parse(text)
		saysOnce(t, "contract.Parse", err, "")
	}
}
