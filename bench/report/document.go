package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// WriteFile writes a file as a whole or not at all.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".*"+filepath.Ext(path))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
