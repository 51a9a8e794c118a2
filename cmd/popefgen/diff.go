package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef/contract"
)

var diffCommand = &cli.Command{
	Name:  "diff",
	Usage: "say whether a model breaks the code that calls another's package",
	UsageText: "popefgen diff OLD NEW [flags]\n\nOLD and NEW are each a PopEF model, an ONNX model (compiled in memory with the flags of compile), the folder of a\n" +
		"generated package, its contract.txt, or git:REV:PATH, any of these as it is in a revision (PATH as git show takes it).\n\n" +
		"example: popefgen diff old.popef new.popef\n         popefgen diff git:main:digits digits --markdown\n         popefgen diff digits digits.onnx --batch 8",
	ArgsUsage: "OLD NEW",
	Flags: append([]cli.Flag{
		&cli.StringFlag{Name: "fail-on", Usage: "exit with 1 if the verdict is `WHAT`: breaking, any (not identical) or none (never)", Value: "breaking"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "markdown", Usage: "print Markdown, for a comment on a pull request"},
		&cli.StringFlag{Name: "html", Usage: "also write a page with both models side by side to `FILE`"},
	}, modelFlags...),
	Action: func(c *cli.Context) error {
		if c.NArg() != 2 {
			return fmt.Errorf("diff: found %d arguments, want two: the old one and the new one (usage: popefgen diff OLD NEW)", c.NArg())
		}
		failOn, ok := map[string]contract.Verdict{"breaking": contract.Breaking, "any": contract.Compatible, "none": contract.Breaking + 1}[c.String("fail-on")]
		if !ok {
			return fmt.Errorf("diff: --fail-on %s: want breaking, any or none", c.String("fail-on"))
		}
		if c.Bool("json") && c.Bool("markdown") {
			return errors.New("diff: --json and --markdown: want one of them")
		}
		r, err := compare(c, c.Args().Get(0), c.Args().Get(1))
		if err != nil {
			return fmt.Errorf("diff: %w", err)
		}
		switch {
		case c.Bool("json"):
			e := json.NewEncoder(c.App.Writer)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			err = e.Encode(r)
		case c.Bool("markdown"):
			err = r.markdown(c.App.Writer)
		default:
			err = r.text(c.App.Writer)
		}
		if err == nil && r.Verdict >= failOn {
			err = errNo
		}
		return err
	},
}

// diffReport is what diff prints; its JSON form is the command's interface.
type diffReport struct {
	Verdict  contract.Verdict   `json:"verdict"`
	Opens    bool               `json:"opens"` // whether the old one's package opens the new model as it is
	Old      diffSide           `json:"old"`
	New      diffSide           `json:"new"`
	Findings []contract.Finding `json:"findings"`
}

type diffSide struct {
	Name string `json:"name"`
	Hash string `json:"contract"`
}

// pin is the name of the constant that pins the side's contract.
func (s diffSide) pin() string { return "Contract" + s.Hash[:8] }

// compare reads both sides and judges them.
func compare(c *cli.Context, oldName, newName string) (*diffReport, error) {
	if err := checkModelFlags(c, oldName, newName); err != nil {
		return nil, err
	}
	old, err := readSide(c, oldName)
	if err != nil {
		return nil, err
	}
	defer old.close()
	new, err := readSide(c, newName)
	if err != nil {
		return nil, err
	}
	defer new.close()
	if (old.model == nil) != (new.model == nil) {
		// A package may have been generated with --rename; a model has not.
		for _, s := range []*side{old, new} {
			if s.model != nil {
				s.published.GoNames, s.published.SizeNames = nil, nil
			}
		}
	}
	findings := contract.Judge(old.published, new.published)
	if old.model != nil && new.model != nil {
		notes, err := contract.Notes(old.model, new.model)
		if err != nil {
			return nil, err
		}
		findings = append(findings, notes...)
	}
	if findings == nil {
		findings = []contract.Finding{} // an empty list in JSON, not null
	}
	r := report(findings, diffSide{oldName, old.published.Hash()}, diffSide{newName, new.published.Hash()})
	if c.IsSet("html") {
		err = drawDiff(c, r, old, new)
	}
	return r, err
}

// report sums findings up.
func report(findings []contract.Finding, old, new diffSide) *diffReport {
	return &diffReport{Verdict: contract.Worst(findings), Opens: contract.Opens(findings), Findings: findings, Old: old, New: new}
}

// advice says what a verdict asks for.
func (r *diffReport) advice() string {
	if r.Verdict == contract.Identical {
		return "code that was generated for one runs the other; nothing has to be generated again"
	}
	opens := "the package as it is does not open the new model"
	if r.Opens {
		opens = "the package as it is opens the new model"
	}
	again, pin := "once it is generated again, callers build as they are", fmt.Sprintf("; a pin %s becomes %s", r.Old.pin(), r.New.pin())
	if r.Verdict == contract.Breaking {
		again, pin = "once it is generated again, some callers break", fmt.Sprintf("; a pin %s, which does not build then, becomes %s", r.Old.pin(), r.New.pin())
	}
	if r.Old.Hash == r.New.Hash {
		pin = "; a pin stays, as only Go names, options of the generator or sizes of a family differ"
	}
	return opens + "; " + again + pin
}

// count says how many findings there are of each verdict.
func (r *diffReport) count() string {
	n := map[string]int{}
	for _, f := range r.Findings {
		switch {
		case f.Kind.Outside():
			n["outside the contract"]++
		default:
			n[f.Verdict.String()]++
		}
	}
	var parts []string
	for _, what := range []string{"breaking", "compatible", "outside the contract"} {
		if n[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[what], what))
		}
	}
	if parts == nil {
		return "no change"
	}
	return strings.Join(parts, ", ")
}

// label is the first word of a finding's line.
func label(f contract.Finding) string {
	if f.Kind.Outside() {
		return "note"
	}
	return f.Verdict.String()
}

// text prints a line per finding and the verdict.
func (r *diffReport) text(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-10s  %s\n", label(f), f)
	}
	fmt.Fprintf(&b, "%v: %s; %s\n", r.Verdict, r.count(), r.advice())
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown prints a table of the findings.
func (r *diffReport) markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### Contract: %v\n\n", r.Verdict)
	fmt.Fprintf(&b, "%s → %s: %s. %s.\n", code(r.Old.Name), code(r.New.Name), r.count(), sentence(r.advice()))
	if len(r.Findings) > 0 {
		b.WriteString("\n| verdict | what | was | is | why | what to do |\n|---|---|---|---|---|---|\n")
	}
	for _, f := range r.Findings {
		verdict := label(f)
		if f.Verdict == contract.Breaking {
			verdict = "**" + verdict + "**"
		}
		fmt.Fprintf(&b, "| %s | %s %s | %s | %s | %s | %s |\n", verdict, code(f.What), f.Kind, code(f.Old), code(f.New), plain(f.Why), plain(f.Do))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// code makes a code span of any text, for a cell of a table: names come from
// models, and must neither end the cell nor call anybody.
func code(s string) string {
	if s == "" {
		return ""
	}
	s = printable.Line(s) // a row of a table is one line
	longest, run := 0, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 {
		s = " " + s + " "
	}
	return fence + strings.ReplaceAll(s, "|", `\|`) + fence
}

// plain makes text of words that show as they are.
func plain(s string) string {
	var b strings.Builder
	for _, r := range printable.Line(s) {
		if strings.ContainsRune("\\`*_[]<>|~@#&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
