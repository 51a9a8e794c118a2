package report

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMarkers is the error of documents that lack the marks of a section.
var ErrMarkers = errors.New("markers not found")

// Replace returns doc with text between the lines that mark the section:
//
//	<!-- bench NAME -->
//	<!-- end NAME -->
func Replace(doc, section, text string) (string, error) {
	begin, end := "<!-- bench "+section+" -->\n", "<!-- end "+section+" -->"
	from := strings.Index(doc, begin)
	if from < 0 {
		return "", fmt.Errorf("section %q: %w: want a line %s", section, ErrMarkers, strings.TrimSpace(begin))
	}
	from += len(begin)
	length := strings.Index(doc[from:], end)
	if length < 0 {
		return "", fmt.Errorf("section %q: %w: want %s after its beginning", section, ErrMarkers, end)
	}
	return doc[:from] + "\n" + strings.TrimSpace(text) + "\n\n" + doc[from+length:], nil
}
