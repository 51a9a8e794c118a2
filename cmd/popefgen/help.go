package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/nearest"
)

func init() {
	cli.FlagStringer = flagText
	cli.VersionPrinter = func(c *cli.Context) { printVersion(c.App.Writer) }
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this"}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the version"}
}

// flagText is the line of a flag in a command's help: its names, a tab, what it
// does, and its default unless that is nothing or stands there already.
func flagText(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	value, usage := placeholder(d.GetUsage())
	var names []string
	for _, n := range f.Names() {
		if len(n) == 1 {
			n = "-" + n
		} else {
			n = "--" + n
		}
		if takesValue(f) {
			n += " " + value
		}
		names = append(names, n)
	}
	if repeatable(f) {
		usage += " (may be repeated)"
	}
	switch text := d.GetDefaultText(); text {
	case "", "0", "0s", "false", `""`:
	default:
		if !strings.Contains(usage, "(default") {
			usage += " (default: " + strings.Trim(text, `"`) + ")"
		}
	}
	return strings.Join(names, ", ") + "\t" + usage
}

// placeholder returns what stands for a flag's value, which its usage has in
// back quotes, and the usage without the quotes.
func placeholder(usage string) (value, text string) {
	before, rest, ok := strings.Cut(usage, "`")
	value, after, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "VALUE", usage
	}
	return value, before + value + after
}

// withHelp returns flags with the one that shows the help.
func withHelp(flags []cli.Flag) []cli.Flag {
	if slices.Contains(flags, cli.HelpFlag) {
		return flags
	}
	return append(slices.Clone(flags), cli.HelpFlag)
}

func takesValue(f cli.Flag) bool { _, isBool := f.(*cli.BoolFlag); return !isBool }

func repeatable(f cli.Flag) bool {
	s, ok := f.(cli.DocGenerationSliceFlag)
	return ok && s.IsSliceFlag()
}

func hidden(f cli.Flag) bool {
	v, ok := f.(cli.VisibleFlag)
	return ok && !v.IsVisible()
}

// meaning is what a flag does, in a line.
func meaning(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	_, text := placeholder(d.GetUsage())
	return text
}

// The library's messages about flags, which become ours.
var (
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	badFlag      = regexp.MustCompile(`(?s)^invalid (?:boolean )?value "(.*)" for (?:flag )?-+([^:]*): .*$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: -+(.*)$`)
)

// usageError says what is wrong with a command's flags.
func usageError(c *cli.Context, err error, _ bool) error {
	name, flags := "popefgen", []cli.Flag{cli.VersionFlag}
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		// Of a command that ran before, the library repeats the first word.
		name, flags = c.Command.HelpName[strings.LastIndex(c.Command.HelpName, name+" "):], c.Command.Flags
	}
	flags = withHelp(flags)
	flag := func(name string) (cli.Flag, string) {
		for _, f := range flags {
			for _, n := range f.Names() {
				if n == name {
					value, _ := placeholder(f.(cli.DocGenerationFlag).GetUsage())
					return f, value
				}
			}
		}
		return nil, ""
	}
	switch text := err.Error(); {
	case unknownFlag.MatchString(text):
		written := "--" + unknownFlag.FindStringSubmatch(text)[1]
		var all []string
		for _, f := range flags {
			if !hidden(f) {
				all = append(all, "--"+f.Names()[0])
			}
		}
		near := nearest.DidYouMean(written, all)
		if !strings.HasPrefix(near, "; did you mean") {
			near = "" // the help has the list
		}
		err = fmt.Errorf("there is no flag %s%s", written, near)
	case missingValue.MatchString(text):
		n := missingValue.FindStringSubmatch(text)[1]
		_, value := flag(n)
		err = fmt.Errorf("--%s: the value is missing: want --%s %s", n, n, value)
	case badFlag.MatchString(text):
		m := badFlag.FindStringSubmatch(text)
		f, _ := flag(m[2])
		err = fmt.Errorf("--%s %s: want %s", m[2], m[1], wantedValue(f))
	}
	return fmt.Errorf("%w; %s --help lists the flags", err, name)
}

// wantedValue says what value fits a flag.
func wantedValue(f cli.Flag) string {
	switch f.(type) {
	case *cli.BoolFlag:
		return "true or false"
	case *cli.IntFlag, *cli.Int64Flag:
		return "a whole number"
	case *cli.UintFlag, *cli.Uint64Flag:
		return "a whole number, 0 or more"
	case *cli.Float64Flag:
		return "a number"
	case *cli.DurationFlag:
		return "a time such as 500ms, 2s or 1m"
	}
	return "another value"
}

// unknownCommand says that there is no such command, and which is near.
func unknownCommand(group, written string, commands []*cli.Command) error {
	var names []string
	for _, c := range commands {
		if !c.Hidden && c.Name != "help" {
			names = append(names, c.Name)
		}
	}
	near := nearest.DidYouMean(written, names)
	if near == "" {
		return errors.New("there is no command " + written)
	}
	return fmt.Errorf("there is no command %q%s (%s --help lists them)", strings.TrimSpace(strings.TrimPrefix(group, "popefgen")+" "+written), near, group)
}
