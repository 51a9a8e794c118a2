package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestString(t *testing.T) {
	for _, c := range []struct{ name, in, want, line string }{
		{"empty", "", "", ""},
		{"plain", "größe × 2 …", "größe × 2 …", "größe × 2 …"},
		{"newline and tab", "a\n\tb", "a\n\tb", `a\n\tb`},
		{"escape sequence", "\x1b]0;title\a", `\u001b]0;title\u0007`, `\u001b]0;title\u0007`},
		{"carriage return, NUL, DEL", "a\rb\x00\x7f", `a\u000db\u0000\u007f`, `a\u000db\u0000\u007f`},
		{"DEL alone", "a\x7fb", `a\u007fb`, `a\u007fb`},
		{"C1 controls", "\u009b31m\u0085", `\u009b31m\u0085`, `\u009b31m\u0085`},
		{"bidirectional", "a\u202eb\u2066c\u200f\u061c", `a\u202eb\u2066c\u200f\u061c`, `a\u202eb\u2066c\u200f\u061c`},
		{"zero width", "a\u200bb\u2060\ufeff\u00ad", `a\u200bb\u2060\ufeff\u00ad`, `a\u200bb\u2060\ufeff\u00ad`},
		{"separators", "a\u2028b\u2029", `a\u2028b\u2029`, `a\u2028b\u2029`},
		{"fillers", "\u115f\u3164\u034f\uffa0", `\u115f\u3164\u034f\uffa0`, `\u115f\u3164\u034f\uffa0`},
		{"variation selectors", "x\ufe0f\U000e0100", `x\ufe0f\udb40\udd00`, `x\ufe0f\udb40\udd00`},
		{"tags", "\U000e0041", `\udb40\udc41`, `\udb40\udc41`},
		{"noncharacters", "\ufffe\uffff\ufdd0", `\ufffe\uffff\ufdd0`, `\ufffe\uffff\ufdd0`},
		{"not UTF-8", "a\x9b31m\xff\xc3", `a\x9b31m\xff\xc3`, `a\x9b31m\xff\xc3`},
		{"replacement character itself", "a\ufffdb", "a\ufffdb", "a\ufffdb"},
		{"combining and emoji stay", "e\u0301 😀", "e\u0301 😀", "e\u0301 😀"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, String(c.in))
			require.Equal(t, c.line, Line(c.in))
		})
	}
	clean := strings.Repeat("abc ", 10)
	require.Zero(t, testing.AllocsPerRun(10, func() { String(clean) }), "clean text is copied")
}

// nasty draws text with every kind of character, and bytes that are none.
var nasty = rapid.Custom(func(t *rapid.T) string {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.StringOf(rapid.Int32Range(0, 0x2100)),
		rapid.StringOf(rapid.SampledFrom([]rune("a\"\\\n\t\r\x00\x1b\u202e\u2066\u200b\u2028\ufeff\U000e0041\ufe0f\u3164é😀"))),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
	)
	return strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), "")
})

// TestNothingHidden holds String, Line and Writer to their word for any text.
func TestNothingHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nasty.Draw(t, "text")
		once := String(s)
		require.True(t, utf8.ValidString(once))
		for _, r := range once {
			require.False(t, Hidden(r), "%q has %U", once, r)
			require.True(t, r == '\n' || r == '\t' || !unicode.IsControl(r), "%q", once)
		}
		require.Equal(t, once, String(once), "escaped text is escaped again")
		require.NotContains(t, Line(s), "\n")
		require.NotContains(t, Line(s), "\t")
		require.Equal(t, Line(s), strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(once))
		if strconv.CanBackquote(s) && !strings.ContainsFunc(s, Hidden) {
			require.Equal(t, s, once, "harmless text is changed")
		}
	})
}

// TestWriterInPieces cuts text anywhere: the result is that of the whole.
func TestWriterInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nasty.Draw(t, "text")
		var b bytes.Buffer
		w := NewWriter(&b)
		for rest := s; rest != ""; {
			n := rapid.IntRange(1, min(5, len(rest))).Draw(t, "piece")
			k, err := w.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, k)
			rest = rest[n:]
		}
		require.NoError(t, w.Flush())
		require.Equal(t, String(s), b.String())
	})
}

// TestJSON writes JSON through a Writer: it is valid and means what it meant.
func TestJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nasty.Draw(t, "text")
		want, err := json.Marshal(map[string]string{s: s})
		require.NoError(t, err)
		var b bytes.Buffer
		w := NewWriter(&b)
		_, err = w.Write(want)
		require.NoError(t, err)
		var was, is map[string]string
		require.NoError(t, json.Unmarshal(want, &was))
		require.NoError(t, json.Unmarshal(b.Bytes(), &is), "%q", b.String())
		require.Equal(t, was, is)
	})
}

// TestShellWord has bash read words back.
func TestShellWord(t *testing.T) {
	require.Equal(t, "h2d_x=Image", ShellWord("h2d_x=Image"))
	require.Equal(t, `'x[0]'`, ShellWord("x[0]"))
	require.Equal(t, `''`, ShellWord(""))
	require.Equal(t, `$'a\x0d\'b'`, ShellWord("a\r'b"))
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash to read words back")
	}
	var script strings.Builder
	var want []string
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ReplaceAll(nasty.Draw(t, "text"), "\x00", "")
		word := ShellWord(s)
		require.Equal(t, Line(word), word)
		fmt.Fprintf(&script, "printf '%%s\\0' %s\n", word)
		want = append(want, s)
	})
	cmd := exec.Command(bash)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, want, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWriterErrors(t *testing.T) {
	w := NewWriter(failing{})
	_, err := w.Write([]byte("clean"))
	require.EqualError(t, err, "broken pipe")
	_, err = w.Write([]byte("\x1b"))
	require.EqualError(t, err, "broken pipe")
	require.Equal(t, failing{}, w.Raw())
}

func TestWriterAllocatesNothingForPlainText(t *testing.T) {
	w := NewWriter(&discard{})
	line := []byte("conv1  F32  [1,3,224,224]\n")
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Write(line) })) //nolint:errcheck // it can't fail
}

type discard struct{}

func (*discard) Write(p []byte) (int, error) { return len(p), nil }

// TestFlushOnce flushes the beginning of a character twice.
func TestFlushOnce(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	_, err := w.Write([]byte("a\xc3"))
	require.NoError(t, err)
	require.Equal(t, "a", out.String())
	for range 2 {
		require.NoError(t, w.Flush())
		require.Equal(t, `a\xc3`, out.String())
	}
	_, err = w.Write([]byte("\xa9"))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	require.Equal(t, `a\xc3\xa9`, out.String(), "what was flushed begins no character any more")
}
