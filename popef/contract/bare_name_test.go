package contract

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBareName compares with the regular expression that says the same.
func TestBareName(t *testing.T) {
	re := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*`)
	for b := range 256 { // every byte, as the first and after one
		for _, s := range []string{string([]byte{byte(b)}), string([]byte{'a', byte(b), 'z'})} {
			require.Equal(t, re.FindString(s), bareName(s), "%q", s)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[A-Za-z0-9_. @\[{é-]*`).Draw(t, "s")
		if want := re.FindString(s); bareName(s) != want {
			t.Fatalf("bareName(%q) = %q, want %q", s, bareName(s), want)
		}
	})
}
