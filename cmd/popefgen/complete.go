package main

import (
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeWord is the word before the words of a command line that a shell's
// script asks to have completed.
const completeWord = "__complete"

// candidate is what a word may become.
type candidate struct{ word, meaning string }

// candidates returns what the last of the words of a command line, without the
// program's name, may become; none where it can only be a file or a value.
func candidates(app *cli.App, words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	current := words[len(words)-1]
	var command *cli.Command
	commands, flags := app.Commands, []cli.Flag{cli.VersionFlag}
	given := map[string]bool{}
	value := false // the word is the value of a flag
	for _, w := range words[:len(words)-1] {
		name, assigned := strings.TrimLeft(w, "-"), false
		name, _, assigned = strings.Cut(name, "=")
		switch {
		case value:
			value = false
		case w == "--":
			return nil
		case strings.HasPrefix(w, "-"):
			for _, f := range flags {
				if slices.Contains(f.Names(), name) {
					for _, n := range f.Names() {
						given[n] = true
					}
					value = !assigned && takesValue(f)
				}
			}
		default:
			if i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(w) }); i >= 0 {
				command = commands[i]
				commands, flags = subcommands(command), command.Flags
			}
		}
	}
	var all []candidate
	switch {
	case value:
	case strings.HasPrefix(current, "-"):
		for _, f := range withHelp(flags) {
			if n := f.Names()[0]; !hidden(f) && (!given[n] || repeatable(f)) {
				all = append(all, candidate{"--" + n, meaning(f)})
			}
		}
	case command == nil || len(commands) > 0:
		for _, c := range commands {
			if !c.Hidden && c.Name != "help" {
				all = append(all, candidate{c.Name, c.Usage})
			}
		}
	case command == completionCommand:
		for _, s := range shells {
			all = append(all, candidate{s, ""})
		}
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return !strings.HasPrefix(c.word, current) })
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return all
}

// printCandidates prints a line for each candidate, with its meaning after a
// tab.
func printCandidates(w io.Writer, all []candidate) error {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(c.word)
		if c.meaning != "" {
			b.WriteString("\t" + c.meaning)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
