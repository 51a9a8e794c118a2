package emit

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/printable"
)

// visible returns Go source in which nothing stands that a reader would not
// see or would see elsewhere: names in comments and strings come from models,
// and with bidirectional and invisible characters source reads otherwise than
// it compiles. In comments they become the escapes of package printable, in
// strings those of Go, so that no string has another value. Anywhere else they
// are an error.
func visible(src []byte) ([]byte, error) {
	hidden := func(b []byte) bool { return bytes.ContainsFunc(b, printable.Hidden) || !utf8.Valid(b) }
	if !hidden(src) {
		return src, nil
	}
	var out bytes.Buffer
	var s scanner.Scanner
	var problems scanner.ErrorList
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, problems.Add, scanner.ScanComments)
	done := 0
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue // not in the source
		}
		at := file.Offset(pos)
		if gap := src[done:at]; hidden(gap) {
			return nil, fmt.Errorf("invisible characters between tokens: %q", gap)
		}
		out.Write(src[done:at])
		done = at + len(text)
		if string(src[at:done]) != text { // the scanner leaves out carriage returns
			return nil, fmt.Errorf("carriage returns in %s %q", kind, text)
		}
		switch {
		case !hidden([]byte(text)):
			out.WriteString(text)
		case kind == token.COMMENT:
			out.WriteString(printable.String(text))
		case kind == token.STRING && text[0] == '"':
			for _, r := range text {
				switch {
				case !printable.Hidden(r):
					out.WriteRune(r)
				case r > 0xffff:
					fmt.Fprintf(&out, `\U%08x`, r)
				default:
					fmt.Fprintf(&out, `\u%04x`, r)
				}
			}
		default:
			return nil, fmt.Errorf("invisible characters in %s %q", kind, text)
		}
	}
	if problems.Len() > 0 {
		return nil, problems.Err()
	}
	if gap := src[done:]; hidden(gap) {
		return nil, fmt.Errorf("invisible characters at the end: %q", gap)
	}
	out.Write(src[done:])
	return out.Bytes(), nil
}
