package words

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// private are phrases that have to be read twice, and what to say instead.
var private = []struct {
	phrase  *regexp.Regexp
	instead string
	wrong   string // a sentence with the phrase
}{
	{regexp.MustCompile(`\bby vectors\b`), `vectorised (AVX-512, AVX2)`, "sums are computed by vectors"},
	{regexp.MustCompile(`\b(is|are|was|were) told( (of|to|that|what|so|in|all|by|and)\b|[^ a-z]|$)`), `"is reported", "is called with", or who gets the error`, "whoever waits is told"},
	{regexp.MustCompile(`\bbears?\b`), `"tolerates", "has"`, "a file that bears its mark"},
	{regexp.MustCompile(`\bhas it\b`), `"holds", "does", "contains": say what has what`, "as the table has it"},
	{regexp.MustCompile(`\bado\b`), `"simply"`, "with less ado"},
	{regexp.MustCompile(`\bof no matter\b`), `"does not matter", "is not used"`, "it is of no matter"},
	{regexp.MustCompile(`\b(hands?|handed|handing) back\b`), `"returns"`, "memory is handed back"},
	{regexp.MustCompile(`\bin blocks of channels\b`), `NCHWc`, "kept in blocks of channels"},
	{regexp.MustCompile(`\b(pixels of bytes|bytes of pixels)\b`), `NHWC int8 activations`, "bytes of pixels"},
	{regexp.MustCompile(`\b(march|marches|marching)\b`), `parallel-for, barrier`, "workers march on"},
	{regexp.MustCompile(`\b(a bed|beds)\b`), `a futex, a semaphore`, "workers in their beds"},
}

// TestPrivateWords fails where a comment, a message or a document says one of the
// private phrases, for which the field has a term or English a plain word.
func TestPrivateWords(t *testing.T) {
	for _, p := range private {
		require.Regexp(t, p.phrase, plain(p.wrong))
		require.Regexp(t, p.phrase, plain(strings.Replace(p.wrong, " ", "\n\t// ", 1)), "divided between two lines of a comment")
	}
	files := 0
	sources(t, func(path, text string) {
		files++
		text = plain(text)
		for _, p := range private {
			if at := p.phrase.FindStringIndex(text); at != nil {
				t.Errorf("%s says “…%s…”: say %s", path, text[max(0, at[0]-40):min(len(text), at[1]+30)], p.instead)
			}
		}
	})
	require.Greater(t, files, 500)
}
