// Package printable makes text from strangers safe to print: names in models
// may hold escape sequences that drive a terminal, characters that turn text
// around or that nobody sees, and bytes that are no text at all.
package printable

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// String returns s with everything escaped that must not be printed raw:
// control characters other than newline and tab, formatting characters
// (bidirectional marks, zero-width characters, tags), line and paragraph
// separators, variation selectors, noncharacters and bytes that are not UTF-8.
//
// An escape is the one of JSON, \u202e, which Go's strings know as well (two
// of them, a surrogate pair, stand for a character beyond the basic plane; a
// byte that is not UTF-8 is \x9b). Such characters stand in JSON only inside
// strings, so JSON stays valid and means the same.
func String(s string) string { return escaped(s, false) }

// Line is [String] for text that is to stay on one line, such as a name:
// newlines and tabs are escaped as well, as \n and \t.
func Line(s string) string { return escaped(s, true) }

func escaped(s string, line bool) string {
	n := clean(s, line)
	if n == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:n]...)
	for s = s[n:]; s != ""; {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size <= 1:
			b = appendByte(b, s[0])
		case line && r == '\n':
			b = append(b, `\n`...)
		case line && r == '\t':
			b = append(b, `\t`...)
		case Hidden(r):
			b = appendRune(b, r)
		default:
			b = append(b, s[:size]...)
		}
		s = s[size:]
	}
	return string(b)
}

// clean returns how many of the first bytes of s may be printed as they are.
func clean[T string | []byte](s T, line bool) int {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' && (line || c != '\n' && c != '\t') || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		if r == utf8.RuneError && size <= 1 || Hidden(r) {
			return i
		}
		i += size
	}
	return len(s)
}

// Hidden reports whether r is among the characters that [String] escapes.
func Hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20:
		return true
	case r < 0x7f:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point)
}

func appendRune(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Appendf(b, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}

func appendByte(b []byte, c byte) []byte { return fmt.Appendf(b, `\x%02x`, c) }

// Writer passes text on as [String] returns it, whatever the pieces it comes
// in. It may be used by several goroutines at once, as os.Stdout may.
type Writer struct {
	mu   sync.Mutex
	to   io.Writer
	part []byte // the beginning of a character whose rest is still to come
}

// NewWriter returns a Writer that passes text on to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Raw returns the writer below, for what a program itself has to say to a
// terminal: colours and movements of the cursor. Text from elsewhere must go
// through [String] first.
func (w *Writer) Raw() io.Writer { return w.to }

// Write passes p on. A character that is cut off at its end waits for the next
// call, or for [Writer.Flush].
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.part) == 0 && clean(p, false) == len(p) {
		return w.to.Write(p)
	}
	text := append(w.part, p...)
	end := len(text)
	for i := 1; i <= min(utf8.UTFMax-1, len(text)); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-i:]) {
				end -= i
			}
			break
		}
	}
	rest := strings.Clone(string(text[end:]))
	_, err := io.WriteString(w.to, String(string(text[:end])))
	w.part = append(w.part[:0], rest...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what waits for its rest, escaped.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.part) == 0 {
		return nil
	}
	_, err := io.WriteString(w.to, String(string(w.part)))
	w.part = w.part[:0]
	return err
}
