package printable

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ShellWord returns s as one word of a command line, for messages that say what
// to type: as it is if every shell takes it so, else quoted as POSIX does (zsh
// takes x[0] for a pattern of file names), or in the way of bash and zsh,
// $'\x1b', if s has characters that must not be printed raw.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+.,:/=@%", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	if Line(s) == s {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for s != "" {
		_, size := utf8.DecodeRuneInString(s)
		switch c := s[:size]; {
		case c == "'" || c == `\`:
			b.WriteString(`\` + c)
		case Line(c) != c:
			for _, octet := range []byte(c) {
				fmt.Fprintf(&b, `\x%02x`, octet)
			}
		default:
			b.WriteString(c)
		}
		s = s[size:]
	}
	return b.String() + "'"
}
